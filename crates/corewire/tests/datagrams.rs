//! Servers and clients on UDP and KCP, on the driver that `COREWIRE_DRIVER` names.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use corewire::runtime::{Connection, Protocol};
use corewire::uri::Scheme;
use corewire::{
    Bytes, CallError, CloseReason, Frame, Handler, LineCodec, NetClient, NetServer, NetUri, ServerError,
    ServerHandle, Session, StandardCodec, block_on,
};

const PATIENCE: Duration = Duration::from_secs(20);

fn echo() -> impl FnMut(&Session, Frame<'_>) {
    |session: &Session, frame: Frame<'_>| drop(session.reply(&frame, frame.payload()))
}

fn server(uri: &str) -> ServerHandle {
    NetServer::bind(uri).codec(StandardCodec::default).handler(echo).workers(2).start().unwrap()
}

struct SendsBack;

impl Handler for SendsBack {
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        session.send(frame.payload()).unwrap();
    }
}

fn raw_echo(sessions: usize) -> ServerHandle {
    NetServer::bind("udp://127.0.0.1:0")
        .handler(|| SendsBack)
        .workers(1)
        .max_datagram_sessions(sessions)
        .start()
        .unwrap()
}

fn client(uri: &str) -> NetClient {
    NetUri::parse(uri).unwrap().client().codec(StandardCodec::default).connect_blocking().unwrap()
}

fn peer(server: &ServerHandle) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(server.local_addrs()[0]).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket
}

fn until(what: &str, done: impl Fn() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < PATIENCE, "not within {PATIENCE:?}: {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn requests_get_their_replies_over_udp() {
    let server = server("udp://127.0.0.1:0");
    assert!(server.uri().starts_with("udp://127.0.0.1:"), "{}", server.uri());
    let client = client(server.uri());
    for len in [0, 1, 1400, 9000, 65_503] {
        let payload = vec![7; len];
        assert!(block_on(client.request(&payload)).unwrap() == payload, "{len} bytes");
    }
    assert_eq!(server.stats().sessions, 1);
}

#[test]
fn what_fits_no_datagram_is_an_error_of_its_own_call() {
    let server = server("udp://127.0.0.1:0");
    let client = client(server.uri());
    let error = block_on(client.request(&vec![0; 65_504]).timeout(Duration::from_secs(2))).unwrap_err();
    assert!(matches!(error, CallError::Encode(_)), "{error}");
    assert_eq!(&block_on(client.request(b"after")).unwrap()[..], b"after");
}

#[test]
fn requests_get_their_replies_over_kcp() {
    let server = server("kcp://127.0.0.1:0");
    assert!(server.uri().starts_with("kcp://127.0.0.1:"), "{}", server.uri());
    let client = client(server.uri());
    for len in [0, 1, 1400, 70_000, 1 << 20] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        assert!(block_on(client.request(&payload)).unwrap() == payload, "{len} bytes");
    }
}

#[test]
fn many_clients_each_have_their_session() {
    for scheme in ["udp", "kcp"] {
        let server = server(&format!("{scheme}://127.0.0.1:0"));
        let clients: Vec<_> = (0..50).map(|_| client(server.uri())).collect();
        for round in 0..5_u8 {
            for (at, client) in clients.iter().enumerate() {
                let payload = [round, at as u8];
                assert_eq!(&block_on(client.request(&payload)).unwrap()[..], payload);
            }
        }
        assert_eq!(server.stats().sessions, 50, "{scheme}");
        let report = server.shutdown(Duration::from_secs(5));
        assert_eq!((report.sessions, report.finished), (50, 50), "{scheme}");
    }
}

#[test]
fn a_kcp_client_that_goes_ends_its_session() {
    let server = server("kcp://127.0.0.1:0");
    let gone = client(server.uri());
    block_on(gone.request(b"x")).unwrap();
    assert_eq!(server.stats().sessions, 1);
    drop(gone);
    until("the session ends", || server.stats().sessions == 0);
}

