//! User data of sessions, and sends to many of them.

use std::io::Write;
use std::net::TcpStream;
use std::sync::Mutex;
use std::task::Poll;

use corewire::{Frame, NetServer, ServerHandle, Session, Sessions, StandardCodec};

use crate::common::*;

struct Team(u8);

/// The first byte of a frame is the team that its session joins; the frame is answered once it has joined.
fn teams(workers: usize) -> ServerHandle {
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .workers(workers)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                session.set_data(Team(frame.payload()[0]));
                session.reply(&frame, &session.id().to_le_bytes()).unwrap();
            }
        })
        .start()
        .unwrap()
}

/// Connects and joins; gives the session's id too.
fn join(server: &ServerHandle, team: u8) -> (TcpStream, u64) {
    let mut peer = raw(server);
    peer.write_all(&srmp(1, 1, &[team])).unwrap();
    let (_, _, id) = read_srmp(&mut peer);
    (peer, u64::from_le_bytes(id.try_into().unwrap()))
}

fn in_team(session: &Session, team: u8) -> bool {
    session.with_data(|of: &mut Team| of.0 == team) == Some(true)
}

#[test]
fn a_broadcast_reaches_those_that_are_picked_by_their_data_on_all_workers() {
    let server = teams(3);
    let mut peers: Vec<_> = (0..60).map(|at| (at % 3, join(&server, at % 3))).collect();
    let mut without_data = raw(&server);
    assert_eq!(
        wait(server.sessions().broadcast_to(|session| in_team(session, 1), &b"to team 1"[..]).done()),
        20
    );
    let through_the_codec = srmp(0x41, 0, b"to team 1");
    // Shared, not copied: long enough for that.
    let long = vec![7; 10_000];
    assert_eq!(
        wait(server.sessions().broadcast_raw_to(|session| in_team(session, 2), long.clone()).done()),
        20
    );
    assert_eq!(wait(server.sessions().broadcast(&b"all"[..]).done()), 61);
    for (team, (peer, _)) in &mut peers {
        match team {
            1 => expect_message(peer, &through_the_codec),
            2 => expect(peer, &long),
            _ => {}
        }
        expect_message(peer, &srmp(0x41, 0, b"all"));
    }
    expect_message(&mut without_data, &srmp(0x41, 0, b"all"));
}

/// The sequence of a message that expects no reply is the codec's own affair.
#[track_caller]
fn expect_message(peer: &mut TcpStream, frame: &[u8]) {
    let (flag, _, payload) = read_srmp(peer);
    assert_eq!((flag, &payload[..]), (frame[0], &frame[4..]));
}

#[test]
fn a_message_to_one_session_reaches_it_alone() {
    let server = teams(2);
    let mut peers: Vec<_> = (0..8).map(|_| join(&server, 0)).collect();
    for (_, id) in &peers {
        assert_eq!(wait(server.sessions().send_to(*id, format!("you are {id}")).done()), 1);
    }
    for (peer, id) in &mut peers {
        assert_eq!(read_srmp(peer).2, format!("you are {id}").as_bytes());
    }
    assert_eq!(wait(server.sessions().send_to(9, &b"nobody"[..]).done()), 0);
    assert_eq!(wait(server.sessions().send_to(0, &b"nobody"[..]).done()), 0);
}

#[test]
fn a_message_to_one_session_needs_its_own_worker_only() {
    let server = teams(2);
    // Both workers have some of them.
    let mut peers: Vec<_> = (0..40).map(|_| join(&server, 0)).collect();
    let (stop, go_on) = std::sync::mpsc::channel::<()>();
    let (sender, stopped) = events();
    server
        .runtime()
        .run_on(1, move || {
            sender.send(()).unwrap();
            // Until the test ends.
            let _ = go_on.recv_timeout(PATIENCE);
        })
        .unwrap();
    stopped.next();
    let mut sends: Vec<_> =
        peers.iter().map(|(_, id)| Box::pin(server.sessions().send_to(*id, &b"you"[..]).done())).collect();
    // Those of the worker that is not busy are told at once.
    let first = wait(std::future::poll_fn(|context| {
        let ready = sends.iter_mut().enumerate().find_map(|(at, send)| match send.as_mut().poll(context) {
            Poll::Ready(count) => Some((at, count)),
            Poll::Pending => None,
        });
        ready.map_or(Poll::Pending, Poll::Ready)
    }));
    assert_eq!(first.1, 1);
    assert_eq!(read_srmp(&mut peers[first.0].0).2, b"you");
    drop(stop);
}

#[test]
fn sessions_are_closed_by_predicate_after_what_was_sent_to_them() {
    let server = teams(2);
    let mut stays = join(&server, 0).0;
    let mut goes = join(&server, 1).0;
    drop(server.sessions().broadcast_to(|session| in_team(session, 1), vec![1; 60_000]));
    assert_eq!(wait(server.sessions().close_where(|session| in_team(session, 1)).done()), 1);
    assert_eq!(read_to_end(&mut goes).len(), 4 + 60_000);
    stays.write_all(&srmp(1, 2, &[5])).unwrap();
    read_srmp(&mut stays);
    assert_eq!(wait(server.sessions().broadcast(&b"x"[..]).done()), 1);
}

#[test]
fn data_of_another_type_is_none() {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let server = local()
        .handler(move || {
            let sender = sender.lock().unwrap().clone();
            move |session: &Session, _: Frame<'_>| {
                let none = session.with_data(|_: &mut u32| ());
                session.set_data(1_u32);
                let other = session.with_data(|_: &mut u64| ());
                session.with_data(|number: &mut u32| *number += 1);
                sender.send((none, other, session.with_data(|number: &mut u32| *number))).unwrap();
            }
        })
        .start()
        .unwrap();
    raw(&server).write_all(b"x").unwrap();
    assert_eq!(events.next(), (None, None, Some(2)));
}

/// Passes each frame on to all sessions but its own.
fn chat(workers: usize) -> ServerHandle {
    let server = NetServer::bind("tcp://127.0.0.1:0").codec(StandardCodec::default).workers(workers);
    let everybody: Sessions = server.sessions();
    assert_eq!(wait(everybody.broadcast(&b"too early"[..]).done()), 0);
    server
        .handler(move || {
            let everybody = everybody.clone();
            move |session: &Session, frame: Frame<'_>| {
                let from = session.id();
                drop(everybody.broadcast_to(move |session| session.id() != from, frame.to_bytes()));
                session.reply(&frame, b"").unwrap();
            }
        })
        .start()
        .unwrap()
}

#[test]
fn a_handler_can_send_to_other_sessions() {
    for workers in [1, 2] {
        let server = chat(workers);
        let mut peers: Vec<_> = (0..10).map(|_| raw(&server)).collect();
        for peer in &mut peers {
            // Answered: its session stands.
            peer.write_all(&srmp(1, 1, b"hello")).unwrap();
            while read_srmp(peer).0 != 0x81 {}
        }
        peers[0].write_all(&srmp(1, 2, b"news")).unwrap();
        for peer in &mut peers[1..] {
            while read_srmp(peer).2 != b"news" {}
        }
        let sessions = server.sessions().clone();
        drop(server);
        assert_eq!(wait(sessions.broadcast(&b"too late"[..]).done()), 0);
    }
}
