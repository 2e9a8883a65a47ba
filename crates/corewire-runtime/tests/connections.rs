//! The life of a connection in push style: what is sent, what is called, how it ends.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::{Cell, RefCell};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream as StdStream};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{
    Record, Recorder, off_worker, options, pattern, recorded, run, silent_address, sockets, some_ticks,
};
use corewire_runtime::driver::Socket;
use corewire_runtime::{CloseReason, Connection, SendError, sleep, yield_now};
use corewire_testkit::rng::Rng;

/// Fills the socket and the queue until this many bytes wait.
fn back_up(connection: &Connection, queued: usize) -> usize {
    let block = pattern(100_000);
    let mut sent = 0;
    while connection.queued() < queued {
        connection.send(&block).unwrap();
        sent += block.len();
    }
    sent
}

#[test]
fn sends_of_every_kind_arrive_in_order_at_a_slow_reader() {
    run(async {
        for seed in 0..4 {
            let (connection, record, mut peer) = recorded(options(|_| {}));
            connection.with_socket(|socket| socket.set_send_buffer_size(16 * 1024).unwrap());
            let sent = Rc::new(pattern(1 << 20));
            let mut read_sizes = Rng::new(seed);
            let reader = corewire_runtime::spawn_local(off_worker(move || {
                let (mut got, mut buffer) = (Vec::new(), vec![0; 64 * 1024]);
                loop {
                    match peer.read(&mut buffer[..1 + read_sizes.index(64 * 1024)]).unwrap() {
                        0 => return got,
                        read => got.extend_from_slice(&buffer[..read]),
                    }
                    if read_sizes.index(40) == 0 {
                        std::thread::yield_now();
                    }
                }
            }));
            let (mut rng, mut at) = (Rng::new(100 + seed), 0);
            while at < sent.len() {
                let size = match rng.index(6) {
                    0 => rng.index(200_000),
                    1 => 16 * 1024,
                    2 => rng.index(20_000),
                    _ => rng.index(300),
                };
                let piece = &sent[at..(at + size).min(sent.len())];
                let cut = rng.index(piece.len() + 1);
                match rng.index(4) {
                    0 => connection.send_bytes(Bytes::copy_from_slice(piece)).unwrap(),
                    1 => connection.send_parts([&piece[..cut], &[], &piece[cut..]]).unwrap(),
                    2 => connection.send_parts([&[], &piece[..cut], &piece[cut..]]).unwrap(),
                    _ => connection.send(piece).unwrap(),
                }
                at += piece.len();
                if rng.index(20) == 0 {
                    yield_now().await;
                }
            }
            connection.close();
            assert!(reader.await.unwrap() == *sent, "seed {seed}");
            assert_eq!(record.wait_for("closed").await, "closed: closed by this side");
        }
    });
}

#[test]
fn a_full_queue_refuses_whole_messages_and_keeps_what_it_took() {
    run(async {
        let (connection, _record, mut peer) = recorded(options(|options| options.queue_limit = 300_000));
        let mut accepted = Vec::new();
        let error = loop {
            let message = pattern(50_000 + accepted.len() % 7);
            match connection.send(&message) {
                Ok(()) => accepted.extend_from_slice(&message),
                Err(error) => break error,
            }
        };
        let queued = connection.queued();
        assert_eq!(error, SendError::QueueFull { queued, limit: 300_000 });
        assert!((300_000..350_007).contains(&queued));
        assert_eq!(connection.send_bytes(Bytes::from_static(b"x")), Err(error.clone()));
        assert_eq!(connection.send_parts([b"x", b"", b""]), Err(error));
        let (expected, len) = (accepted.clone(), accepted.len());
        let mut half = peer.try_clone().unwrap();
        off_worker(move || {
            let mut got = vec![0; len];
            half.read_exact(&mut got).unwrap();
            assert!(got == expected);
        })
        .await;
        connection.flushed().await.unwrap();
        connection.send(b"room again").unwrap();
        connection.close();
        let rest = off_worker(move || {
            let mut rest = Vec::new();
            peer.read_to_end(&mut rest).unwrap();
            rest
        })
        .await;
        assert_eq!(rest, b"room again");
    });
}

