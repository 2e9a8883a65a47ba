//! The memory of a server whose clients send and never read. Alone in its program: the whole process is measured.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Write;
use std::time::Duration;

use corewire::block_on;
use corewire_rpc::Settings;
use support::{Raw, Running, gauged, settles, stuck};

/// The most memory that the process has had, in bytes.
fn peak() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() * 1024
}

/// A frame of version 2; one that begins a call has names for it alone.
fn frame(kind: u8, mut flags: u8, id: u32, path: &str, payload: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    if !path.is_empty() {
        flags |= 0x40;
        body.extend_from_slice(&[0, 0]);
    }
    for name in path.split('/').filter(|_| !path.is_empty()) {
        body.extend_from_slice(&(name.len() as u16).to_be_bytes());
        body.extend_from_slice(name.as_bytes());
    }
    body.extend_from_slice(payload);
    let mut bytes = vec![b'G', b'R', b'P', b'C', 2, kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend(body);
    bytes
}

/// Gives 64 calls of one length the ids that come after theirs.
fn renumber(batch: &mut [u8]) {
    let len = batch.len() / 64;
    for call in batch.chunks_exact_mut(len) {
        let id = u32::from_be_bytes(call[8..12].try_into().unwrap());
        call[8..12].copy_from_slice(&(id + 64).to_be_bytes());
    }
}

#[test]
fn clients_that_send_and_never_read_take_a_bounded_piece_of_a_servers_memory() {
    const OFFERED: usize = 128 << 20;
    const BOUND: usize = 24 << 20;
    let running = Running::default();
    let settings =
        Settings { max_calls: 1_000, max_streams: 100, max_buffered: 4 << 20, ..Settings::default() };
    let (server, gauges) = gauged(|server| server.service(stuck(&running)).settings(settings));
    let large = [0; 4_000];
    let mut batches: [(&str, Vec<u8>); 4] = [
        ("echoes", (0..64).flat_map(|id| frame(1, 4, id, "EchoService/echo", &large)).collect()),
        ("calls of nobody", (0..64).flat_map(|id| frame(1, 4, id, "No/body", b"")).collect()),
        ("stuck calls", (0..1_200).flat_map(|id| frame(1, 4, id, "Stuck/unary", &large)).collect()),
        ("stuck bidi calls", {
            let begins = (0..900).flat_map(|id| frame(1, 3, id, "Stuck/bidi", &large));
            begins.chain((0..15_000).flat_map(|i| frame(1, 0x13, i % 900, "", &large))).collect()
        }),
    ];
    let mut clients = Vec::new();
    // The peak of what was made here does not count.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    for (what, batch) in &mut batches {
        let mut greedy = Raw::connect(&server);
        greedy.0.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        greedy.0.write_all(&frame(0x21, 0, 0, "", b"")).unwrap();
        let mut offered = 0;
        while offered < OFFERED && greedy.0.write_all(batch).is_ok() {
            offered += batch.len();
            if what.starts_with("stuck") {
                break;
            }
            renumber(batch);
        }
        assert!(offered < OFFERED, "{what}: the server takes without end");
        clients.push(greedy);
    }
    let now = block_on(gauges.read());
    let grown = peak() - before;
    assert!((1 << 20..BOUND).contains(&grown), "{grown} bytes more: {now:?}");
    drop(clients);
    settles(&gauges, 0);
    assert_eq!(running.now(), 0);
}
