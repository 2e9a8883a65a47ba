//! What a faulty or hostile peer may do to a live server or channel: it costs that peer its connection at the most, the
//! others nothing, and leaves nothing behind.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener};
use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_proto::rpc::Frame;
use corewire_rpc::{Bytes, Channel, Code, ServerGauges, Settings, Status, Version};
use support::{Raw, Running, VERSIONS, channel, dump, eventually, gauged, settles, stuck};

const REQUEST: u8 = 0x01;
const RESPONSE: u8 = 0x02;
const PING: u8 = 0x03;
const INIT: u8 = 0x10;
const ACK: u8 = 0x11;
const DATA: u8 = 0x12;
const END: u8 = 0x13;
const CANCEL: u8 = 0x14;
const CREDIT: u8 = 0x20;
const SETTINGS: u8 = 0x21;

fn number(version: Version) -> u8 {
    if version == Version::V1 { 1 } else { 2 }
}

fn frame(version: Version, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', number(version), kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

fn named(path: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    for name in path.split('/') {
        body.extend_from_slice(&(name.len() as u16).to_be_bytes());
        body.extend_from_slice(name.as_bytes());
    }
    body.extend_from_slice(payload);
    body
}

/// The first frame of a call, with names for this call alone.
fn begun(version: Version, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    match version {
        Version::V1 => frame(version, kind, flags, id, body),
        Version::V2 => frame(version, kind, flags | 0x40, id, &[b"\0\0", body].concat()),
    }
}

/// A frame with one byte changed.
fn bent(mut frame: Vec<u8>, at: usize, to: u8) -> Vec<u8> {
    frame[at] = to;
    frame
}

/// What a client says first, and calls of every kind that are in flight when the bad bytes come: unary (1), bidi (2), a
/// stream (3), and a bidi call whose handler reads nothing (4).
fn prelude(version: Version) -> Vec<u8> {
    let mut bytes = if version == Version::V2 { frame(version, SETTINGS, 0, 0, b"") } else { Vec::new() };
    bytes.extend(begun(version, REQUEST, 4, 1, &named("Stuck/unary", b"x")));
    bytes.extend(begun(version, REQUEST, 3, 2, &named("EchoService/echo", b"x")));
    bytes.extend(begun(version, INIT, 0, 3, &named("StreamBenchService/echo", b"")));
    bytes.extend(begun(version, REQUEST, 3, 4, &named("Stuck/bidi", b"x")));
    bytes
}

struct Bench {
    server: ServerHandle,
    gauges: ServerGauges,
    running: Running,
    /// Somebody else, whom none of it concerns.
    other: Channel,
}

impl Bench {
    fn new() -> Self {
        let running = Running::default();
        // A client of version 1 that is gone is given this time.
        let soon = Duration::from_millis(20);
        let (server, gauges) = gauged(|server| server.service(stuck(&running)).half_close_timeout(soon));
        let other = channel(&server, Version::V2);
        block_on(other.unary("EchoService/echo", "x")).unwrap();
        Self { server, gauges, running, other }
    }

    fn begin(&self, version: Version) -> Raw {
        let mut raw = Raw::connect(&self.server);
        raw.0.write_all(&prelude(version)).unwrap();
        eventually("two handlers are stuck", || self.running.now() == 2);
        raw
    }

    /// The other's connection is the same and works; of the faulty one nothing is left.
    #[track_caller]
    fn is_unharmed(&self) {
        assert_eq!(block_on(self.other.unary("EchoService/echo", "y")).unwrap(), "y");
        settles(&self.gauges, 1);
        assert_eq!(self.running.now(), 0, "its handlers were dropped");
    }
}

/// Bytes that break the protocol in either version.
fn breaches(version: Version) -> Vec<(&'static str, Vec<u8>)> {
    let hello = || begun(version, REQUEST, 4, 9, &named("EchoService/echo", b"Hello"));
    let other = if version == Version::V1 { Version::V2 } else { Version::V1 };
    let mut cases = vec![
        ("bad magic", bent(hello(), 0, b'X')),
        ("version 0", bent(hello(), 4, 0)),
        ("version 255", bent(hello(), 4, 255)),
        ("the other version", frame(other, CANCEL, 0, 9, b"")),
        ("unknown type", bent(hello(), 5, 0x55)),
        ("reserved byte", bent(hello(), 7, 1)),
        ("reserved flag", bent(hello(), 6, 0x84)),
        ("body over the limit", bent(hello(), 12, 0x7f)),
        ("a response to a server", frame(version, RESPONSE, 4, 1, b"\0\0")),
        ("an ACK to a server", frame(version, ACK, 0, 3, b"")),
        ("the id of a call in flight", begun(version, REQUEST, 4, 1, &named("EchoService/echo", b""))),
        ("the id of a stream in flight", begun(version, INIT, 0, 3, &named("StreamBenchService/echo", b""))),
        ("DATA after END", [frame(version, END, 0, 3, b""), frame(version, DATA, 0, 3, b"x")].concat()),
        ("a flood of resets", floods_of_resets(version)),
    ];
    if version == Version::V2 {
        let message = frame(version, REQUEST, 0x13, 4, &[0; 100_000]);
        cases.extend([
            ("SETTINGS twice", frame(version, SETTINGS, 0, 0, b"")),
            ("credit that overflows", frame(version, CREDIT, 0, 2, &u32::MAX.to_be_bytes())),
            ("credit of 0", frame(version, CREDIT, 0, 2, &[0; 4])),
            ("a short ping", frame(version, PING, 0, 0, b"1234567")),
            ("messages without credit", message.repeat(4)),
            ("a single message without END", begun(version, REQUEST, 0, 9, &named("EchoService/echo", b""))),
            ("a flood of pings", frame(version, PING, 0, 0, b"12345678").repeat(200)),
        ]);
    }
    cases
}

fn floods_of_resets(version: Version) -> Vec<u8> {
    (1_000..4_000)
        .flat_map(|id| {
            let init = begun(version, INIT, 0, id, &named("StreamBenchService/echo", b""));
            [init, frame(version, CANCEL, 0, id, b"")].concat()
        })
        .collect()
}

#[test]
fn a_breach_of_the_protocol_closes_that_connection_only_and_leaves_nothing() {
    let bench = Bench::new();
    for version in VERSIONS {
        for (what, bytes) in breaches(version) {
            let mut raw = bench.begin(version);
            // The server may have closed before all is written.
            let _ = raw.0.write_all(&bytes);
            let answer = raw.read_to_end();
            if version == Version::V2 && !what.starts_with("a flood") {
                let expected =
                    if what.starts_with("credit that") || what.starts_with("messages") { 17 } else { 16 };
                assert_eq!(last_words(&answer), Some(Code(expected)), "{what}: {}", dump(&answer));
            }
            bench.is_unharmed();
        }
    }
}

/// The code of the GOAWAY that ends the bytes.
fn last_words(mut bytes: &[u8]) -> Option<Code> {
    let mut last = None;
    while let Ok(Some((header, frame))) = Frame::parse(bytes) {
        last = if let Frame::GoAway(body) = frame { Some(body.code) } else { None };
        bytes = &bytes[16 + header.body_len as usize..];
    }
    last
}

/// Bytes that a peer should not send, and that harm nobody; with the answer.
fn oddities(version: Version) -> Vec<(&'static str, Vec<u8>, Vec<u8>)> {
    let refusal = frame(version, RESPONSE, 4, 9, b"\0\x04");
    let short = frame(version, REQUEST, 4, 9, b"\xff");
    let (unknown, gone) = ([DATA, END, CANCEL], frame(version, CANCEL, 0, 9, b""));
    let crossed = unknown.map(|kind| frame(version, kind, 0, 77, b"")).concat();
    let mut cases = vec![
        ("a body that ends inside of its first field", short, refusal),
        ("END with a body", frame(version, END, 0, 3, b"nobody reads"), frame(version, END, 0, 3, b"")),
        ("frames of streams that never were", crossed, Vec::new()),
        ("a cancel of nothing", gone, Vec::new()),
    ];
    if version == Version::V1 {
        cases.push(("a heartbeat, which means nothing", frame(version, PING, 0, 0, b"tick"), Vec::new()));
    } else {
        cases.extend([
            ("more of a call that is over", frame(version, REQUEST, 0x11, 77, b"more"), Vec::new()),
            ("credit for nothing", frame(version, CREDIT, 0, 77, &[0, 0, 0, 1]), Vec::new()),
        ]);
    }
    cases
}

#[test]
fn what_is_odd_and_no_breach_is_answered_or_stepped_over() {
    let bench = Bench::new();
    for version in VERSIONS {
        for (what, bytes, answer) in oddities(version) {
            let mut raw = bench.begin(version);
            raw.0.write_all(&bytes).unwrap();
            raw.0.write_all(&begun(version, REQUEST, 4, 99, &named("EchoService/echo", b"still"))).unwrap();
            let last = frame(version, RESPONSE, 4, 99, b"\0\0still");
            let read = read_until(&mut raw, &last);
            assert!(contains(&read, &answer), "{what}: {}", dump(&read));
            drop(raw);
            bench.is_unharmed();
        }
    }
}

fn contains(all: &[u8], part: &[u8]) -> bool {
    part.is_empty() || all.windows(part.len()).any(|window| window == part)
}

fn read_until(raw: &mut Raw, end: &[u8]) -> Vec<u8> {
    let (mut all, mut chunk) = (Vec::new(), [0; 4096]);
    while !contains(&all, end) {
        let read = raw.0.read(&mut chunk).unwrap();
        assert!(read > 0, "closed after {}", dump(&all));
        all.extend_from_slice(&chunk[..read]);
    }
    all
}

#[test]
fn a_connection_cut_anywhere_leaves_nothing() {
    let bench = Bench::new();
    for version in VERSIONS {
        let whole = prelude(version);
        for end in (1..whole.len()).step_by(7) {
            let mut raw = Raw::connect(&bench.server);
            raw.0.write_all(&whole[..end]).unwrap();
            raw.0.shutdown(Shutdown::Both).unwrap();
        }
        bench.is_unharmed();
    }
}

#[test]
fn a_client_that_sends_and_never_reads_is_held_back_within_the_limits() {
    const HIGH_WATER: usize = 64 * 1024;
    let (server, gauges) = gauged(|server| server.water_marks(16 * 1024, HIGH_WATER));
    for version in VERSIONS {
        let mut greedy = Raw::connect(&server);
        greedy.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        if version == Version::V2 {
            greedy.0.write_all(&frame(version, SETTINGS, 0, 0, b"")).unwrap();
        }
        let body = named("EchoService/echo", &[0; 4_000]);
        let mut ids = 0..;
        let mut batch = || -> Vec<u8> {
            ids.by_ref().take(64).flat_map(|id| begun(version, REQUEST, 4, id, &body)).collect()
        };
        let mut taken = 0;
        while greedy.0.write_all(&batch()).is_ok() {
            taken += 64 * body.len();
            assert!(taken < 256 << 20, "the server takes without end");
        }
        let now = block_on(gauges.read());
        // A piece of output is handed on when it comes to 64 KiB, and one receive brings 640 KiB at the most.
        assert!(now.unsent_bytes < HIGH_WATER + 128 * 1024, "{now:?}");
        assert!(now.unread_bytes < 1 << 20, "{now:?}");
        let other = channel(&server, Version::V2);
        assert_eq!(block_on(other.unary("EchoService/echo", "y")).unwrap(), "y");
        drop((greedy, other));
        settles(&gauges, 0);
    }
}

#[test]
fn ids_that_wrap_in_the_middle_of_calls_of_every_mode_reach_the_right_ones() {
    let (server, gauges) = gauged(|server| server);
    for version in VERSIONS {
        let settings = Settings { first_id: u32::MAX - 20, ..Settings::default() };
        let channel = Channel::to(server.uri()).protocol(version).settings(settings).build().unwrap();
        block_on(async {
            let mut open = Vec::new();
            for i in 0..20_u8 {
                let message = Bytes::from(vec![i; 10]);
                assert_eq!(channel.unary("EchoService/echo", message.clone()).await?, message);
                let both = channel.bidi::<Bytes, Bytes>("EchoService/echo").first(message.clone()).await?;
                let stream = channel.stream("StreamBenchService/echo").await?;
                open.push((message, both, stream));
            }
            for (message, (sink, mut replies), (mut say, mut heard)) in open {
                assert_eq!(replies.next().await.transpose()?, Some(message.clone()));
                sink.finish().await?;
                assert!(replies.next().await.is_none());
                say.send(message.clone()).await?;
                assert_eq!(heard.next().await.transpose()?, Some(message));
                say.finish().await?;
                assert!(heard.next().await.is_none());
            }
            assert!(channel.gauges().await.is_idle(), "{:?}", channel.gauges().await);
            Ok::<(), Status>(())
        })
        .unwrap();
        settles(&gauges, 1);
        drop(channel);
        settles(&gauges, 0);
    }
}

#[test]
fn a_cancel_that_crosses_the_reply_hurts_nobody_and_leaves_nothing() {
    let (server, gauges) = gauged(|server| server);
    for version in VERSIONS {
        let uri = server.uri().to_owned();
        corewire::run(async move {
            let channel = Channel::to(uri).protocol(version).build().unwrap();
            for round in 0..500 {
                let mut dropped = channel.unary("EchoService/echo", "x");
                let _ = futures_lite::future::poll_once(&mut dropped).await;
                if round % 3 == 0 {
                    corewire::runtime::yield_now().await;
                }
                drop(dropped);
                let (sink, replies) = channel.stream("StreamBenchService/echo").await.unwrap();
                if round % 2 == 0 {
                    corewire::runtime::yield_now().await;
                }
                drop((replies, sink));
                assert_eq!(channel.unary("EchoService/echo", "y").await.unwrap(), "y");
            }
            // The answers to the last cancels may be on their way.
            while !channel.gauges().await.is_idle() {
                corewire::sleep(Duration::from_millis(1)).await;
            }
        })
        .unwrap();
        settles(&gauges, 0);
    }
}

/// What a server may say to a client that has a unary call (0), a bidi call (1) and a stream (2) in flight.
fn nonsense(version: Version) -> Vec<(&'static str, Vec<u8>)> {
    let good = || frame(version, RESPONSE, 4, 0, b"\0\0");
    let mut cases = vec![
        ("bad magic", bent(good(), 0, b'X')),
        ("version 0", bent(good(), 4, 0)),
        ("version 255", bent(good(), 4, 255)),
        ("unknown type", bent(good(), 5, 0x55)),
        ("reserved byte", bent(good(), 7, 1)),
        ("body over the limit", bent(good(), 12, 0x7f)),
        ("a request to a client", begun(version, REQUEST, 4, 0, &named("A/b", b""))),
        ("ACK twice", frame(version, ACK, 0, 2, b"").repeat(2)),
        ("DATA after END", [frame(version, END, 0, 2, b""), frame(version, DATA, 0, 2, b"x")].concat()),
    ];
    if version == Version::V2 {
        cases.extend([
            ("SETTINGS twice", frame(version, SETTINGS, 0, 0, b"")),
            ("credit that overflows", frame(version, CREDIT, 0, 1, &u32::MAX.to_be_bytes())),
            ("a response on a stream", frame(version, RESPONSE, 4, 2, b"\0\0")),
            ("a response after the end", frame(version, RESPONSE, 7, 1, b"\0\0").repeat(2)),
            ("a flood of pings", frame(version, PING, 0, 0, b"12345678").repeat(200)),
        ]);
    }
    cases
}

#[test]
fn a_server_that_says_nonsense_ends_every_call_of_that_connection_and_leaves_nothing() {
    for version in VERSIONS {
        for (what, bytes) in nonsense(version) {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let uri = format!("tcp://{}", listener.local_addr().unwrap());
            let peer = std::thread::spawn(move || {
                let mut raw = Raw(listener.accept().unwrap().0);
                raw.0.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
                if version == Version::V2 {
                    raw.0.write_all(&frame(version, SETTINGS, 0, 0, b"")).unwrap();
                }
                let init =
                    frame(version, INIT, if version == Version::V1 { 0 } else { 0x40 }, 2, b"")[..8].to_vec();
                read_until(&mut raw, &init);
                raw.0.write_all(&bytes).unwrap();
                raw.read_to_end();
            });
            corewire::run(async move {
                let channel = Channel::to(uri).protocol(version).build().unwrap();
                let caller = channel.clone();
                let unary = corewire::spawn_local(async move { caller.unary("Some/call", "x").await });
                // Its turn to begin comes before that of the others.
                while channel.gauges().await.calls == 0 {
                    corewire::runtime::yield_now().await;
                }
                let both = channel.bidi::<Bytes, Bytes>("Some/bidi").first("x".into()).await.unwrap();
                let stream = channel.stream("Some/stream").await.unwrap();
                let (mut replies, mut heard) = (both.1, stream.1);
                assert!(unary.await.unwrap().is_err(), "{what}");
                for messages in [&mut replies, &mut heard] {
                    let mut errors = 0;
                    while let Some(message) = messages.next().await {
                        errors += usize::from(message.is_err());
                    }
                    // A half that had ended cleanly before has told so, and then nothing more.
                    assert!(errors == 1 || what.contains("after"), "{what}: {errors} errors");
                }
                drop((both.0, stream.0, replies, heard));
                let left = channel.gauges().await;
                assert!(left.is_idle() && left.connections == 0, "{what}: {left:?}");
            })
            .unwrap();
            peer.join().unwrap();
        }
    }
}