#[test]
fn a_small_limit_holds_within_a_tick_too() {
    run(async {
        let (connection, _record, _peer) = recorded(options(|options| options.queue_limit = 1000));
        // Nothing leaves before the end of the tick: the queue only grows.
        connection.send(&[1; 600]).unwrap();
        connection.send(&[2; 600]).unwrap();
        assert_eq!(connection.send(&[3; 10]), Err(SendError::QueueFull { queued: 1200, limit: 1000 }));
        assert_eq!(connection.queued(), 1200);
    });
}

#[test]
fn waiting_senders_wake_at_the_low_water_mark() {
    run(async {
        let marks = options(|options| (options.high_water, options.low_water) = (400_000, 100_000));
        let (connection, record, mut peer) = recorded(marks);
        let ready = || connection.send_ready();
        assert_eq!(common::poll_once(ready()).await, Some(Ok(())), "an empty queue has room");
        back_up(&connection, 400_000);
        yield_now().await;
        assert_eq!(common::poll_once(ready()).await, None);
        let woken_at = Rc::new(Cell::new(usize::MAX));
        let waiter = corewire_runtime::spawn_local({
            let (connection, woken_at) = (connection.clone(), woken_at.clone());
            async move {
                connection.send_ready().await.unwrap();
                woken_at.set(connection.queued());
            }
        });
        yield_now().await;
        let mut buffer = vec![0; 10_000];
        while !waiter.is_finished() {
            if connection.queued() > 100_000 {
                assert_eq!(woken_at.get(), usize::MAX, "woken above the low-water mark");
                assert_eq!(record.count("drained"), 0);
            }
            buffer = {
                let mut half = peer.try_clone().unwrap();
                off_worker(move || half.read_exact(&mut buffer).map(|()| buffer)).await.unwrap()
            };
        }
        assert!(woken_at.get() <= 100_000);
        some_ticks(2).await;
        assert_eq!(record.count("drained"), 1);
        connection.abort(CloseReason::Local);
        drop(peer.read(&mut buffer));
    });
}

#[test]
fn a_peer_that_never_reads_is_held_back_and_goes_on_when_it_reads() {
    run(async {
        // An echo of a connection whose peer sends and sends.
        let record = Record::default();
        let (socket, peer) = sockets();
        let most = Rc::new(Cell::new(0));
        struct Echo(Record, Rc<Cell<usize>>);
        impl corewire_runtime::Protocol for Echo {
            fn on_received(&mut self, connection: &Connection, data: Bytes) {
                connection.send(&data).unwrap();
                self.1.set(self.1.get().max(connection.queued()));
            }
            fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
                self.0.note(format!("closed: {reason}"));
            }
        }
        let echo = Echo(record.clone(), most.clone());
        let _connection = Connection::open(socket, options(|_| {}), echo).unwrap();
        let sent = pattern(40 << 20);
        let total = sent.len();
        let writer = peer.try_clone().unwrap();
        let (stuck, stuck_at) = std::sync::mpsc::channel();
        let writing = corewire_runtime::spawn_local(off_worker(move || {
            writer.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            let mut at = 0;
            while let Ok(written) = (&writer).write(&sent[at..]) {
                at += written;
            }
            stuck.send(at).unwrap();
            writer.set_write_timeout(Some(common::PATIENCE)).unwrap();
            (&writer).write_all(&sent[at..]).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        }));
        let (stuck_at, echoed) = off_worker(move || {
            let stuck_at = stuck_at.recv().unwrap();
            let mut echoed = Vec::new();
            (&peer).read_to_end(&mut echoed).unwrap();
            (stuck_at, echoed)
        })
        .await;
        assert!(stuck_at < total, "the peer was never held back");
        assert!(echoed == pattern(total));
        writing.await.unwrap();
        // The mark, and what had been received when it was passed.
        assert!(most.get() <= 4 << 20, "{} bytes were queued", most.get());
        assert_eq!(record.wait_for("closed").await, "closed: closed by the peer");
    });
}

#[test]
fn a_graceful_close_sends_all_that_is_queued_first() {
    run(async {
        let (connection, record, mut peer) = recorded(options(|_| {}));
        let sent = back_up(&connection, 2 << 20);
        connection.close();
        assert!(!connection.is_open());
        assert_eq!(connection.send(b"late"), Err(SendError::Closed));
        assert_eq!(connection.send_bytes(Bytes::from_static(b"late")), Err(SendError::Closed));
        assert_eq!(record.count("closed"), 0);
        let got = off_worker(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            got
        })
        .await;
        assert_eq!(got.len(), sent);
        assert!(got.chunks(100_000).all(|chunk| chunk == pattern(100_000)));
        assert_eq!(record.wait_for("closed").await, "closed: closed by this side");
        some_ticks(2).await;
        assert_eq!(record.count("closed"), 1);
    });
}

