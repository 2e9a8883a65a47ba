//! The memory that a server holds for clients whose messages nobody takes. Alone in its program: the whole process is
//! measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::time::Duration;

use corewire::block_on;
use corewire_rpc::{Settings, Version};
use support::{Raw, Running, channel, gauged, settles, stuck};

const REQUEST: u8 = 0x01;
const SETTINGS: u8 = 0x21;

const END: u8 = 0x04;
const EXT: u8 = 0x08;
const CONT: u8 = 0x10;
const NAMES: u8 = 0x40;
const BIDI: u8 = 3;

/// What each connection may hold.
const LIMIT: usize = 4 << 20;

/// The most memory that the process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A frame of version 2.
fn frame(kind: u8, flags: u8, id: u32, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', 2, kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    let len: usize = parts.iter().map(|part| part.len()).sum();
    bytes.extend_from_slice(&(len as u32).to_be_bytes());
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    bytes
}

/// The names of a method of the service that is stuck, for one call alone.
fn names(method: &str) -> Vec<u8> {
    [&[0, 0, 0, 5][..], b"Stuck", &[0, method.len() as u8], method.as_bytes()].concat()
}

/// An extension block of as many entries of 5 bytes as there may be: names of one letter, without a value.
fn block() -> Vec<u8> {
    const ENTRIES: usize = 16_380 / 5;
    let mut block = ((ENTRIES * 5) as u16).to_be_bytes().to_vec();
    block.extend([4, 0, 2, 1, b'a'].repeat(ENTRIES));
    block
}

/// What each attacker sends.
fn attacks() -> Vec<(&'static str, Vec<u8>)> {
    let (unary, bidi, block) = (names("unary"), names("bidi"), block());
    let all =
        |frames: u32, frame: &dyn Fn(u32) -> Vec<u8>| (0..frames).map(frame).collect::<Vec<_>>().concat();
    let many_calls = [
        all(100, &|id| frame(REQUEST, BIDI | NAMES, id, &[&bidi, b"x"])),
        all(6_000, &|at| frame(REQUEST, BIDI | CONT, at % 100, &[&[7; 4_100]])),
    ];
    vec![
        (
            "requests that are whole, of 60,000 bytes",
            all(1_500, &|id| frame(REQUEST, END | NAMES, id, &[&unary, &[7; 60_000]])),
        ),
        (
            "requests of one byte, each with as much metadata as there may be",
            all(4_000, &|id| frame(REQUEST, END | EXT | NAMES, id, &[&unary, &block, b"x"])),
        ),
        ("messages of 4,100 bytes on many calls", many_calls.concat()),
        (
            "last messages of 200,000 bytes",
            all(400, &|id| frame(REQUEST, BIDI | END | NAMES, id, &[&bidi, &[7; 200_000]])),
        ),
    ]
}

#[test]
fn what_nobody_takes_is_held_up_to_the_limit_of_its_connection() {
    const BOUND: usize = 4 * (LIMIT + (2 << 20));
    let running = Running::default();
    let settings = Settings { max_buffered: LIMIT as u64, ..Settings::default() };
    let (server, gauges) = gauged(|server| server.service(stuck(&running)).settings(settings));
    let polite = channel(&server, Version::V2);
    let attacks = attacks();
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    let mut attackers = Vec::new();
    for (at, (what, bytes)) in attacks.iter().enumerate() {
        assert!(bytes.len() > 5 * LIMIT, "{what}: {} bytes", bytes.len());
        let mut raw = Raw::connect(&server);
        raw.0.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
        raw.0.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
        assert!(raw.0.write_all(bytes).is_err(), "{what}: the server takes it all");
        let now = block_on(gauges.read());
        let most = (at + 1) * (LIMIT + (1 << 20));
        assert!(now.buffered_bytes < most, "{what}: {now:?}");
        let answer = block_on(polite.unary("EchoService/echo", "x").timeout(Duration::from_secs(5)));
        assert_eq!(answer.unwrap(), "x", "{what}");
        attackers.push(raw);
    }
    let grown = peak() - before;
    assert!((LIMIT..BOUND).contains(&grown), "{grown} bytes more: {:?}", block_on(gauges.read()));
    drop(attackers);
    settles(&gauges, 1);
    assert_eq!(running.now(), 0);
}

#[test]
fn metadata_in_the_middle_of_a_call_is_not_kept() {
    let running = Running::default();
    let (server, gauges) = gauged(|server| server.service(stuck(&running)));
    let mut raw = Raw::connect(&server);
    raw.0.write_all(&frame(SETTINGS, 0, 0, &[])).unwrap();
    raw.0.write_all(&frame(REQUEST, BIDI | NAMES, 0, &[&names("bidi"), b"x"])).unwrap();
    let block = block();
    for _ in 0..1_000 {
        raw.0.write_all(&frame(REQUEST, BIDI | CONT | EXT, 0, &[&block, b"x"])).unwrap();
    }
    // Behind it all, so that what it shows is true after it.
    raw.0.write_all(&frame(REQUEST, END | NAMES, 1, &[&names("unary"), b"x"])).unwrap();
    support::eventually("all has been read", || running.now() == 2);
    let now = block_on(gauges.read());
    assert!(now.buffered_bytes < 200_000, "{now:?}");
    drop(raw);
    settles(&gauges, 0);
}
