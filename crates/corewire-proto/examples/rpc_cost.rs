//! What the RPC state machine costs per call or message, both sides together, without any I/O.
//!
//! `cargo run --release -p corewire-proto --example rpc_cost`
#![allow(clippy::unwrap_used, reason = "a tool for developers")]

use std::time::{Duration, Instant};

use corewire_proto::rpc::{CallKey, Connection, Event, MethodPath, Options, Settings, Version};

const ROUNDS: usize = 5;

fn main() {
    for version in [Version::V1, Version::V2] {
        for (size, depth) in [(47, 1), (47, 4), (47, 64), (256, 1), (4096, 1)] {
            report(&format!("{version:?} unary {size} B, depth {depth}"), || unary(version, size, depth));
        }
        report(&format!("{version:?} stream message 128 B, depth 16"), || stream(version, 128, 16));
    }
}

fn report(name: &str, mut run: impl FnMut() -> f64) {
    let mut nanos: Vec<f64> = (0..ROUNDS).map(|_| run()).collect();
    nanos.sort_by(f64::total_cmp);
    println!(
        "{name:<40} {:7.1} ns (best {:.1}, worst {:.1})",
        nanos[ROUNDS / 2],
        nanos[0],
        nanos[ROUNDS - 1]
    );
}

/// Nanoseconds per call, of which `depth` are in flight at a time.
fn unary(version: Version, size: usize, depth: usize) -> f64 {
    let mut pair = Pair::new(version);
    let path = MethodPath::new("BenchEchoService", "echo").unwrap();
    let payload = vec![7; size];
    let calls = 200_000usize.div_ceil(depth);
    let begun = Instant::now();
    for _ in 0..calls {
        for _ in 0..depth {
            pair.client.unary(&path, &payload[..], &mut pair.to_server).unwrap();
        }
        assert_eq!(pair.exchange(), depth);
    }
    begun.elapsed().as_nanos() as f64 / (calls * depth) as f64
}

/// Nanoseconds per message and its echo.
fn stream(version: Version, size: usize, depth: usize) -> f64 {
    let mut pair = Pair::new(version);
    let path = MethodPath::new("StreamBenchService", "echo").unwrap();
    let call = pair.client.open_stream(&path, &Options::default(), &mut pair.to_server).unwrap();
    pair.exchange();
    let payload = vec![7; size];
    let rounds = 200_000usize.div_ceil(depth);
    let begun = Instant::now();
    for _ in 0..rounds {
        for _ in 0..depth {
            pair.client.send(call, &payload[..], false, &mut pair.to_server).unwrap();
        }
        assert_eq!(pair.exchange(), depth);
    }
    begun.elapsed().as_nanos() as f64 / (rounds * depth) as f64
}

struct Pair {
    client: Connection,
    server: Connection,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

impl Pair {
    fn new(version: Version) -> Self {
        Self {
            client: Connection::client(version, Settings::default()),
            server: Connection::server(Settings::default()),
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    /// Delivers both ways; the server echoes. How many messages came back.
    fn exchange(&mut self) -> usize {
        let Self { client, server, to_server, to_client } = self;
        each_event(server, to_server, to_client, |server, event, out| match event {
            Event::Request { call, request } => {
                server.send(call, request.payload.unwrap_or_default(), true, out).unwrap();
            }
            Event::Message { call, payload, .. } => {
                server.send(call, payload, false, out).unwrap();
                server.release(call, payload.len(), out);
            }
            Event::StreamOpened { call, .. } => server.accept(call, out).unwrap(),
            _ => {}
        });
        to_server.clear();
        let mut answers = 0;
        each_event(client, to_client, to_server, |client, event, out| {
            if let Event::Message { call, payload, end, .. } = event {
                answers += 1;
                if !end {
                    client.release(call, payload.len(), out);
                }
                std::hint::black_box::<(CallKey, &[u8])>((call, payload));
            }
        });
        to_client.clear();
        answers
    }
}

#[inline]
fn each_event(
    machine: &mut Connection,
    input: &[u8],
    out: &mut Vec<u8>,
    mut act: impl FnMut(&mut Connection, Event<'_>, &mut Vec<u8>),
) {
    let mut rest = input;
    while let Some(event) = machine.receive(&mut rest, Duration::ZERO, out).unwrap() {
        act(machine, event, out);
    }
}
