//! Peers that misbehave in time: slow, silent, in and out.

use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

use corewire::{NetServer, RateMin, ServerHandle, StandardCodec};

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
    let idle = Duration::from_secs(2);
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(echo)
        .workers(1)
        .idle_timeout(Some(idle))
        .start()
        .unwrap();
    let mut silent = raw(&server);
    // One that has begun a frame and says nothing more is as silent.
    let mut begun = raw(&server);
    begun.write_all(&[1, 1, 50]).unwrap();
    let mut busy = raw(&server);
    let began = Instant::now();
    while began.elapsed() < idle + idle / 4 {
        busy.write_all(&srmp(1, 1, b"x")).unwrap();
        expect(&mut busy, &srmp(0x81, 1, b"x"));
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(read_to_end(&mut silent), b"");
    assert_eq!(read_to_end(&mut begun), b"");
    busy.write_all(&srmp(1, 2, b"y")).unwrap();
    expect(&mut busy, &srmp(0x81, 2, b"y"));
}

/// An echo server that gives its peers two seconds for everything.
fn impatient() -> ServerHandle {
    let window = Duration::from_secs(2);
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(echo)
        .workers(1)
        .first_frame_timeout(Some(window))
        .rate_min(Some(RateMin { bytes_per_second: 1000, window }))
        .start()
        .unwrap()
}

#[test]
fn a_peer_that_connects_and_asks_nothing_is_closed_and_one_that_has_asked_is_not() {
    let server = impatient();
    let mut asked = raw(&server);
    asked.write_all(&srmp(1, 1, b"x")).unwrap();
    expect(&mut asked, &srmp(0x81, 1, b"x"));
    let mut silent = raw(&server);
    assert_eq!(read_to_end(&mut silent), b"");
    asked.write_all(&srmp(1, 2, b"y")).unwrap();
    expect(&mut asked, &srmp(0x81, 2, b"y"));
}

#[test]
fn a_peer_that_feeds_a_frame_byte_by_byte_is_closed() {
    let server = impatient();
    let mut slow = raw(&server);
    let began = Instant::now();
    slow.write_all(&srmp(1, 1, b"x")).unwrap();
    let mut fed = srmp(1, 2, &[3; 250]).into_iter();
    // Any byte would keep an idle timeout away.
    while slow.write_all(&[fed.next().unwrap()]).is_ok() {
        assert!(began.elapsed() < PATIENCE, "it is not closed");
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_serves(&server);
}

#[test]
fn a_peer_that_never_reads_is_closed_while_others_are_served() {
    let server = impatient();
    let mut greedy = raw(&server);
    greedy.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let requests = srmp(1, 1, &[7; 200]).repeat(1000);
    let began = Instant::now();
    // Blocked is not closed: it is tried again.
    while greedy.write_all(&requests).is_ok_or_blocked() {
        assert!(began.elapsed() < PATIENCE, "it is not closed");
        assert_serves(&server);
    }
    assert_serves(&server);
}

trait OkOrBlocked {
    fn is_ok_or_blocked(&self) -> bool;
}

impl OkOrBlocked for std::io::Result<()> {
    fn is_ok_or_blocked(&self) -> bool {
        use std::io::ErrorKind::{TimedOut, WouldBlock};
        self.as_ref().map_or_else(|error| matches!(error.kind(), WouldBlock | TimedOut), |()| true)
    }
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
