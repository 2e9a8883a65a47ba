//! Sessions served by tasks.

use std::cell::Cell;
use std::io::{ErrorKind, Write};
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use corewire::runtime::Runtime;
use corewire::server::SessionStream;
use corewire::{CallError, FrameKind, FrameSendError, NetServer, ServerHandle, StandardCodec};

use crate::common::*;

/// A server of SRMP frames whose sessions are served by this.
fn served<F, Fut>(serve: F) -> ServerHandle
where
    F: Fn(SessionStream) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = ()> + 'static,
{
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .serve(serve)
        .workers(1)
        .start()
        .unwrap()
}

#[test]
fn a_task_answers_in_order() {
    let server = served(|mut session| async move {
        while let Some(message) = session.next().await {
            session.reply(&message, &message.payload).await.unwrap();
        }
    });
    let mut peer = raw(&server);
    let frames: Vec<_> = (0..200).map(|at| srmp(1, at, &[at; 50])).collect();
    peer.write_all(&frames.concat()).unwrap();
    for at in 0..200 {
        assert_eq!(read_srmp(&mut peer), (0x81, at, vec![at; 50]));
    }
    // The peer finishes: the task gets None, ends, and with it the session.
    peer.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(read_to_end(&mut peer), b"");
}

#[test]
fn dropping_next_loses_no_message() {
    let server = served(|mut session| async move {
        let mut dropped = 0_u32;
        loop {
            // Each future is dropped while it waits, many times, before one is awaited to its end.
            for _ in 0..3 {
                let mut next = Box::pin(session.next());
                let polled = std::future::poll_fn(|context| Poll::Ready(next.as_mut().poll(context))).await;
                drop(next);
                match polled {
                    Poll::Pending => dropped += 1,
                    Poll::Ready(Some(message)) => session.reply(&message, &message.payload).await.unwrap(),
                    Poll::Ready(None) => return,
                }
            }
            let Some(message) = session.next().await else { break };
            session.reply(&message, &message.payload).await.unwrap();
        }
        assert!(dropped > 0);
    });
    let mut peer = raw(&server);
    for round in 0..100_u8 {
        let burst: Vec<u8> = (0..3).flat_map(|at| srmp(1, round, &[at; 9])).collect();
        peer.write_all(&burst).unwrap();
        for at in 0..3 {
            assert_eq!(read_srmp(&mut peer), (0x81, round, vec![at; 9]));
        }
    }
}

/// Fills the way to a task that does not read; gives what was sent, when no more could be.
fn fill(server: &ServerHandle, frame: &[u8], most: usize) -> (std::net::TcpStream, usize) {
    let mut peer = raw(server);
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let mut written = 0;
    while written < most {
        match peer.write(&frame[written % frame.len()..]) {
            Ok(len) => written += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return (peer, written),
            Err(error) => panic!("{error}"),
        }
    }
    panic!("the peer was not held back");
}

#[test]
fn a_task_that_does_not_read_holds_its_peer_back_and_loses_nothing() {
    // By bytes, and by messages.
    for payload in [vec![3; 60_000], vec![3; 100]] {
        let (go, may_go) = channel::<()>();
        let (may_go, read) = (Arc::new(Mutex::new(Some(may_go))), Arc::new(AtomicUsize::new(0)));
        let (len, count) = (payload.len(), read.clone());
        let server = served(move |mut session| {
            let (may_go, count) = (may_go.lock().unwrap().take().unwrap(), count.clone());
            async move {
                corewire::runtime::spawn_blocking(move || may_go.recv()).await.unwrap().unwrap();
                while let Some(message) = session.next().await {
                    assert!(message.payload.len() == len && message.payload.iter().all(|byte| *byte == 3));
                    count.fetch_add(1, Ordering::SeqCst);
                }
                session.send(b"all read").await.unwrap();
            }
        });
        let frame = srmp(0x41, 1, &payload);
        let (mut peer, written) = fill(&server, &frame, 256 << 20);
        go.send(()).unwrap();
        // The rest of the frame that was cut by the full pipe.
        peer.set_write_timeout(Some(PATIENCE)).unwrap();
        let rest = (frame.len() - written % frame.len()) % frame.len();
        peer.write_all(&frame[frame.len() - rest..]).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(read_srmp(&mut peer).2, b"all read");
        assert_eq!(read.load(Ordering::SeqCst), (written + rest) / frame.len());
    }
}

