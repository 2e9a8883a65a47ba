//! Graceful ends: what is under way is finished, what cannot be is cut and reported.

use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use corewire::runtime::ConnectionOptions;
use corewire::{Frame, Handler, NetServer, Placement, ServerHandle, Session, StandardCodec, sleep};

use crate::common::*;

/// Sends this many bytes for each frame, and says when it has.
struct Generous {
    bytes: usize,
    sent: Sender<u64>,
}

impl Handler for Generous {
    fn on_frame(&mut self, session: &Session, _: Frame<'_>) {
        session.send(&vec![7; self.bytes]).unwrap();
        self.sent.send(session.id()).unwrap();
    }
}

fn generous(bytes: usize, options: ConnectionOptions) -> (ServerHandle, Events<u64>) {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let server = local()
        .connection_options(options)
        .handler(move || Generous { bytes, sent: sender.lock().unwrap().clone() })
        .start()
        .unwrap();
    (server, events)
}

#[test]
fn a_server_without_sessions_stops_at_once() {
    let began = Instant::now();
    let report = standard_echo().shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut, report.unsent_bytes), (0, 0, 0, 0));
    assert_eq!(report.to_string(), "0 sessions: 0 finished, 0 cut");
    assert!(began.elapsed() < PATIENCE / 2);
}

#[test]
fn what_is_queued_is_sent_before_the_end() {
    const BYTES: usize = 20 << 20;
    let (server, sent) = generous(BYTES, ConnectionOptions::default());
    let mut peer = raw(&server);
    peer.write_all(b"x").unwrap();
    sent.next();
    let reader = std::thread::spawn(move || read_to_end(&mut peer).len());
    let report = server.shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut, report.unsent_bytes), (1, 1, 0, 0));
    assert_eq!(reader.join().unwrap(), BYTES);
}

#[test]
fn a_peer_that_never_reads_is_cut_at_the_deadline_and_its_bytes_are_counted() {
    const BYTES: usize = 20 << 20;
    let (server, sent) = generous(BYTES, ConnectionOptions::default());
    let mut stuck = raw(&server);
    stuck.write_all(b"x").unwrap();
    let fine = raw(&server);
    sent.next();
    wait_for_sessions(&server, 2);
    let began = Instant::now();
    // Time enough for the other one, which has nothing to do.
    let report = server.shutdown(Duration::from_secs(2));
    assert!(began.elapsed() < PATIENCE / 2);
    assert_eq!((report.sessions, report.finished, report.cut), (2, 1, 1));
    // Neither more than was sent, nor less than what the kernel's buffers cannot hold.
    assert!((1 << 20..=BYTES).contains(&report.unsent_bytes), "{report}");
    let received = read_to_end(&mut stuck).len();
    assert!(received + report.unsent_bytes <= BYTES, "{received} and {report}");
    assert_eq!(
        report.to_string(),
        format!("2 sessions: 1 finished, 1 cut with {} bytes unsent", report.unsent_bytes)
    );
    drop(fine);
}

#[test]
fn a_peer_that_is_cut_by_the_close_timeout_before_the_deadline_is_reported_as_cut() {
    let mut options = ConnectionOptions::default();
    options.close_timeout = Duration::from_millis(50);
    let (server, sent) = generous(20 << 20, options);
    let mut stuck = raw(&server);
    stuck.write_all(b"x").unwrap();
    sent.next();
    let report = server.shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut), (1, 0, 1));
    assert!(report.unsent_bytes >= 1 << 20, "{report}");
}