#[test]
fn a_close_that_the_peer_does_not_let_end_is_cut_and_says_what_was_lost() {
    run(async {
        let limit = Duration::from_millis(60);
        let (connection, record, mut peer) = recorded(options(|options| options.close_timeout = limit));
        let sent = back_up(&connection, 1 << 20);
        let started = Instant::now();
        connection.close();
        let queued = connection.queued();
        let reason = record.wait_for("closed").await;
        assert!(started.elapsed() >= limit);
        let expected = format!("closed: closed by this side; the peer did not take the last {queued} bytes");
        assert!(reason.starts_with(&expected), "{reason}");
        let got = off_worker(move || {
            let mut got = Vec::new();
            drop(peer.read_to_end(&mut got));
            got.len()
        })
        .await;
        assert!(got <= sent - queued, "what was cut came after all");
    });
}

#[test]
fn a_close_is_not_cut_while_the_peer_takes_bytes() {
    run(async {
        let limit = Duration::from_millis(600);
        for _ in 0..20 {
            let (connection, record, mut peer) = recorded(options(|options| options.close_timeout = limit));
            let sent = back_up(&connection, 8 << 20);
            connection.close();
            let began = Instant::now();
            // A reader that takes several times the close timeout, and never pauses for as long.
            let (got, widest) = off_worker(move || {
                let (mut got, mut last, mut widest) = (0, began, Duration::ZERO);
                let mut buffer = vec![0; 256 * 1024];
                while let Ok(read @ 1..) = peer.read(&mut buffer) {
                    got += read;
                    if began.elapsed() < 4 * limit {
                        std::thread::sleep(limit / 10);
                    }
                    widest = widest.max(last.elapsed());
                    last = Instant::now();
                }
                (got, widest)
            })
            .await;
            assert!(began.elapsed() >= 2 * limit, "the reader was faster than the timeout: nothing is shown");
            let reason = record.wait_for("closed").await;
            if got == sent {
                return assert_eq!(reason, "closed: closed by this side");
            }
            // On a machine that stops for so long it did pause: once more.
            assert!(widest > limit / 2, "cut, though it took bytes every {widest:?} at least: {reason}");
        }
        panic!("this machine is too busy for this test");
    });
}

#[test]
fn what_is_queued_at_the_end_of_a_worker_is_sent() {
    let (begin, begun) = std::sync::mpsc::channel();
    let (hand_over, peer) = std::sync::mpsc::channel::<StdStream>();
    let reader = std::thread::spawn(move || {
        let mut peer = peer.recv().unwrap();
        begun.recv().unwrap();
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got.len()
    });
    let sent = corewire_runtime::run(async move {
        let (socket, peer) = sockets();
        hand_over.send(peer).unwrap();
        let record = Record::default();
        let connection = Connection::open(socket, options(|_| {}), Recorder::new(&record)).unwrap();
        let sent = back_up(&connection, 500_000);
        begin.send(()).unwrap();
        sent
    });
    assert_eq!(reader.join().unwrap(), sent.unwrap());
}

#[test]
fn an_abort_drops_what_is_queued() {
    run(async {
        let (connection, record, mut peer) = recorded(options(|_| {}));
        connection.send(b"never seen").unwrap();
        connection.abort(CloseReason::Protocol("on purpose".to_owned()));
        assert_eq!(connection.send(b"x"), Err(SendError::Closed));
        assert_eq!(record.wait_for("closed").await, "closed: the peer broke the protocol: on purpose");
        let got = off_worker(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            got
        })
        .await;
        assert_eq!(got, b"");
    });
}

const IDLE: Duration = Duration::from_millis(80);

