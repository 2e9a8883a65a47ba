//! Where servers listen, how they spread connections, and their limits.

use std::collections::HashMap;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Mutex;
use std::sync::mpsc::Sender;
use std::time::Duration;

use corewire::runtime::{SendError, WorkerId, current_worker};

use corewire::FrameSendError::NoReplyExpected;
use corewire::{
    Bytes, CloseReason, Frame, FrameKind, FrameSendError, Handler, NetServer, Placement, ServerError,
    ServerHandle, Session,
};

use crate::common::*;

/// Says on which worker each session opens, and when it is over.
struct Whereabouts {
    events: Sender<Event>,
}

#[derive(Debug, PartialEq, Eq)]
enum Event {
    Open(u64, WorkerId),
    Close(u64, String),
}

impl Handler for Whereabouts {
    fn on_open(&mut self, session: &Session) {
        self.events.send(Event::Open(session.id(), current_worker().unwrap())).unwrap();
    }

    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        session.reply(&frame, frame.payload()).unwrap();
    }

    fn on_close(&mut self, session: &Session, reason: &CloseReason) {
        // The test may be over.
        let _ = self.events.send(Event::Close(session.id(), reason.to_string()));
    }
}

fn watched(server: NetServer) -> (ServerHandle, Events<Event>) {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let handler = move || Whereabouts { events: sender.lock().unwrap().clone() };
    (server.handler(handler).start().unwrap(), events)
}

fn opened(event: Event) -> (u64, WorkerId) {
    let Event::Open(id, worker) = event else { panic!("{event:?}") };
    (id, worker)
}

fn assert_echoes(mut peer: impl Read + Write) {
    peer.write_all(b"hello").unwrap();
    let mut reply = [0; 5];
    peer.read_exact(&mut reply).unwrap();
    assert_eq!(&reply, b"hello");
}

fn machine_has_ipv6() -> bool {
    TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok()
}

#[test]
fn a_port_alone_means_ipv4_and_ipv6_under_one_port() {
    let server = NetServer::on_port(0).handler(echo).workers(2).start().unwrap();
    let addresses = server.local_addrs();
    let port = addresses[0].port();
    assert_ne!(port, 0);
    assert!(addresses.iter().all(|address| address.port() == port), "{addresses:?}");
    assert_echoes(raw_to(([127, 0, 0, 1], port).into()));
    if machine_has_ipv6() {
        assert_eq!(addresses.len(), 2);
        assert_echoes(raw_to((Ipv6Addr::LOCALHOST, port).into()));
    } else {
        eprintln!("skipped: this machine has no IPv6");
    }
    assert_eq!(server.uri(), format!("tcp://*:{port}"));
}

#[test]
fn a_server_listens_on_what_its_uri_says() {
    for uri in
        ["tcp://127.0.0.1:0", "127.0.0.1:0", "TCP://localhost:0", "tcp://*:0", "tcp://0.0.0.0:0/ignored"]
    {
        let server = NetServer::bind(uri).handler(echo).workers(1).start().unwrap();
        assert_ne!(server.local_addrs()[0].port(), 0, "{uri}");
        // What it says of itself is where a client gets to it.
        let client = client_of(server.uri()).inbox(1).connect_blocking().unwrap();
        wait(client.send_raw(b"x")).unwrap();
        drop(client);
        assert_echoes(raw(&server));
    }
    if machine_has_ipv6() {
        let server = NetServer::bind("tcp://[::1]:0").handler(echo).workers(1).start().unwrap();
        assert!(server.uri().starts_with("tcp://[::1]:"), "{}", server.uri());
        assert_echoes(raw_to(server.local_addrs()[0]));
    } else {
        eprintln!("skipped: this machine has no IPv6");
    }
}