#[test]
fn a_port_alone_serves_tcp_and_udp() {
    let server =
        NetServer::on_port(0).codec(StandardCodec::default).handler(echo).workers(2).start().unwrap();
    let port = server.local_addrs()[0].port();
    for uri in [format!("tcp://127.0.0.1:{port}"), format!("udp://127.0.0.1:{port}")] {
        assert_eq!(&block_on(client(&uri).request(b"hello")).unwrap()[..], b"hello", "{uri}");
    }
    if server.local_addrs().iter().any(|address| address.is_ipv6()) {
        for uri in [format!("tcp://[::1]:{port}"), format!("udp://[::1]:{port}")] {
            assert_eq!(&block_on(client(&uri).request(b"hello")).unwrap()[..], b"hello", "{uri}");
        }
    }
}

#[test]
fn nobody_answers_at_a_closed_port_and_the_call_says_so() {
    let gone = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let client = client(&format!("udp://{gone}"));
    let begun = Instant::now();
    let error = block_on(client.request(b"?")).unwrap_err();
    assert!(matches!(error, CallError::ConnectionLost(_)), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_lost_reply_is_asked_for_again() {
    // Answers every third request, and none that asks for nothing.
    let count = Arc::new(AtomicUsize::new(0));
    let server = NetServer::bind("udp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(move || {
            let count = count.clone();
            move |session: &Session, frame: Frame<'_>| {
                if frame.payload() != b"?" && count.fetch_add(1, Ordering::Relaxed) % 3 == 2 {
                    session.reply(&frame, frame.payload()).unwrap();
                }
            }
        })
        .workers(1)
        .start()
        .unwrap();
    let client = client(server.uri());
    for n in 0..5_u8 {
        // A machine that is stopped may miss a reply: there are others.
        let reply = block_on(client.request_with_retries(&[n], Duration::from_millis(100), 100)).unwrap();
        assert_eq!(&reply[..], [n]);
    }
    let error = block_on(client.request_with_retries(b"?", Duration::from_millis(5), 2)).unwrap_err();
    assert_eq!(error, CallError::TimedOut(Duration::from_millis(5)));
}