/// Acts for more than twice the idle timeout, in small steps, and gives the connection back open.
async fn kept_busy(mut act: impl FnMut(&Connection, &mut StdStream)) -> (Connection, Record, StdStream) {
    for _ in 0..20 {
        let (connection, record, mut peer) = recorded(options(|options| options.idle_timeout = Some(IDLE)));
        let (mut last, mut widest) = (Instant::now(), Duration::ZERO);
        for _ in 0..25 {
            act(&connection, &mut peer);
            sleep(Duration::from_millis(8)).await;
            widest = widest.max(last.elapsed());
            last = Instant::now();
            if !connection.is_open() {
                break;
            }
        }
        if connection.is_open() {
            return (connection, record, peer);
        }
        // On a machine that is too busy to act in time it was idle indeed: once more.
        assert!(widest > IDLE / 2, "closed as idle, though it acted every {widest:?} at least");
    }
    panic!("this machine is too busy for this test");
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    run(async {
        let (quiet, quiet_record, _quiet_peer) =
            recorded(options(|options| options.idle_timeout = Some(IDLE)));
        let started = Instant::now();
        let _sending = kept_busy(|busy, _| busy.send(b"y").unwrap()).await;
        assert_eq!(quiet_record.wait_for("closed").await, "closed: idle for 80ms");
        assert!(!quiet.is_open());
        assert!(started.elapsed() >= IDLE);
        let (receiving, record, _peer) = kept_busy(|_, peer| peer.write_all(b"x").unwrap()).await;
        assert!(receiving.is_open());
        assert_eq!(record.wait_for("closed").await, "closed: idle for 80ms");
    });
}

#[test]
fn large_sends_count_as_activity() {
    run(async {
        let mut message = pattern(32 * 1024);
        kept_busy(move |busy, peer| {
            busy.send(&message).unwrap();
            // Read at once, on this thread: loopback holds it all.
            peer.read_exact(&mut message).unwrap();
        })
        .await;
    });
}

#[test]
fn an_idle_timeout_does_not_cut_a_close_short() {
    run(async {
        let (connection, record, _peer) = recorded(options(|options| {
            options.idle_timeout = Some(Duration::from_millis(20));
            options.close_timeout = Duration::from_millis(120);
        }));
        back_up(&connection, 1 << 20);
        let started = Instant::now();
        connection.close();
        let reason = record.wait_for("closed").await;
        assert!(reason.contains("did not take the last"), "{reason}");
        assert!(started.elapsed() >= Duration::from_millis(120));
    });
}

#[test]
fn shutting_down_the_sending_half_leaves_the_other_open() {
    run(async {
        let record = Record::default();
        let (socket, mut peer) = sockets();
        let connection = Connection::open(socket, options(|_| {}), Recorder::new(&record)).unwrap();
        let sent = back_up(&connection, 300_000);
        connection.shutdown_write();
        assert_eq!(connection.send(b"late"), Err(SendError::Closed));
        assert!(connection.is_open());
        let peer = off_worker(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            assert_eq!(got.len(), sent);
            peer.write_all(&pattern(200_000)).unwrap();
            peer
        })
        .await;
        record.wait_received(200_000).await;
        assert!(record.received() == pattern(200_000));
        drop(peer);
        assert_eq!(record.wait_for("closed").await, "closed: closed by the peer");
        assert_eq!(record.count("read closed"), 1);
    });
}

#[test]
fn every_end_is_told_once_with_its_reason() {
    run(async {
        let (_kept, record, peer) = recorded(options(|_| {}));
        drop(peer);
        assert_eq!(record.wait_for("closed").await, "closed: closed by the peer");
        let (_kept, other, peer) = recorded(options(|_| {}));
        Socket::from_fd(peer.into()).unwrap().set_reset_on_close().unwrap();
        let reason = other.wait_for("closed").await;
        assert!(reason.starts_with("closed: the connection is lost: Connection reset"), "{reason}");
        some_ticks(3).await;
        assert_eq!((record.count("closed"), other.count("closed")), (1, 1));
        assert_eq!(record.log()[0], "open");
        assert_eq!(record.log().last().unwrap(), "closed: closed by the peer");
    });
}

#[test]
fn a_close_that_a_reset_cuts_short_does_not_say_that_all_was_sent() {
    run(async {
        let (connection, record, peer) = recorded(options(|_| {}));
        back_up(&connection, 1 << 20);
        connection.close();
        yield_now().await;
        Socket::from_fd(peer.into()).unwrap().set_reset_on_close().unwrap();
        let reason = record.wait_for("closed").await;
        assert!(reason.starts_with("closed: the connection is lost"), "{reason}");
    });
}