#[test]
fn unix_sockets_with_a_path_and_abstract() {
    let path = std::env::temp_dir().join(format!("corewire-test-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let uri = format!("unix://{}", path.display());
    let server = NetServer::bind(&uri).handler(echo).workers(2).start().unwrap();
    assert_eq!((server.uri(), server.local_addrs()), (&*uri, &[][..]));
    for _ in 0..4 {
        assert_echoes(UnixStream::connect(&path).unwrap());
    }
    drop(server);

    let uri = format!("unix://@corewire-test-{}", std::process::id());
    let server = standard_on(&uri);
    assert_eq!(server.uri(), uri);
    let client = client_of(&uri).connect_blocking().unwrap();
    assert_eq!(wait(client.request(b"hello")).unwrap(), &b"hello"[..]);
    let error = NetServer::bind(&uri).start().unwrap_err();
    assert!(error.to_string().contains("another server has it"), "{error}");
}

fn standard_on(uri: &str) -> ServerHandle {
    NetServer::bind(uri).codec(corewire::StandardCodec::default).handler(echo).workers(2).start().unwrap()
}

#[test]
fn the_path_of_a_server_that_is_gone_can_be_used_again() {
    let path = std::env::temp_dir().join(format!("corewire-again-{}.sock", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let uri = format!("unix://{}", path.display());
    // One that died and left its file behind.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    for _ in 0..2 {
        let server = NetServer::bind(&uri).handler(echo).workers(1).start().unwrap();
        assert_echoes(UnixStream::connect(&path).unwrap());
        // One that lives is not pushed aside.
        let error = NetServer::bind(&uri).start().unwrap_err();
        assert!(error.to_string().contains("another server has it"), "{error}");
        assert_echoes(UnixStream::connect(&path).unwrap());
        drop(server);
    }
    assert!(!path.exists(), "a server that stops takes its file with it");
    // What is no socket is left alone.
    std::fs::write(&path, b"precious").unwrap();
    NetServer::bind(&uri).start().unwrap_err();
    assert_eq!(std::fs::read(&path).unwrap(), b"precious");
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_port_in_use_is_an_error_that_says_so() {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let uri = format!("tcp://{}", other.local_addr().unwrap());
    let error = NetServer::bind(&uri).workers(2).start().unwrap_err();
    assert!(matches!(&error, ServerError::Listen { source, .. } if source.kind() == ErrorKind::AddrInUse));
    let text = error.to_string();
    assert!(text.contains(&uri["tcp://".len()..]) && text.contains("another server has it"), "{text}");
}

#[test]
fn two_servers_do_not_share_a_port_even_with_reuse_port() {
    let first = NetServer::bind("tcp://127.0.0.1:0").workers(2).start().unwrap();
    let port = first.local_addrs()[0].port();
    for workers in [1, 2] {
        for server in [NetServer::bind(first.uri()), NetServer::on_port(port)] {
            let error = server.workers(workers).start().unwrap_err();
            assert!(error.to_string().contains("another server has it"), "{workers}: {error}");
        }
    }
    drop(first);
    NetServer::bind(format!("tcp://127.0.0.1:{port}")).workers(2).start().unwrap();
}

#[test]
fn what_is_wrong_with_an_address_is_said() {
    for (uri, word) in [
        ("gopher://127.0.0.1:1", "gopher"),
        ("ws://127.0.0.1:0", "ws"),
        ("http://127.0.0.1:0", "http"),
        ("tcp://127.0.0.1:70000", "70000"),
        ("tcp://127.0.0.1", "port"),
        ("tcp://no-such-host.invalid:1", "no-such-host.invalid"),
        ("", "no host"),
        ("unix:///no/such/directory/socket", "/no/such/directory/socket"),
        // No address of this machine: set aside for documentation.
        ("tcp://192.0.2.1:0", "192.0.2.1"),
    ] {
        let error = NetServer::bind(uri).workers(1).start().unwrap_err().to_string();
        assert!(error.contains(word), "{uri}: {error}");
    }
}

#[test]
fn session_ids_count_from_1_and_are_not_used_again() {
    let (server, events) = watched(local());
    for id in 1..=5 {
        let peer = raw(&server);
        assert_eq!(opened(events.next()).0, id);
        drop(peer);
        assert!(matches!(events.next(), Event::Close(over, _) if over == id));
    }
    assert_eq!(server.stats().opened, 5);
}

#[test]
fn round_robin_gives_each_worker_the_same_share() {
    let server = NetServer::bind("tcp://127.0.0.1:0").workers(3).placement(Placement::RoundRobin);
    let (server, events) = watched(server);
    let peers: Vec<TcpStream> = (0..9).map(|_| raw(&server)).collect();
    let mut shares = HashMap::<WorkerId, usize>::new();
    for event in events.take(9) {
        *shares.entry(opened(event).1).or_default() += 1;
    }
    assert_eq!(shares.into_values().collect::<Vec<_>>(), [3, 3, 3]);
    peers.into_iter().for_each(assert_echoes);
}

#[test]
fn least_connections_fills_up_the_emptiest_worker() {
    let server = NetServer::bind("tcp://127.0.0.1:0").workers(2).placement(Placement::LeastConnections);
    let (server, events) = watched(server);
    let mut peers: Vec<_> = (0..6)
        .map(|_| {
            let peer = raw(&server);
            (peer, opened(events.next()))
        })
        .collect();
    let first_worker = peers[0].1.1;
    assert_eq!(peers.iter().filter(|(_, (_, worker))| *worker == first_worker).count(), 3);
    // One worker's sessions end: the next three connections are its own.
    let (gone, _kept): (Vec<_>, Vec<_>) =
        peers.drain(..).partition(|(_, (_, worker))| *worker == first_worker);
    drop(gone);
    for _ in 0..3 {
        assert!(matches!(events.next(), Event::Close(..)));
    }
    wait_until(|| server.stats().sessions == 3);
    let again: Vec<_> = (0..3)
        .map(|_| {
            let peer = raw(&server);
            (peer, opened(events.next()))
        })
        .collect();
    assert!(again.iter().all(|(_, (_, worker))| *worker == first_worker));
}

/// For what is counted a moment after its event: looks until it is so.
#[track_caller]
fn wait_until(mut is_so: impl FnMut() -> bool) {
    let until = std::time::Instant::now() + PATIENCE;
    while !is_so() {
        assert!(std::time::Instant::now() < until, "it has not come to be");
        std::thread::yield_now();
    }
}

#[test]
fn reuse_port_serves_every_connection_on_some_worker() {
    let (server, events) = watched(NetServer::bind("tcp://127.0.0.1:0").workers(2));
    let peers: Vec<TcpStream> = (0..64).map(|_| raw(&server)).collect();
    let mut ids: Vec<u64> = events.take(64).into_iter().map(|event| opened(event).0).collect();
    ids.sort_unstable();
    assert_eq!(ids, (1..=64).collect::<Vec<_>>());
    peers.into_iter().for_each(assert_echoes);
}

#[test]
fn without_a_session_table_nobody_is_found_but_all_are_counted_and_closed() {
    let (server, events) = watched(local().session_table(false));
    let mut peer = raw(&server);
    assert_eq!(opened(events.next()).0, 1);
    assert_eq!(wait(server.sessions().broadcast(&b"x"[..]).done()), 0);
    assert_eq!(wait(server.sessions().send_to(1, &b"x"[..]).done()), 0);
    assert_eq!(wait(server.sessions().close_where(|_| true).done()), 0);
    assert_eq!(server.stats().sessions, 1);
    let report = server.shutdown(PATIENCE);
    assert_eq!((report.sessions, report.finished, report.cut), (1, 1, 0));
    assert_eq!(read_to_end(&mut peer), b"");
}

#[test]
fn an_idle_session_is_closed() {
    let (server, events) = watched(local().idle_timeout(Some(Duration::from_millis(60))));
    let began = std::time::Instant::now();
    let mut peer = raw(&server);
    assert_eq!(opened(events.next()).0, 1);
    assert_eq!(events.next(), Event::Close(1, "idle for 60ms".to_owned()));
    assert!(began.elapsed() >= Duration::from_millis(59));
    assert_eq!(read_to_end(&mut peer), b"");
    drop(server);
}

#[test]
fn a_connection_over_the_limit_is_closed_at_once_and_a_place_becomes_free() {
    let (server, events) = watched(local().max_connections(2));
    let first = raw(&server);
    let second = raw(&server);
    events.take(2);
    let mut third = raw(&server);
    assert_eq!(read_to_end(&mut third), b"");
    let stats = server.stats();
    assert_eq!((stats.sessions, stats.peak_sessions, stats.opened, stats.refused), (2, 2, 2, 1));
    drop(first);
    assert!(matches!(events.next(), Event::Close(1, _)));
    let fourth = raw(&server);
    assert_eq!(opened(events.next()).0, 3);
    assert_echoes(fourth);
    assert_echoes(second);
}

/// The whole of 127.0.0.0/8 is this machine, on Linux.
#[cfg(target_os = "linux")]
fn connect_from(source: [u8; 4], server: &ServerHandle) -> TcpStream {
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&std::net::SocketAddr::from((source, 0)).into()).unwrap();
    socket.connect(&address_of(server).into()).unwrap();
    patient(socket.into())
}

#[cfg(target_os = "linux")]
#[test]
fn an_address_with_too_many_connections_is_refused_and_others_are_served() {
    for placement in [Placement::ReusePort, Placement::RoundRobin] {
        let server = NetServer::bind("tcp://127.0.0.1:0").workers(2).placement(placement);
        let (server, events) = watched(server.max_connections_per_address(Some(2)));
        let (greedy, other) = ([127, 0, 0, 2], [127, 0, 0, 3]);
        let first = connect_from(greedy, &server);
        let second = connect_from(greedy, &server);
        events.take(2);
        assert_eq!(read_to_end(&mut connect_from(greedy, &server)), b"");
        let stats = server.stats();
        assert_eq!((stats.sessions, stats.opened, stats.refused, stats.refused_by_address), (2, 2, 0, 1));
        assert_echoes(connect_from(other, &server));
        let (Event::Open(..), Event::Close(..)) = (events.next(), events.next()) else {
            panic!("the session of the other address comes and goes")
        };
        drop(first);
        assert!(matches!(events.next(), Event::Close(..)));
        // The permit goes with the handler, a moment after its last event.
        wait_until(|| server.stats().sessions == 1);
        assert_echoes(connect_from(greedy, &server));
        assert_echoes(second);
        assert_eq!(server.stats().refused_by_address, 1);
    }
}

/// Sends pieces until the queue is full, says how many were taken, and more once there is room.
struct Flood {
    events: Sender<FloodEvent>,
}

#[derive(Debug, PartialEq, Eq)]
enum FloodEvent {
    Full { taken: usize, queued: usize, limit: usize },
    Drained,
}

const PIECE: usize = 10_000;

impl Handler for Flood {
    fn on_open(&mut self, session: &Session) {
        let mut taken = 0;
        loop {
            match session.send(&[taken as u8; PIECE]) {
                Ok(()) => taken += 1,
                Err(FrameSendError::Send(SendError::QueueFull { queued, limit })) => {
                    return self.events.send(FloodEvent::Full { taken, queued, limit }).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn on_frame(&mut self, _: &Session, _: Frame<'_>) {}

    fn on_drained(&mut self, session: &Session) {
        self.events.send(FloodEvent::Drained).unwrap();
        session.send(b"end").unwrap();
        session.close();
    }
}

#[test]
fn a_full_queue_refuses_and_loses_nothing_of_what_it_took() {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let server = local()
        .water_marks(50_000, 100_000)
        .send_queue_limit(8 << 20)
        .handler(move || Flood { events: sender.lock().unwrap().clone() })
        .start()
        .unwrap();
    let mut peer = raw(&server);
    let FloodEvent::Full { taken, queued, limit } = events.next() else { panic!("no limit") };
    assert_eq!(limit, 8 << 20);
    assert!(queued >= limit && queued < limit + PIECE, "{queued}");
    let mut expected: Vec<u8> = (0..taken).flat_map(|piece| [piece as u8; PIECE]).collect();
    expected.extend(b"end");
    assert!(read_to_end(&mut peer) == expected);
    assert_eq!(events.next(), FloodEvent::Drained);
}

#[test]
fn a_peer_that_does_not_read_is_not_received_from() {
    const FRAME: usize = 60_000;
    let server = standard_echo();
    let mut peer = raw(&server);
    // Far more than all buffers on the way hold: the server must stop receiving instead of queueing replies.
    peer.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let frame = srmp(1, 1, &[7; FRAME]);
    let (mut written, goal) = (0_usize, 512 << 20);
    let mut at = 0;
    while written < goal {
        match peer.write(&frame[at..]) {
            Ok(len) => {
                written += len;
                at = (at + len) % frame.len();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock);
                break;
            }
        }
    }
    assert!(written < goal, "the peer was never held back");
    // Nothing is lost once it reads.
    let reply = srmp(0x81, 1, &[7; FRAME]);
    for _ in 0..written / frame.len() {
        expect(&mut peer, &reply);
    }
    assert_serves(&server);
}

#[test]
fn a_line_of_statistics_comes_every_period() {
    let (sender, events) = events();
    let sender = Mutex::new(sender);
    let server = local()
        .handler(echo)
        .stats_line(Duration::from_millis(20), move |line| {
            let _ = sender.lock().unwrap().send(line.to_owned());
        })
        .start()
        .unwrap();
    let peer = raw(&server);
    assert_echoes(&peer);
    let line = loop {
        let line = events.next();
        if line.starts_with("sessions 1 ") {
            break line;
        }
    };
    assert!(line.starts_with("sessions 1 (peak 1), opened "), "{line}");
    for part in ["refused 0", "received ", "B/s", "sent "] {
        assert!(line.contains(part), "{line}");
    }
}

#[test]
fn dropping_the_handle_stops_the_server_at_once() {
    let (server, events) = watched(local());
    let address = address_of(&server);
    let mut peer = raw(&server);
    events.next();
    drop(server);
    assert_eq!(events.next(), Event::Close(1, "shut down".to_owned()));
    assert_eq!(read_to_end(&mut peer), b"");
    assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
}

#[test]
fn several_servers_live_on_one_runtime() {
    let runtime = corewire::runtime::Runtime::builder().workers(2).build().unwrap();
    let first = NetServer::bind("tcp://127.0.0.1:0").handler(echo).start_on(runtime.handle()).unwrap();
    let second = NetServer::bind("tcp://127.0.0.1:0").handler(echo).start_on(runtime.handle()).unwrap();
    let (kept, mut gone) = (raw(&second), raw(&first));
    assert_echoes(&gone);
    drop(first);
    assert_eq!(read_to_end(&mut gone), b"");
    assert_echoes(&kept);
    assert_echoes(raw(&second));
    drop(runtime);
    // Nobody is left to do it: neither a hang nor a panic.
    assert_eq!(wait(second.sessions().broadcast(&b"x"[..]).done()), 0);
    let report = second.shutdown(Duration::from_secs(5));
    assert_eq!(report.cut, 0);
}

#[test]
fn a_reply_to_what_expects_none_is_refused_and_nothing_is_sent() {
    let server = standard(|| {
        |session: &Session, frame: Frame<'_>| {
            let kind = frame.kind();
            let expected = if kind == FrameKind::Request { Ok(()) } else { Err(NoReplyExpected(kind)) };
            assert_eq!(session.reply(&frame, b"1"), expected);
            assert_eq!(session.reply_bytes(&frame, Bytes::from_static(b"2")), expected);
            assert_eq!(session.reply_error(&frame, b"3"), expected);
        }
    });
    let mut peer = raw(&server);
    // One way, a reply to no call, and a request.
    peer.write_all(&[srmp(0x41, 0, b""), srmp(0x81, 7, b""), srmp(1, 9, b"")].concat()).unwrap();
    expect(&mut peer, &[srmp(0x81, 9, b"1"), srmp(0x81, 9, b"2"), srmp(0xc1, 9, b"3")].concat());
    assert_eq!(server.stats().workers.panics, 0);
    let message = NoReplyExpected(FrameKind::OneWay).to_string();
    assert_eq!(message, "a OneWay frame expects no reply: send a message of its own by `send`");
}

#[test]
fn servers_of_one_runtime_each_have_their_memory_limit() {
    const BYTES: usize = 20 << 20;
    struct Generous;
    impl Handler for Generous {
        fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
            let _ = session.send(&vec![7; if frame.payload() == b"much" { BYTES } else { 1 }]);
        }
    }
    let runtime = corewire::runtime::Runtime::builder().workers(1).build().unwrap();
    let start = |server: NetServer| server.handler(|| Generous).start_on(runtime.handle()).unwrap();
    let (limited, other) = (start(local().memory_limit(8 << 20)), start(local()));
    let mut peers = [&limited, &other].map(raw);
    let mut modest = raw(&limited);
    wait_until(|| limited.stats().opened == 2);
    for peer in &mut peers {
        peer.write_all(b"much").unwrap();
    }
    let [closed, mut served] = peers;
    wait_until(|| limited.stats().sessions == 1);
    wait_until(|| limited.stats().held_bytes <= 128 * 1024);
    modest.write_all(b"x").unwrap();
    modest.read_exact(&mut [0]).unwrap();
    served.read_exact(&mut vec![0; BYTES]).unwrap();
    drop(closed);
    let mut anew = raw(&limited);
    anew.write_all(b"x").unwrap();
    anew.read_exact(&mut [0]).unwrap();
    let error = local().memory_limit(1000).start_on(runtime.handle()).unwrap_err();
    assert!(error.to_string().contains("memory limit"), "{error}");
}