/// A connection is in the backlog first; its session begins a moment later.
fn wait_for_sessions(server: &ServerHandle, count: usize) {
    let until = Instant::now() + PATIENCE;
    while server.stats().sessions != count {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
}

#[test]
fn tasks_of_sessions_finish_what_they_do() {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .serve({
            let sender = std::sync::Arc::new(sender);
            move |mut session| {
                let began = sender.lock().unwrap().clone();
                async move {
                    while let Some(message) = session.next().await {
                        began.send(()).unwrap();
                        // Work that takes a while.
                        sleep(Duration::from_millis(50)).await;
                        session.reply(&message, b"done").await.unwrap();
                    }
                    session.send(b"goodbye").await.unwrap();
                }
            }
        })
        .workers(2)
        .start()
        .unwrap();
    let mut peers: Vec<_> = (0..3).map(|_| raw(&server)).collect();
    for peer in &mut peers {
        peer.write_all(&srmp(1, 1, b"work")).unwrap();
    }
    events.take(3);
    let report = server.shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut), (3, 3, 0));
    for peer in &mut peers {
        assert_eq!(read_srmp(peer), (0x81, 1, b"done".to_vec()));
        assert_eq!(read_srmp(peer).2, b"goodbye");
        assert_eq!(read_to_end(peer), b"");
    }
}

#[test]
fn a_task_that_never_ends_is_cut_at_the_deadline() {
    let server = local().serve(|session| async move {
        std::future::pending::<()>().await;
        drop(session);
    });
    let server = server.start().unwrap();
    let mut peer = raw(&server);
    wait_for_sessions(&server, 1);
    let report = server.shutdown(Duration::from_millis(50));
    assert_eq!((report.sessions, report.finished, report.cut), (1, 0, 1));
    assert_eq!(read_to_end(&mut peer), b"");
}

#[test]
fn connections_that_come_while_it_stops_do_not_hold_it_up() {
    for _ in 0..20 {
        let server = NetServer::bind("tcp://127.0.0.1:0")
            .workers(2)
            .placement(Placement::RoundRobin)
            .handler(echo)
            .start()
            .unwrap();
        let address = address_of(&server);
        let (ready, go) = std::sync::mpsc::channel();
        let knocking = std::thread::spawn(move || {
            let mut peers = Vec::new();
            while let Ok(peer) = std::net::TcpStream::connect(address) {
                peers.push(peer);
                let _ = ready.send(());
            }
        });
        for _ in 0..10 {
            go.recv().unwrap();
        }
        let began = Instant::now();
        let report = server.shutdown(PATIENCE);
        assert_eq!(report.cut, 0, "{report} after {:?}", began.elapsed());
        knocking.join().unwrap();
    }
}

#[test]
fn a_server_stops_on_a_runtime_that_goes_on() {
    let runtime = corewire::runtime::Runtime::builder().workers(2).build().unwrap();
    for _ in 0..3 {
        let server = NetServer::bind("tcp://127.0.0.1:0").handler(echo).start_on(runtime.handle()).unwrap();
        let mut peer = raw(&server);
        wait_for_sessions(&server, 1);
        assert_eq!(server.shutdown(PATIENCE).finished, 1);
        assert_eq!(read_to_end(&mut peer), b"");
    }
}

#[test]
fn the_last_reply_arrives_though_the_peer_still_sends() {
    // Closes after the first frame, when more of the peer's bytes have come or are coming.
    let server = standard(|| {
        |session: &Session, frame: Frame<'_>| {
            session.reply(&frame, &vec![7; 3 << 20]).unwrap();
            session.close();
        }
    });
    for _ in 0..20 {
        let mut peer = raw(&server);
        let _ = peer.write_all(&srmp(1, 1, &[1; 60_000]).repeat(40));
        assert_eq!(read_to_end(&mut peer).len(), 8 + (3 << 20));
    }
}

#[test]
fn what_comes_first_is_done_while_connections_are_still_accepted() {
    let mut server = standard_echo();
    let address = server.local_addrs()[0];
    let (told, on_told) = std::sync::mpsc::sync_channel(1);
    server.on_shutdown(move |deadline| {
        let accepted = std::net::TcpStream::connect(address).is_ok();
        told.send((deadline, accepted)).unwrap();
    });
    server.shutdown(PATIENCE);
    assert_eq!(on_told.recv().unwrap(), (PATIENCE, true));

    let (told, on_told) = std::sync::mpsc::sync_channel::<()>(1);
    let mut dropped = standard_echo();
    dropped.on_shutdown(move |_| told.send(()).unwrap());
    drop(dropped);
    assert!(on_told.recv().is_err(), "it is let go of, not called");
}