#[test]
fn connections_that_live_at_the_end_are_told_of_the_shutdown() {
    let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    struct Last(std::sync::Arc<std::sync::Mutex<Vec<String>>>);
    impl corewire_runtime::Protocol for Last {
        fn on_received(&mut self, _: &Connection, _: Bytes) {}
        fn on_closed(&mut self, connection: &Connection, reason: &CloseReason) {
            // The handle is harmless even now.
            assert_eq!(connection.send(b"x"), Err(SendError::Closed));
            self.0.lock().unwrap().push(reason.to_string());
        }
    }
    let copy = log.clone();
    let peers = corewire_runtime::run(async move {
        let (idle, closing) = (sockets(), sockets());
        let _idle = Connection::open(idle.0, options(|_| {}), Last(copy.clone())).unwrap();
        let closing_connection = Connection::open(closing.0, options(|_| {}), Last(copy)).unwrap();
        back_up(&closing_connection, 1 << 20);
        closing_connection.close();
        (idle.1, closing.1)
    })
    .unwrap();
    assert_eq!(*log.lock().unwrap(), ["shut down", "shut down"], "a close that was cut says so");
    let mut buffer = [0; 1];
    assert!(matches!((&peers.0).read(&mut buffer), Ok(0) | Err(_)));
}

#[test]
fn a_timer_is_replaced_and_called_off() {
    run(async {
        let (connection, record, _peer) = recorded(options(|_| {}));
        let started = Instant::now();
        connection.set_timer(Some(Duration::from_millis(5)));
        connection.set_timer(Some(Duration::from_millis(40)));
        record.wait_for("timer").await;
        assert!(started.elapsed() >= Duration::from_millis(40), "the first one was not replaced");
        connection.set_timer(Some(Duration::from_millis(5)));
        connection.set_timer(None);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(record.count("timer"), 1);
        connection.set_timer(Some(Duration::from_millis(5)));
        connection.abort(CloseReason::Local);
        sleep(Duration::from_millis(20)).await;
        assert_eq!(record.count("timer"), 1, "a dead connection has no timer");
    });
}

#[test]
fn times_without_end_are_allowed() {
    run(async {
        let (connection, record, peer) = recorded(options(|options| {
            options.idle_timeout = Some(Duration::MAX);
            options.close_timeout = Duration::MAX;
        }));
        connection.set_timer(Some(Duration::MAX));
        back_up(&connection, 300_000);
        connection.close();
        yield_now().await;
        assert_eq!(record.count("closed"), 0);
        drop(peer);
        record.wait_for("closed").await;
    });
}

#[test]
fn a_handle_that_outlives_its_connection_is_harmless() {
    run(async {
        let (connection, record, peer) = recorded(options(|_| {}));
        drop(peer);
        record.wait_for("closed").await;
        // The slot is used again by another connection, which must not feel it.
        let (other, other_record, mut other_peer) = recorded(options(|_| {}));
        assert_eq!(connection.send(b"x"), Err(SendError::Closed));
        assert_eq!(connection.send(&pattern(100_000)), Err(SendError::Closed));
        assert_eq!(connection.queued(), 0);
        assert!(!connection.is_open());
        assert!(connection.with_socket(|_| ()).is_none());
        connection.pause_receive();
        connection.resume_receive();
        connection.shutdown_write();
        connection.set_timer(Some(Duration::ZERO));
        connection.close();
        connection.abort(CloseReason::Local);
        let flushed = connection.flushed().await;
        assert_eq!(flushed, Err(SendError::Closed));
        let ready = connection.send_ready().await;
        assert_eq!(ready, Err(SendError::Closed));
        some_ticks(3).await;
        other_peer.write_all(b"hello").unwrap();
        other_record.wait_received(5).await;
        assert!(other.is_open());
        assert_eq!((record.count("closed"), record.count("timer")), (1, 0));
    });
}

#[test]
fn a_connection_can_close_in_every_callback() {
    run(async {
        for callback in ["open", "received", "read closed", "timer", "drained", "closed"] {
            for abort in [false, true] {
                let record = Record::default();
                let (socket, peer) = sockets();
                let action = move |what: &str, connection: &Connection| {
                    if what == "open" {
                        connection.set_timer(Some(Duration::ZERO));
                        if callback == "drained" {
                            // Over the mark, so that draining is told.
                            connection.send(&pattern(10_000)).unwrap();
                        }
                    }
                    if what == callback && abort {
                        connection.abort(CloseReason::Local);
                    } else if what == callback {
                        connection.close();
                    }
                };
                let low = options(|options| (options.high_water, options.low_water) = (1000, 0));
                let recorder = Recorder::with_action(&record, action);
                let connection = Connection::open(socket, low, recorder).unwrap();
                match callback {
                    "received" => (&peer).write_all(b"x").unwrap(),
                    "read closed" | "closed" => peer.shutdown(Shutdown::Write).unwrap(),
                    _ => {}
                }
                let reason = record.wait_for("closed").await;
                let expected =
                    if callback == "closed" { "closed by the peer" } else { "closed by this side" };
                assert_eq!(reason, format!("closed: {expected}"), "in {callback}");
                some_ticks(2).await;
                assert_eq!(record.count("closed"), 1, "in {callback}: {:?}", record.log());
                assert!(!connection.is_open());
            }
        }
    });
}

