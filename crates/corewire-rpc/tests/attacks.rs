//! Clients that keep to the format and to no measure. Each costs a server what its limits say, is closed where they say
//! so, and a polite client of the same worker is answered all the while.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_proto::rpc::Frame;
use corewire_rpc::{Channel, Code, RpcServer, ServerGauges, Version};
use support::{Raw, Running, channel, eventually, gauged, settles, stuck};

const REQUEST: u8 = 0x01;
const PING: u8 = 0x03;
const CANCEL: u8 = 0x14;
const CREDIT: u8 = 0x20;
const SETTINGS: u8 = 0x21;
const GOING_AWAY: u8 = 0x22;

const ACK: u8 = 0x01;
const END: u8 = 0x04;
const CONT: u8 = 0x10;
const EMPTY: u8 = 0x20;
const NAMES: u8 = 0x40;
const BIDI: u8 = 3;

/// A frame of version 2.
fn frame(kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', 2, kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The first frame of a call, with names for this call alone.
fn begun(flags: u8, id: u32, path: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0];
    for name in path.split('/') {
        body.extend_from_slice(&(name.len() as u16).to_be_bytes());
        body.extend_from_slice(name.as_bytes());
    }
    body.extend_from_slice(payload);
    frame(REQUEST, flags | NAMES, id, &body)
}

/// A server of one worker, with handlers that never end, and a polite client.
struct Bench {
    server: ServerHandle,
    gauges: ServerGauges,
    running: Running,
    polite: Channel,
}

impl Bench {
    fn new(change: impl FnOnce(RpcServer) -> RpcServer) -> Self {
        let running = Running::default();
        let (server, gauges) = gauged(|server| change(server.service(stuck(&running))));
        let polite = channel(&server, Version::V2);
        let bench = Self { server, gauges, running, polite };
        bench.is_polite_to_others();
        bench
    }

    /// Connects, and has said SETTINGS.
    fn attacker(&self) -> Raw {
        let mut raw = Raw::connect(&self.server);
        raw.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        raw.0.write_all(&frame(SETTINGS, 0, 0, b"")).unwrap();
        raw
    }

    #[track_caller]
    fn is_polite_to_others(&self) {
        let answer = block_on(self.polite.unary("EchoService/echo", "x").timeout(Duration::from_secs(5)));
        assert_eq!(answer.unwrap(), "x");
    }

    /// The server closed the attacker's connection for this reason.
    #[track_caller]
    fn has_closed(&self, mut raw: Raw, why: &str) {
        let answer = raw.read_to_end();
        self.is_polite_to_others();
        // A reset may have swallowed the GOAWAY; the connection is closed all the same.
        if let Some((code, reason)) = last_words(&answer) {
            assert!(code == Code::PROTOCOL_ERROR && reason.contains(why), "{code:?} {reason}");
        }
        settles(&self.gauges, 1);
        eventually("its handlers are dropped", || self.running.now() == 0);
    }
}

/// The code and reason of the GOAWAY that ends the bytes.
fn last_words(mut bytes: &[u8]) -> Option<(Code, String)> {
    let mut last = None;
    while let Ok(Some((header, frame))) = Frame::parse(bytes) {
        last = if let Frame::GoAway(body) = frame { Some((body.code, body.reason.to_owned())) } else { None };
        bytes = &bytes[16 + header.body_len as usize..];
    }
    last
}

#[test]
fn a_client_that_breaks_its_own_calls_aborts_no_more_handlers_than_the_limit() {
    let bench = Bench::new(|server| server);
    let mut raw = bench.attacker();
    let attack = (0..20_000).flat_map(|id| {
        let begin = begun(BIDI, 2 * id, "Stuck/bidi", b"x");
        // No names, no message and no end: it fails its call. The unknown method pays for nothing.
        let broken = frame(REQUEST, BIDI | CONT | EMPTY, 2 * id, b"");
        let nobody = begun(END, 2 * id + 1, "No/body", b"");
        [begin, broken, nobody].concat()
    });
    let _ = raw.0.write_all(&attack.collect::<Vec<_>>());
    bench.has_closed(raw, "cancels or breaks");
    assert!(bench.running.begun() < 3_000, "{} handlers were begun", bench.running.begun());
}