#[test]
fn a_task_that_sends_waits_for_a_peer_that_does_not_read() {
    const COUNT: u8 = 200;
    let (sender, events) = events::<u8>();
    let sender = Mutex::new(sender);
    let sender = Arc::new(sender);
    let server = served(move |session| {
        let sender: Sender<u8> = sender.lock().unwrap().clone();
        async move {
            for at in 0..COUNT {
                session.send(&vec![at; 60_000]).await.unwrap();
                assert!(session.session().queued() <= 256 * 1024 + 60_004, "over the high-water mark by one");
                sender.send(at).unwrap();
            }
        }
    });
    let mut peer = raw(&server);
    for at in 0..COUNT {
        assert_eq!(read_srmp(&mut peer).2, vec![at; 60_000]);
    }
    assert_eq!(events.take(COUNT.into()), (0..COUNT).collect::<Vec<_>>());
}

#[test]
fn a_task_can_answer_with_an_error() {
    let server = served(|mut session| async move {
        while let Some(message) = session.next().await {
            session.reply_error(&message, b"no").await.unwrap();
        }
    });
    let client = connect(&server);
    assert_eq!(wait(client.request(b"please")), Err(CallError::Remote((&b"no"[..]).into())));
    let mut peer = raw(&server);
    peer.write_all(&srmp(1, 7, b"please")).unwrap();
    expect(&mut peer, &srmp(0xc1, 7, b"no"));
}

#[test]
fn a_task_that_panics_closes_its_session_and_no_other() {
    let server = served(|mut session| async move {
        while let Some(message) = session.next().await {
            assert_ne!(&message.payload[..], b"panic", "on purpose");
            session.reply(&message, &message.payload).await.unwrap();
        }
    });
    let (mut good, mut bad) = (raw(&server), raw(&server));
    bad.write_all(&srmp(1, 1, b"panic")).unwrap();
    assert_eq!(read_to_end(&mut bad), b"");
    good.write_all(&srmp(1, 1, b"fine")).unwrap();
    expect(&mut good, &srmp(0x81, 1, b"fine"));
    assert_serves(&server);
    assert_eq!(server.stats().workers.panics, 1);
}

#[test]
fn a_task_that_ends_closes_its_session_after_what_it_sent() {
    let server = served(|session| async move {
        session.send(&vec![1; 60_000]).await.unwrap();
    });
    let mut peer = raw(&server);
    assert_eq!(read_to_end(&mut peer).len(), 60_004);
}

#[test]
fn a_task_hears_of_a_reset() {
    let (sender, events) = events();
    let sender = Arc::new(Mutex::new(sender));
    let server = served(move |mut session| {
        let sender = sender.lock().unwrap().clone();
        async move {
            let first = session.next().await.map(|message| message.payload.len());
            sender.send(first).unwrap();
            let second = session.next().await.map(|message| message.payload.len());
            sender.send(second).unwrap();
            assert!(session.send(b"too late").await.is_err());
        }
    });
    let mut peer = raw(&server);
    peer.write_all(&srmp(0x41, 1, b"one")).unwrap();
    assert_eq!(events.next(), Some(3));
    reset(peer);
    assert_eq!(events.next(), None);
}

