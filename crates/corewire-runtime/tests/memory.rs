//! What is held for peers is counted, and bounded.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use corewire_runtime::{CloseReason, Connection, MemoryKind, MemoryLimit, Runtime, WorkerStats, sleep};

/// A runtime of one worker; what it says of itself is waited for by `wait_for`.
fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

/// As `one_worker`, with the least limit that there is times 8.
fn limited() -> Runtime {
    Runtime::builder().workers(1).memory_limit(LIMIT).build().unwrap()
}

const LIMIT: usize = 8 << 20;

async fn wait_for(runtime: &corewire_runtime::Handle, holds: impl Fn(&WorkerStats) -> bool) -> WorkerStats {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let stats = runtime.stats();
        if holds(&stats) {
            return stats;
        }
        assert!(Instant::now() < deadline, "{stats:?}");
        sleep(Duration::from_millis(1)).await;
    }
}

#[test]
fn what_send_queues_hold_is_counted_until_their_connection_is_gone() {
    let runtime = one_worker();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        let (connection, record, peer) = recorded(options(|options| options.queue_limit = 1 << 30));
        let message = [7; 28];
        while connection.queued() < 20 << 20 {
            for _ in 0..10_000 {
                connection.send(&message).unwrap();
            }
            sleep(Duration::ZERO).await;
        }
        let stats = wait_for(&handle, |stats| stats.send_queue_bytes >= 20 << 20).await;
        assert!(stats.send_queue_bytes <= (connection.queued() + 128 * 1024) as u64, "{stats:?}");
        connection.abort(CloseReason::Local);
        record.wait_for("closed").await;
        wait_for(&handle, |stats| stats.send_queue_bytes == 0).await;
        drop(peer);
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

#[test]
fn what_is_charged_is_told_by_kind() {
    let runtime = one_worker();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        let (socket, _peer) = sockets();
        let connection =
            Connection::open(socket, options(|_| {}), Recorder::new(&Record::default())).unwrap();
        let inbox = connection.charge(MemoryKind::Inbox, 1000);
        let mut payload = connection.charge(MemoryKind::Payload, 70_000);
        payload.set(50_000);
        wait_for(&handle, |stats| (stats.inbox_bytes, stats.payload_bytes) == (1000, 50_000)).await;
        connection.abort(CloseReason::Local);
        drop((inbox, payload));
        wait_for(&handle, |stats| (stats.inbox_bytes, stats.payload_bytes) == (0, 0)).await;
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

/// A connection whose peer never reads, with `bytes` in its queue.
fn stuck(bytes: usize) -> (Connection, Record, std::net::TcpStream) {
    let (connection, record, peer) = recorded(options(|options| options.queue_limit = 1 << 30));
    // What the kernel takes; the rest is queued.
    connection.with_socket(|socket| socket.set_send_buffer_size(64 * 1024)).unwrap().unwrap();
    while connection.queued() < bytes {
        connection.send(&[7; 8000]).unwrap();
    }
    (connection, record, peer)
}

#[test]
fn at_the_limit_the_connection_that_holds_most_is_closed_and_the_others_stay() {
    let runtime = limited();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        let small = stuck(1 << 20);
        let worst = stuck(4 << 20);
        let healthy = recorded(options(|_| {}));
        let middle = stuck(2 << 20);
        wait_for(&handle, |stats| stats.send_queue_bytes >= 7 << 20).await;
        assert!(worst.0.is_open(), "below the limit nobody is closed");
        let more = stuck(2 << 20);
        let reason = worst.1.wait_for("closed").await;
        assert!(reason.contains(&format!("limit of {LIMIT}")), "{reason}");
        wait_for(&handle, |stats| stats.send_queue_bytes < 6 << 20).await;
        for other in [&small, &middle, &more, &healthy] {
            assert!(other.0.is_open());
        }
        std::io::Write::write_all(&mut &healthy.2, b"hello").unwrap();
        healthy.1.wait_received(5).await;
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

#[test]
fn near_the_limit_the_largest_is_paused_and_goes_on_when_there_is_room() {
    let runtime = limited();
    let test = runtime.handle().spawn(move || async move {
        let (large, large_record, large_peer) = recorded(options(|_| {}));
        let (small, small_record, small_peer) = recorded(options(|_| {}));
        let held = large.charge(MemoryKind::Payload, LIMIT - LIMIT / 16);
        let _little = small.charge(MemoryKind::Inbox, 1000);
        sleep(Duration::from_millis(1)).await;
        std::io::Write::write_all(&mut &large_peer, b"too much").unwrap();
        std::io::Write::write_all(&mut &small_peer, b"a little").unwrap();
        small_record.wait_received(8).await;
        some_ticks(20).await;
        assert_eq!(large_record.received(), b"", "it is paused");
        drop(held);
        large_record.wait_received(8).await;
        assert!(large.is_open() && small.is_open());
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

/// Ends a connection that is paused, and gives what it was told.
async fn end_while_paused(peer: std::net::TcpStream, record: &Record, with_reset: bool) -> Vec<String> {
    let linger = with_reset.then_some(Duration::ZERO);
    socket2::SockRef::from(&peer).set_linger(linger).unwrap();
    drop(peer);
    record.wait_for("closed").await;
    record.log()
}

#[test]
fn a_peer_that_is_gone_is_noticed_while_its_connection_is_paused_for_memory() {
    for with_reset in [true, false] {
        let runtime = limited();
        let handle = runtime.handle().clone();
        let test = runtime.handle().spawn(move || async move {
            let (socket, peer) = sockets();
            let record = Record::default();
            let mut held = None;
            let recorder = Recorder::with_action(&record, move |what, connection| {
                held = match what {
                    "open" => Some(connection.charge(MemoryKind::Reassembly, LIMIT - LIMIT / 16)),
                    "closed" => None,
                    _ => held.take(),
                };
            });
            let connection = Connection::open(socket, options(|_| {}), recorder).unwrap();
            wait_for(&handle, |stats| stats.reassembly_bytes > 0).await;
            some_ticks(20).await;
            let log = end_while_paused(peer, &record, with_reset).await;
            // Not because memory was short for long.
            match with_reset {
                true => assert!(log[1].starts_with("closed: the connection is lost"), "{log:?}"),
                false => assert_eq!(log[1..], ["read closed", "closed: closed by the peer"]),
            }
            assert!(!connection.is_open());
            wait_for(&handle, |stats| stats.reassembly_bytes == 0).await;
        });
        futures_lite::future::block_on(test.unwrap()).unwrap();
    }
}

#[test]
fn a_peer_that_is_gone_is_noticed_while_its_connection_is_paused_by_its_user() {
    run(async move {
        let (connection, record, peer) = recorded(options(|_| {}));
        connection.pause_receive();
        some_ticks(5).await;
        let log = end_while_paused(peer, &record, true).await;
        assert!(log[1].starts_with("closed: the connection is lost"), "{log:?}");
    });
}

#[test]
fn the_end_of_a_peer_is_told_when_its_users_pause_is_over() {
    run(async {
        let (connection, record, peer) = recorded(options(|_| {}));
        connection.pause_receive();
        some_ticks(5).await;
        drop(peer);
        some_ticks(20).await;
        assert_eq!(record.log(), ["open"]);
        connection.resume_receive();
        record.wait_for("closed: closed by the peer").await;
        assert_eq!(record.count("read closed"), 1);
    });
}

#[test]
fn what_a_peer_sent_before_its_end_is_received_when_a_pause_is_over() {
    run(async {
        let (connection, record, peer) = recorded(options(|_| {}));
        connection.pause_receive();
        some_ticks(5).await;
        std::io::Write::write_all(&mut &peer, b"last words").unwrap();
        drop(peer);
        some_ticks(20).await;
        assert_eq!(record.log(), ["open"], "the end is behind bytes that nobody receives");
        connection.resume_receive();
        record.wait_for("closed: closed by the peer").await;
        assert_eq!(record.received(), b"last words");
    });
}

#[test]
fn a_peer_that_never_read_and_is_gone_is_noticed() {
    let runtime = limited();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        // More than the high-water mark: nothing is received from it.
        let (_connection, record, peer) = stuck(1 << 20);
        wait_for(&handle, |stats| stats.send_queue_bytes >= 1 << 20).await;
        some_ticks(5).await;
        // It has bytes that it did not read: the kernel resets the connection.
        drop(peer);
        let reason = record.wait_for("closed").await;
        assert!(reason.starts_with("closed: the connection is lost"), "{reason}");
        wait_for(&handle, |stats| stats.send_queue_bytes == 0).await;
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

#[test]
fn near_the_limit_new_connections_are_refused() {
    let runtime = limited();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        let mut listener = corewire_runtime::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let (holder, _record, _peer) = recorded(options(|_| {}));
        let held = holder.charge(MemoryKind::Payload, LIMIT - LIMIT / 16);
        sleep(Duration::from_millis(1)).await;
        let refused = std::net::TcpStream::connect(address).unwrap();
        wait_for(&handle, |stats| stats.refused == 1).await;
        drop((held, refused));
        sleep(Duration::from_millis(1)).await;
        let _taken = std::net::TcpStream::connect(address).unwrap();
        listener.accept().await.unwrap();
        let stats = wait_for(&handle, |stats| stats.accepted == 1).await;
        assert_eq!(stats.refused, 1);
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

#[test]
fn a_limit_of_some_connections_is_kept_among_them_and_leaves_the_others_alone() {
    let runtime = one_worker();
    let test = runtime.handle().spawn(move || async move {
        let limit = MemoryLimit::new(LIMIT, 1).unwrap();
        let limited = || {
            let memory_limit = Some(limit.clone());
            options(|options| (options.memory_limit, options.queue_limit) = (memory_limit, 1 << 30))
        };
        let [large, small, queueing] = [(); 3].map(|()| recorded(limited()));
        let other = recorded(options(|_| {}));
        let _of_other = other.0.charge(MemoryKind::Payload, 2 * LIMIT);
        let held = large.0.charge(MemoryKind::Payload, LIMIT - LIMIT / 16);
        let _little = small.0.charge(MemoryKind::Inbox, 1000);
        sleep(Duration::from_millis(1)).await;
        assert!(limit.is_short());
        assert!((LIMIT - LIMIT / 16..LIMIT).contains(&limit.held()), "{}", limit.held());
        for (_, _, peer) in [&large, &small, &other] {
            std::io::Write::write_all(&mut &*peer, b"hello").unwrap();
        }
        small.1.wait_received(5).await;
        other.1.wait_received(5).await;
        some_ticks(20).await;
        assert_eq!(large.1.received(), b"", "it is paused");
        drop(held);
        large.1.wait_received(5).await;
        // What is queued counts as well.
        while queueing.0.is_open() {
            let _ = queueing.0.send(&[7; 100_000]);
            sleep(Duration::ZERO).await;
        }
        let reason = queueing.1.wait_for("closed").await;
        assert!(reason.contains(&format!("limit of {LIMIT}")), "{reason}");
        assert!([&large, &small, &other].iter().all(|open| open.0.is_open()));
        drop(_little);
        for (connection, record, _) in [&large, &small] {
            connection.abort(CloseReason::Local);
            record.wait_for("closed").await;
        }
        drop((large, small, queueing));
        some_ticks(2).await;
        assert!(limit.held() <= 128 * 1024, "{} bytes are counted for nobody", limit.held());
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
    let error = MemoryLimit::new(LIMIT, 9).unwrap_err();
    assert!(error.to_string().contains("memory limit"), "{error}");
}

#[test]
fn what_ended_connections_left_behind_closes_no_other() {
    let runtime = limited();
    let test = runtime.handle().spawn(move || async move {
        let (gone, record, _gone_peer) = recorded(options(|_| {}));
        let _kept = gone.charge(MemoryKind::Payload, 2 * LIMIT);
        gone.abort(CloseReason::Local);
        record.wait_for("closed").await;
        let (other, _record, _peer) = stuck(1 << 20);
        some_ticks(30).await;
        assert!(other.is_open());
    });
    futures_lite::future::block_on(test.unwrap()).unwrap();
}

#[test]
fn a_limit_that_nothing_fits_in_is_refused() {
    let error = Runtime::builder().workers(2).memory_limit((2 << 20) - 1).build().unwrap_err();
    assert!(error.to_string().contains("memory limit"), "{error}");
}

/// Sends chunks one by one, so that each is a receive by itself, to a stream that nobody reads; gives the most that its
/// inbox held and the pieces that are read at last.
fn unread_stream(chunks: usize, len: usize) -> (u64, Vec<usize>) {
    let runtime = one_worker();
    let handle = runtime.handle().clone();
    let test = runtime.handle().spawn(move || async move {
        let (socket, peer) = sockets();
        let mut stream = corewire_runtime::TcpStream::from_socket(socket).unwrap();
        let (mut sent, mut most) = (0, 0);
        for _ in 0..chunks {
            let before = handle.stats().received_bytes;
            if sent >= 256 * 1024 {
                // Held back: the rest stays with the kernel.
                break;
            }
            std::io::Write::write_all(&mut &peer, &pattern(len)).unwrap();
            sent += len;
            let stats = wait_for(&handle, |stats| stats.received_bytes >= before + len as u64).await;
            sleep(Duration::ZERO).await;
            most = most.max(handle.stats().inbox_bytes).max(stats.inbox_bytes);
        }
        drop(peer);
        let (mut pieces, mut got) = (Vec::new(), 0);
        while let Some(piece) = stream.recv().await.unwrap() {
            pieces.push(piece.len());
            got += piece.len();
        }
        assert_eq!(got, sent);
        wait_for(&handle, |stats| stats.inbox_bytes == 0).await;
        (most, pieces)
    });
    futures_lite::future::block_on(test.unwrap()).unwrap()
}

#[test]
fn what_nobody_reads_is_copied_out_of_the_receive_blocks() {
    let (held, pieces) = unread_stream(64, 4097);
    assert!(pieces.len() <= 6, "{pieces:?}: each piece may keep a receive block");
    assert!((64 * 4097..400 * 1024).contains(&held), "{held}");
    let (held, pieces) = unread_stream(64, 16 * 1024);
    assert!(pieces.len() <= 6, "{pieces:?}");
    assert!(held < 400 * 1024, "{held}");
}

#[test]
fn two_large_arrivals_may_keep_their_receive_blocks_and_are_charged_for_them() {
    let (held, pieces) = unread_stream(64, 40_000);
    assert!(pieces.len() <= 8, "{pieces:?}");
    assert!((2 * 640 * 1024..1_800_000).contains(&held), "{held}");
}
