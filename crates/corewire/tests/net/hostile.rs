//! Peers that misbehave in time: slow, silent, in and out.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corewire::{NetServer, StandardCodec};

use crate::common::*;

#[test]
fn peers_that_send_a_byte_at_a_time_hold_up_nobody() {
    let server = standard_echo();
    let frame = srmp(1, 1, &[3; 40]);
    let mut slow: Vec<_> = (0..20).map(|_| raw(&server)).collect();
    for byte in &frame {
        for peer in &mut slow {
            peer.write_all(&[*byte]).unwrap();
        }
        assert_serves(&server);
    }
    for peer in &mut slow {
        expect(peer, &srmp(0x81, 1, &[3; 40]));
    }
}

#[test]
fn peers_that_say_nothing_are_closed_by_the_idle_timeout_and_others_are_not() {
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(echo)
        .workers(1)
        .idle_timeout(Some(Duration::from_millis(400)))
        .start()
        .unwrap();
    let mut silent = raw(&server);
    // One that has begun a frame and says nothing more is as silent.
    let mut begun = raw(&server);
    begun.write_all(&[1, 1, 50]).unwrap();
    let mut busy = raw(&server);
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(800) {
        busy.write_all(&srmp(1, 1, b"x")).unwrap();
        expect(&mut busy, &srmp(0x81, 1, b"x"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_to_end(&mut silent), b"");
    assert_eq!(read_to_end(&mut begun), b"");
    busy.write_all(&srmp(1, 2, b"y")).unwrap();
    expect(&mut busy, &srmp(0x81, 2, b"y"));
}

#[test]
fn ten_thousand_connections_come_and_go() {
    const CYCLES: u64 = 10_000;
    let server = standard_echo();
    let address = address_of(&server);
    for cycle in 0..CYCLES {
        let peer = TcpStream::connect(address).unwrap();
        match cycle % 100 {
            // No port is left waiting by a reset, so that this can be repeated.
            0 => {
                let mut peer = patient(peer);
                peer.write_all(&srmp(1, 1, b"x")).unwrap();
                expect(&mut peer, &srmp(0x81, 1, b"x"));
                reset(peer);
            }
            _ => reset(peer),
        }
    }
    assert_serves(&server);
    let until = Instant::now() + PATIENCE;
    while server.stats().sessions > 0 {
        assert!(Instant::now() < until, "{} sessions are left", server.stats().sessions);
        std::thread::yield_now();
    }
    let stats = server.stats();
    assert_eq!((stats.refused, stats.workers.panics), (0, 0));
    assert!(stats.opened <= CYCLES + 1);
}

#[test]
fn announcing_a_large_frame_costs_the_server_little() {
    // 200 peers announce 16 MiB each and send nothing of it.
    let server = standard_echo();
    let before = resident();
    let peers: Vec<_> = (0..200)
        .map(|_| {
            let mut peer = raw(&server);
            peer.write_all(&[1, 1, 0xff, 0xff, 0, 0, 0, 1, 0]).unwrap();
            peer
        })
        .collect();
    assert_serves(&server);
    let grown = resident().saturating_sub(before);
    // Other tests run in this process too, which is why this is not tighter.
    assert!(grown < 1 << 30, "{grown} bytes for 200 announcements");
    drop(peers);
}

/// Bytes of this process in memory.
fn resident() -> usize {
    let Ok(pages) = std::fs::read_to_string("/proc/self/statm") else { return 0 };
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