#[test]
fn a_handler_may_send_to_and_close_other_connections() {
    run(async {
        let others: Rc<RefCell<Vec<Connection>>> = Rc::default();
        let mut peers = Vec::new();
        let mut records = Vec::new();
        for at in 0..3 {
            let (connection, record, peer) = recorded(options(|_| {}));
            others.borrow_mut().push(connection);
            peers.push(peer);
            records.push((at, record));
        }
        let record = Record::default();
        let (socket, mut hub) = sockets();
        let list = others.clone();
        let handler = Recorder::with_action(&record, move |what, connection| {
            if what == "received" {
                for other in &*list.borrow() {
                    other.send(b"to all").unwrap();
                    other.send(&pattern(40_000)).unwrap();
                }
                list.borrow()[0].close();
                list.borrow()[1].abort(CloseReason::Protocol("told off".to_owned()));
                connection.send(b"done").unwrap();
                connection.close();
            }
        });
        let _hub = Connection::open(socket, options(|_| {}), handler).unwrap();
        hub.write_all(b"go").unwrap();
        assert_eq!(records[0].1.wait_for("closed").await, "closed: closed by this side");
        assert!(records[1].1.wait_for("closed").await.ends_with("told off"));
        record.wait_for("closed").await;
        assert_eq!(records[2].1.count("closed"), 0);
        let mut got = vec![0; 40_006];
        for at in [0, 2] {
            peers[at].read_exact(&mut got).unwrap();
            assert!(got.starts_with(b"to all") && got[6..] == pattern(40_000));
        }
        let mut done = Vec::new();
        hub.read_to_end(&mut done).unwrap();
        assert_eq!(done, b"done");
    });
}

#[test]
fn finishing_the_sending_half_waits_for_the_connection() {
    run(async {
        let (address, kept) = silent_address();
        let record = Record::default();
        let socket = corewire_runtime::driver::net::connect_tcp(address, &Default::default()).unwrap();
        let connection =
            Connection::open_connecting(socket, options(|_| {}), Recorder::new(&record)).unwrap();
        some_ticks(2).await;
        connection.shutdown_write();
        assert_eq!(connection.send(b"late"), Err(SendError::Closed));
        some_ticks(2).await;
        assert_eq!(record.log(), [""; 0], "the attempt goes on");
        let local = connection.with_socket(|socket| socket.local_addr().unwrap().as_socket()).unwrap();
        // Room in the backlog: the kernel's next attempt, after a second, is answered.
        let peer = off_worker(move || {
            loop {
                let (socket, from) = kept[0].accept().unwrap();
                if from.as_socket() == local {
                    let mut end = Vec::new();
                    (&socket).read_to_end(&mut end).unwrap();
                    return (end.len(), socket);
                }
            }
        })
        .await;
        record.wait_for("open").await;
        assert_eq!(peer.0, 0, "nothing was sent but the end");
        drop(peer);
        assert_eq!(record.wait_for("closed").await, "closed: closed by the peer");
    });
}

#[test]
fn what_is_sent_before_a_connection_is_established_waits_for_it() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let record = Record::default();
        let socket = corewire_runtime::driver::net::connect_tcp(address, &Default::default()).unwrap();
        let connection =
            Connection::open_connecting(socket, options(|_| {}), Recorder::new(&record)).unwrap();
        connection.send(b"early ").unwrap();
        connection.send(&pattern(100_000)).unwrap();
        connection.shutdown_write();
        let got = off_worker(move || {
            let mut got = Vec::new();
            listener.accept().unwrap().0.read_to_end(&mut got).unwrap();
            got
        })
        .await;
        assert!(got.starts_with(b"early ") && got[6..] == pattern(100_000));
        assert_eq!(record.wait_for("closed").await, "closed: closed by the peer");
        assert_eq!(record.log()[0], "open");
    });
}