#[test]
fn a_reply_can_be_sent_from_another_task_of_the_worker() {
    let server = served(|mut session| async move {
        let mut tasks = Vec::new();
        let next = Rc::new(Cell::new(2));
        while let Some(message) = session.next().await {
            let (to, next) = (session.session().clone(), next.clone());
            tasks.push(corewire::spawn_local(async move {
                // The earlier requests are answered later.
                while next.get() != message.payload[0] {
                    corewire::sleep(Duration::from_millis(1)).await;
                }
                to.send_frame(message.head.reply(), &message.payload).unwrap();
                next.set(next.get().wrapping_sub(1));
            }));
            if tasks.len() == 3 {
                break;
            }
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let mut peer = raw(&server);
    peer.write_all(&[srmp(1, 0, &[0]), srmp(1, 1, &[1]), srmp(1, 2, &[2])].concat()).unwrap();
    let order: Vec<u8> = (0..3).map(|_| read_srmp(&mut peer).1).collect();
    assert_eq!(order, [2, 1, 0]);
}

#[test]
fn a_task_that_is_held_back_receives_nothing_more_once_the_server_shuts_down() {
    let (began, events) = events();
    let began = Arc::new(Mutex::new(began));
    let (go, may_go) = channel::<()>();
    let may_go = Arc::new(Mutex::new(Some(may_go)));
    let server = served(move |mut session| {
        let (began, may_go) = (began.clone(), may_go.lock().unwrap().take());
        async move {
            let Some(may_go) = may_go else { return };
            began.lock().unwrap().send(()).unwrap();
            corewire::runtime::spawn_blocking(move || may_go.recv()).await.unwrap().unwrap();
            // Slower than the peer: the inbox is never empty while more is received.
            while session.next().await.is_some() {
                corewire::sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let (mut peer, written) = fill(&server, &srmp(0x41, 1, &[3; 100]), 256 << 20);
    events.next();
    peer.set_write_timeout(Some(PATIENCE)).unwrap();
    let busy = std::thread::spawn(move || {
        let frame = srmp(0x41, 1, &[3; 100]);
        let rest = (frame.len() - written % frame.len()) % frame.len();
        peer.write_all(&frame[frame.len() - rest..]).ok()?;
        while peer.write_all(&frame).is_ok() {}
        Some(())
    });
    let address = address_of(&server);
    let stopping = std::thread::spawn(move || server.shutdown(Duration::from_secs(20)));
    // Once it no longer accepts, its sessions have been told.
    while std::net::TcpStream::connect(address).is_ok() {}
    go.send(()).unwrap();
    let report = stopping.join().unwrap();
    assert_eq!((report.finished, report.cut), (report.sessions, 0));
    busy.join().unwrap();
}

#[test]
fn a_task_is_refused_a_reply_to_what_expects_none() {
    let server = served(|mut session| async move {
        let message = session.next().await.unwrap();
        for refused in [session.reply(&message, b"no").await, session.reply_error(&message, b"no").await] {
            assert_eq!(refused, Err(FrameSendError::NoReplyExpected(FrameKind::OneWay)));
        }
        session.send(b"done").await.unwrap();
    });
    let mut peer = raw(&server);
    peer.write_all(&srmp(0x41, 0, b"one way")).unwrap();
    assert_eq!(read_srmp(&mut peer), (0x41, 0, b"done".to_vec()));
}

/// Waits until a burst has arrived, then takes all of it. Gives the most that was taken between two turns of another task
/// of the worker.
async fn most_in_a_turn<T>(count: usize, mut next: impl AsyncFnMut() -> Option<T>) -> usize {
    for _ in 0..20 {
        corewire::sleep(Duration::from_millis(1)).await;
    }
    let (taken, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let other = corewire::spawn_local({
        let (taken, most) = (taken.clone(), most.clone());
        async move {
            loop {
                most.set(most.get().max(taken.take()));
                corewire::runtime::yield_now().await;
            }
        }
    });
    for _ in 0..count {
        assert!(next().await.is_some());
        taken.set(taken.get() + 1);
    }
    other.abort();
    most.get().max(taken.get())
}

/// What a task is given in one poll.
const TASK_QUOTA: usize = 128;

#[test]
fn a_task_that_has_much_to_read_lets_others_have_their_turn() {
    let (sender, events) = events();
    let sender = Arc::new(Mutex::new(sender));
    let server = served(move |mut session| {
        let sender = sender.lock().unwrap().clone();
        async move { sender.send(most_in_a_turn(1000, async || session.next().await).await).unwrap() }
    });
    let mut peer = raw(&server);
    peer.write_all(&srmp(0x41, 0, b"one way").repeat(1000)).unwrap();
    let most = events.next();
    assert!(most <= TASK_QUOTA, "{most} messages were taken in one turn");
}

#[test]
fn a_task_that_takes_many_messages_of_a_client_lets_others_have_their_turn() {
    let server = RawServer::new();
    let client = client_of(&server.uri).inbox(2000);
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let most = runtime.handle().spawn_on(0, || async move {
        let client = client.connect().await.unwrap();
        most_in_a_turn(1000, async || client.recv().await).await
    });
    server.accept().write_all(&srmp(0x41, 0, b"one way").repeat(1000)).unwrap();
    let most = most.unwrap().join().unwrap();
    assert!(most <= TASK_QUOTA, "{most} messages were taken in one turn");
}
