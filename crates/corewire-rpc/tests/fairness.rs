//! A client that pipelines calls without end keeps no other waiting.
#![allow(clippy::unwrap_used)]

mod support;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use corewire_rpc::{Bytes, Context, Service, Version};
use corewire_runtime::before_flush;
use support::{channel, gauged};

/// Calls of one connection in one tick, at the most, that the test lets pass: the budget is of time, and this is a
/// multiple of what any machine handles in it.
const CALLS_IN_TICK_MAX: usize = 10_000;

static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IN_TICK: Cell<usize> = const { Cell::new(0) };
}

/// Called once a tick, and more often where that is of use to others: it never counts too many.
fn tick_ends() {
    MOST.fetch_max(IN_TICK.take(), Ordering::Relaxed);
}

/// A unary call of version 1.
fn request(id: u32) -> Vec<u8> {
    let body = b"\x00\x06Greedy\x00\x05callsx";
    let mut frame = b"GRPC\x01\x01\x04\x00".to_vec();
    frame.extend(id.to_be_bytes());
    frame.extend((body.len() as u32).to_be_bytes());
    frame.extend(body);
    frame
}

#[test]
fn a_client_that_pipelines_unary_calls_without_end_keeps_no_other_waiting() {
    let handled = Arc::new(AtomicUsize::new(0));
    let count = handled.clone();
    let (server, _gauges) = gauged(|server| {
        server.service(Service::new("Greedy").unary("calls", move |request: Bytes, _: Context| {
            count.fetch_add(1, Ordering::Relaxed);
            let in_tick = IN_TICK.get();
            if in_tick == 0 {
                before_flush(tick_ends);
            }
            IN_TICK.set(in_tick + 1);
            async move { Ok(request) }
        }))
    });
    let greedy = TcpStream::connect(server.local_addrs()[0].to_string()).unwrap();
    let mut reader = greedy.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut answers = vec![0; 1 << 20];
        while matches!(reader.read(&mut answers), Ok(1..)) {}
    });
    let mut writer = greedy.try_clone().unwrap();
    std::thread::spawn(move || {
        for start in (0..).step_by(4096) {
            let calls: Vec<u8> = (start..start + 4096).flat_map(request).collect();
            if writer.write_all(&calls).is_err() {
                return;
            }
        }
    });
    let polite = channel(&server, Version::V1);
    corewire::wait(async {
        while handled.load(Ordering::Relaxed) < 20_000 {
            assert_eq!(polite.unary("EchoService/echo", "Hello").await.unwrap(), "Hello");
        }
    });
    greedy.shutdown(std::net::Shutdown::Both).unwrap();
    let most = MOST.load(Ordering::Relaxed);
    assert!(most > 0 && most < CALLS_IN_TICK_MAX, "{most} calls were handled in one tick");
}
