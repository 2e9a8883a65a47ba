//! What is held for peers is counted, and bounded.

#![allow(clippy::unwrap_used)]

mod common;

use std::time::{Duration, Instant};

use common::*;
use corewire_runtime::{CloseReason, Connection, MemoryKind, Runtime, WorkerStats, sleep};

/// A runtime of one worker, and a way to wait for what it says of itself.
fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

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