#[test]
fn a_silent_peer_loses_its_session() {
    let ends = mpsc::channel();
    struct Tells(mpsc::Sender<String>);
    impl Handler for Tells {
        fn on_frame(&mut self, _: &Session, _: Frame<'_>) {}
        fn on_close(&mut self, _: &Session, reason: &CloseReason) {
            self.0.send(reason.to_string()).unwrap();
        }
    }
    let sender = ends.0;
    let server = NetServer::bind("udp://127.0.0.1:0")
        .handler(move || Tells(sender.clone()))
        .datagram_idle_timeout(Some(Duration::from_millis(30)))
        .workers(1)
        .start()
        .unwrap();
    peer(&server).send(b"once").unwrap();
    let reason = ends.1.recv_timeout(PATIENCE).unwrap();
    assert!(reason.contains("idle"), "{reason}");
    until("no session is left", || server.stats().sessions == 0);
}

#[test]
fn empty_datagrams_and_halves_of_frames_do_no_harm() {
    let errors = Arc::new(AtomicUsize::new(0));
    struct Counts(Arc<AtomicUsize>);
    impl Handler for Counts {
        fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
            session.reply(&frame, frame.payload()).unwrap();
        }
        fn on_error(&mut self, _: &Session, _: &corewire::proto::codec::DecodeError) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let counted = errors.clone();
    let server = NetServer::bind("udp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(move || Counts(counted.clone()))
        .workers(1)
        .start()
        .unwrap();
    let peer = peer(&server);
    let request = [1, 9, 3, 0, b'a', b'b', b'c'];
    for datagram in [&[][..], &request[..2], &request[..6], &request] {
        peer.send(datagram).unwrap();
    }
    let mut buffer = [0; 100];
    let len = peer.recv(&mut buffer).unwrap();
    assert_eq!(&buffer[len - 3..len], b"abc");
    assert_eq!((errors.load(Ordering::Relaxed), server.stats().sessions), (2, 1));
}

fn exchange(peer: &UdpSocket) {
    let mut buffer = [0; 10];
    peer.send(b"hi").unwrap();
    assert_eq!(peer.recv(&mut buffer).unwrap(), 2);
}

/// Has a peer be one that talks: it is heard in several milliseconds.
fn talk(peer: &UdpSocket) {
    for _ in 0..5 {
        exchange(peer);
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_flood_of_new_peers_takes_no_place_of_those_that_talk() {
    let server = raw_echo(100);
    let talker = peer(&server);
    talk(&talker);
    for datagrams in 1..=3 {
        for _ in 0..10 {
            let strangers: Vec<_> = (0..50).map(|_| peer(&server)).collect();
            for _ in 0..datagrams {
                strangers.iter().for_each(|stranger| assert_eq!(stranger.send(b"x").unwrap(), 1));
                // Served all the same: a new peer finds room each time.
                assert_eq!(strangers[49].recv(&mut [0; 10]).unwrap(), 1);
            }
        }
    }
    // Those that made room are gone at the end of the tick.
    until("the limit holds", || server.stats().sessions <= 100);
    let opened = server.stats().opened;
    assert!(opened > 1000);
    exchange(&talker);
    assert_eq!(server.stats().opened, opened, "it has the session that it had");
}

/// Bytes of memory that this process has in use.
fn resident() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * rustix::param::page_size()
}

#[test]
fn a_hundred_thousand_forged_peers_take_bounded_memory_and_an_honest_one_is_served() {
    const PEERS: u32 = 100_000;
    const LIMIT: usize = 1000;
    let server = raw_echo(LIMIT);
    let honest = peer(&server);
    let mut buffer = [0; 10];
    let mut before = 0;
    for n in 0..PEERS {
        // All of 127.0.0.0/8 is this machine; each peer is an address of its own.
        let address = std::net::Ipv4Addr::from(0x7f00_0100 + n);
        let forged = UdpSocket::bind((address, 0)).unwrap();
        forged.send_to(b"x", server.local_addrs()[0]).unwrap();
        if n % 500 == 0 {
            honest.send(b"me").unwrap();
            assert_eq!(honest.recv(&mut buffer).unwrap(), 2, "after {n} peers");
            // Those that made room are gone at the end of the tick.
            assert!(server.stats().sessions <= LIMIT + 2000, "{} sessions", server.stats().sessions);
        }
        if n == 5000 {
            before = resident();
        }
    }
    until("the limit holds", || server.stats().sessions <= LIMIT);
    let grown = resident().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes for the last {} peers", PEERS - 5000);
    assert!(server.stats().opened > u64::from(PEERS) * 9 / 10, "{} opened", server.stats().opened);
}

#[test]
fn when_all_sessions_talk_a_new_peer_takes_the_place_of_the_one_not_heard_for_longest() {
    let server = raw_echo(2);
    let talkers: Vec<_> = (0..2).map(|_| peer(&server)).collect();
    talkers.iter().for_each(talk);
    exchange(&talkers[0]);
    let stranger = peer(&server);
    exchange(&stranger);
    until("the limit holds", || server.stats().sessions == 2);
    exchange(&talkers[0]);
    assert_eq!(server.stats().opened, 3, "the one heard last has the session that it had");
    exchange(&talkers[1]);
    assert_eq!(server.stats().opened, 4);
}

#[test]
fn the_limit_on_connections_is_not_one_of_sessions_on_datagram_sockets() {
    for scheme in ["udp", "kcp"] {
        let server = NetServer::bind(format!("{scheme}://127.0.0.1:0")).max_connections(5);
        let server = server.codec(StandardCodec::default).handler(echo).workers(1).start().unwrap();
        let clients: Vec<_> = (0..20).map(|_| client(server.uri())).collect();
        for client in &clients {
            assert_eq!(&block_on(client.request(b"hi")).unwrap()[..], b"hi");
        }
        let stats = server.stats();
        assert_eq!((stats.sessions, stats.refused), (20, 0), "{scheme}");
    }
}

#[test]
fn sessions_of_datagrams_take_no_place_of_connections() {
    let server = NetServer::on_port(0).max_connections(5).codec(StandardCodec::default);
    let server = server.handler(echo).workers(1).start().unwrap();
    let port = server.local_addrs()[0].port();
    let of = |scheme: &str, count: usize| -> Vec<_> {
        (0..count).map(|_| client(&format!("{scheme}://127.0.0.1:{port}"))).collect()
    };
    let all = [of("udp", 10), of("tcp", 5)].concat();
    for client in &all {
        assert_eq!(&block_on(client.request(b"hi")).unwrap()[..], b"hi");
    }
    assert_eq!(server.stats().refused, 0);
}

#[test]
fn random_datagrams_do_not_disturb_kcp() {
    let server = server("kcp://127.0.0.1:0");
    let client = client(server.uri());
    let noise = peer(&server);
    let mut state = 1_u64;
    for round in 0..2000 {
        let mut bytes = [0_u8; 80];
        for byte in &mut bytes {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            *byte = (state >> 56) as u8;
        }
        // A command that exists, now and then.
        bytes[4] = if round % 2 == 0 { 81 + (round % 4) as u8 } else { bytes[4] };
        noise.send(&bytes[..round % 80]).unwrap();
        if round % 100 == 0 {
            assert_eq!(&block_on(client.request(b"calm")).unwrap()[..], b"calm");
        }
    }
}

struct Silent;

impl Protocol for Silent {
    fn on_received(&mut self, _: &Connection, _: Bytes) {}

    fn on_closed(&mut self, _: &Connection, _: &CloseReason) {}
}

#[test]
fn a_server_of_a_protocol_refuses_datagrams_and_says_what_to_use() {
    let error = NetServer::bind("udp://127.0.0.1:0").workers(1).protocol(|| Silent).start().unwrap_err();
    assert!(matches!(error, ServerError::Scheme(Scheme::Udp)), "{error}");
    assert!(error.to_string().ends_with("use tcp, tls, kcp or unix"), "{error}");
    drop(NetServer::bind("kcp://127.0.0.1:0").workers(1).protocol(|| Silent).start().unwrap());
}

#[test]
fn a_server_of_a_protocol_on_a_port_leaves_the_udp_port_alone() {
    // Another process may have the UDP port of that number, but not each time.
    let udp_is_free = || {
        let server = NetServer::on_port(0).workers(1).protocol(|| Silent).start().unwrap();
        let port: u16 = server.uri().strip_prefix("tcp://*:").unwrap().parse().unwrap();
        drop(TcpStream::connect(("127.0.0.1", port)).unwrap());
        UdpSocket::bind(("127.0.0.1", port)).is_ok()
    };
    assert!((0..16).any(|_| udp_is_free()));
}

#[test]
fn a_message_with_a_suffix_is_one_datagram_however_it_is_sent() {
    let server = NetServer::bind("udp://127.0.0.1:0")
        .codec(LineCodec::new)
        .workers(1)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                session.send_bytes(Bytes::from_static(b"sent")).unwrap();
                session.reply_bytes(&frame, frame.to_bytes()).unwrap();
            }
        })
        .start()
        .unwrap();
    let peer = peer(&server);
    let mut block = [0; 100];
    let mut next = || {
        let len = peer.recv(&mut block).unwrap();
        block[..len].to_vec()
    };
    peer.send(b"asked\n").unwrap();
    assert_eq!([next(), next()], [b"sent\n".to_vec(), b"asked\n".to_vec()]);
    assert_eq!(block_on(server.sessions().broadcast("to all").done()), 1);
    assert_eq!(block_on(server.sessions().broadcast_to(|_| true, "to some").done()), 1);
    assert_eq!([next(), next()], [b"to all\n".to_vec(), b"to some\n".to_vec()]);
}
