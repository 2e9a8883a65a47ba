//! A client that pipelines calls without end keeps no other waiting.
#![allow(clippy::unwrap_used)]

mod support;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corewire_rpc::{Bytes, Context, Service, Streaming, Version};
use corewire_runtime::{before_flush, yield_now};
use support::{VERSIONS, channel, gauged};

/// Time that each call takes, at the least: so the budget of a tick, which is of time, is a number of calls.
const CALL_TIME: Duration = Duration::from_micros(10);
/// Calls of one connection in one tick, at the most: the clock is looked at once in 32 of them.
const CALLS_IN_TICK_MAX: usize = 256;

static MOST: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static IN_TICK: Cell<usize> = const { Cell::new(0) };
}

/// Called once a tick, and more often where that is of use to others: it never counts too many.
fn tick_ends() -> bool {
    MOST.fetch_max(IN_TICK.take(), Ordering::Relaxed);
    false
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
            let began = Instant::now();
            while began.elapsed() < CALL_TIME {}
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
    corewire::block_on(async {
        while handled.load(Ordering::Relaxed) < 20_000 {
            assert_eq!(polite.unary("EchoService/echo", "Hello").await.unwrap(), "Hello");
        }
    });
    greedy.shutdown(std::net::Shutdown::Both).unwrap();
    let most = MOST.load(Ordering::Relaxed);
    assert!(most > 0 && most <= CALLS_IN_TICK_MAX, "{most} calls were handled in one tick");
}

#[test]
fn a_handler_that_has_many_messages_to_take_lets_others_have_their_turn() {
    const MESSAGES: usize = 1000;
    let (server, _gauges) = gauged(|server| {
        server.service(Service::new("Greedy").client_stream(
            "takes",
            |mut requests: Streaming, _: Context| async move {
                assert!(requests.next().await.is_some());
                // The others arrive.
                for _ in 0..20 {
                    corewire::sleep(Duration::from_millis(1)).await;
                }
                let (taken, most) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
                let other = corewire::spawn_local({
                    let (taken, most) = (taken.clone(), most.clone());
                    async move {
                        loop {
                            most.set(most.get().max(taken.take()));
                            yield_now().await;
                        }
                    }
                });
                while requests.next().await.transpose()?.is_some() {
                    taken.set(taken.get() + 1);
                }
                other.abort();
                Ok(Bytes::from(most.get().max(taken.get()).to_string()))
            },
        ))
    });
    for version in VERSIONS {
        let channel = channel(&server, version);
        let most = corewire::block_on(async {
            let call = channel.client_stream::<Bytes, Bytes>("Greedy/takes");
            let (mut sink, most) = call.first("first".into()).await?;
            for _ in 0..MESSAGES {
                sink.send("x".into()).await?;
            }
            sink.finish().await?;
            most.await
        });
        let most: usize = std::str::from_utf8(&most.unwrap()).unwrap().parse().unwrap();
        assert!(most <= 128, "{most} messages were taken in one turn");
    }
}