#[test]
fn a_flood_of_frames_that_belong_to_nothing_closes_a_connection_with_16_000_calls_in_flight() {
    let bench = Bench::new(|server| server);
    let mut raw = bench.attacker();
    let calls = (0..16_000).flat_map(|id| begun(END, id, "Stuck/unary", b"x"));
    raw.0.write_all(&calls.collect::<Vec<_>>()).unwrap();
    eventually("the calls are in flight", || bench.running.now() == 16_000);
    let _ = raw.0.write_all(&frame(CREDIT, 0, 1 << 20, &[0, 0, 0, 1]).repeat(100_000));
    bench.has_closed(raw, "belong to nothing");
}

#[test]
fn every_flood_costs_the_connection_that_it_comes_by_and_no_other() {
    let stillborn =
        (0..20_000).flat_map(|id| [begun(BIDI, id, "Stuck/bidi", b"x"), frame(CANCEL, 0, id, b"")]);
    let going_away = frame(GOING_AWAY, 0, 0, b"\0\0\0\0\0\0");
    for (flood, why) in [
        (frame(PING, 0, 0, b"corewire").repeat(100_000), "floods this side with pings"),
        (frame(PING, ACK, 0, b"corewire").repeat(100_000), "belong to nothing"),
        (going_away.repeat(100_000), "belong to nothing"),
        (frame(CREDIT, 0, 7, b"\0\0\0\x01").repeat(100_000), "belong to nothing"),
        (stillborn.collect::<Vec<_>>().concat(), "cancels or breaks"),
    ] {
        let bench = Bench::new(|server| server);
        let mut raw = bench.attacker();
        let _ = raw.0.write_all(&flood);
        bench.has_closed(raw, why);
        assert!(bench.running.begun() < 3_000, "{} handlers were begun", bench.running.begun());
    }
}

/// The server holds no more than its limit for all connections together, whatever `piece` of each of 40 attackers is
/// left with it, and closes those that hold most.
#[track_caller]
fn holds_no_more_than_the_server_may(piece: &[u8]) {
    const LIMIT: usize = 16 << 20;
    let bench = Bench::new(|server| server.net(|net| net.memory_limit(LIMIT)));
    let mut attackers = Vec::new();
    for _ in 0..40 {
        let Ok(mut raw) = TcpStream::connect(bench.server.local_addrs()[0]).map(Raw) else { continue };
        raw.0.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let _ = raw.0.write_all(&frame(SETTINGS, 0, 0, b""));
        let _ = raw.0.write_all(piece);
        attackers.push(raw);
        let now = block_on(bench.gauges.read());
        // All that one attacker sends may come in one turn of the worker, before room is made.
        let most = LIMIT + piece.len() + (1 << 20);
        assert!(now.unread_bytes + now.buffered_bytes < most, "{now:?}");
        bench.is_polite_to_others();
    }
    let now = block_on(bench.gauges.read());
    assert!(now.unread_bytes + now.buffered_bytes > LIMIT / 4, "it serves as many as it can: {now:?}");
    drop(attackers);
    settles(&bench.gauges, 1);
    assert_eq!(bench.running.now(), 0);
}

#[test]
fn bodies_that_never_become_whole_take_no_more_than_the_server_may_hold() {
    let whole = begun(END, 0, "Stuck/unary", &vec![7; 10 << 20]);
    holds_no_more_than_the_server_may(&whole[..4 << 20]);
}

#[test]
fn requests_that_handlers_hold_take_no_more_than_the_server_may_hold() {
    let calls = (0..40).map(|id| begun(END, id, "Stuck/unary", &[7; 100_000]));
    holds_no_more_than_the_server_may(&calls.collect::<Vec<_>>().concat());
}
