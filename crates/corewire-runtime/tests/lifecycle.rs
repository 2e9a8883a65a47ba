//! One life cycle, whatever carries the connection: each test runs over a TCP socket, TLS, a UDP peer and a KCP conversation.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, Bytes};
use common::*;
use corewire_proto::kcp::{Config, Mode};
use corewire_runtime::driver::Socket;
use corewire_runtime::transport::{kcp, udp};
use corewire_runtime::udp::{UdpOptions, UdpPort, UdpSocket, open};
use corewire_runtime::{
    CloseReason, Connection, ConnectionOptions, FrameProgress, MemoryKind, Protocol, RateMin, Runtime,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Transport {
    Tcp,
    #[cfg(feature = "tls")]
    Tls12,
    #[cfg(feature = "tls")]
    Tls13,
    Udp,
    Kcp,
}

#[cfg(feature = "tls")]
const ALL: [Transport; 5] =
    [Transport::Tcp, Transport::Tls12, Transport::Tls13, Transport::Udp, Transport::Kcp];
#[cfg(not(feature = "tls"))]
const ALL: [Transport; 3] = [Transport::Tcp, Transport::Udp, Transport::Kcp];
/// Those that hold a sender back.
#[cfg(feature = "tls")]
const STREAMS: [Transport; 4] = [Transport::Tcp, Transport::Tls12, Transport::Tls13, Transport::Kcp];
#[cfg(not(feature = "tls"))]
const STREAMS: [Transport; 2] = [Transport::Tcp, Transport::Kcp];

impl Transport {
    fn is_stream(self) -> bool {
        self != Self::Udp
    }

    fn is_datagram_socket(self) -> bool {
        matches!(self, Self::Udp | Self::Kcp)
    }
}

/// A connection under test, and the one at its other end, on the same worker.
struct Pair {
    connection: Connection,
    record: Record,
    peer: Connection,
    peer_record: Record,
    /// The socket of the connection, where it shares one.
    port: Option<UdpPort>,
}

fn kcp_options() -> kcp::KcpOptions {
    kcp::KcpOptions {
        conversation: Config::turbo().windows(32, 128).mode(Mode::Stream),
        keys: None,
        answer_timeout: PATIENCE,
    }
}

type MakeAction = Rc<dyn Fn() -> Action>;

/// Serves peers of `transport` with recorders, which are handed over with their connections as they open.
struct Server {
    transport: Transport,
    options: Rc<ConnectionOptions>,
    address: Option<SocketAddr>,
    port: Option<UdpPort>,
    opened: Rc<RefCell<Vec<(Connection, Record)>>>,
    action: MakeAction,
}

impl Server {
    fn new(transport: Transport, options: Rc<ConnectionOptions>, action: MakeAction) -> Self {
        let opened: Rc<RefCell<Vec<(Connection, Record)>>> = Rc::default();
        let mut server = Self { transport, options, address: None, port: None, opened, action };
        if transport.is_datagram_socket() {
            let udp_options = UdpOptions::default();
            let socket = open("127.0.0.1:0".parse().unwrap(), &udp_options).unwrap();
            server.address = socket.local_addr().unwrap().as_socket();
            let (opened, action) = (server.opened.clone(), server.action.clone());
            let make = Box::new(move || Some(Box::new(recorder(&opened, &action)) as Box<dyn Protocol>));
            let options = server.options.clone();
            server.port = Some(
                match transport {
                    Transport::Kcp => kcp::serve(socket, &udp_options, &kcp_options(), options, 100, make),
                    _ => udp::serve(socket, &udp_options, options, 100, make),
                }
                .unwrap(),
            );
        }
        server
    }

    /// Another peer, which has said hello and is served.
    async fn accept(&self, peer_options: Rc<ConnectionOptions>) -> Pair {
        let before = self.opened.borrow().len();
        let (peer, peer_record) = self.connect(peer_options);
        while self.opened.borrow().len() == before {
            some_ticks(1).await;
        }
        let (connection, record) = self.opened.borrow()[before].clone();
        record.wait_received(5).await;
        Pair { connection, record, peer, peer_record, port: self.port.clone() }
    }

    /// A peer that says hello.
    fn connect(&self, peer_options: Rc<ConnectionOptions>) -> (Connection, Record) {
        let peer_record = Record::default();
        let mut protocol = Recorder::new(&peer_record);
        protocol.stays_open = true;
        let udp_options = UdpOptions::default();
        let peer = match (self.transport, self.address) {
            (Transport::Kcp, Some(address)) => {
                kcp::connect(address, &udp_options, &kcp_options(), peer_options, Box::new(protocol)).unwrap()
            }
            (Transport::Udp, Some(address)) => {
                udp::connect(address, &udp_options, peer_options, Box::new(protocol)).unwrap()
            }
            _ => {
                let served = recorder(&self.opened, &self.action);
                stream_pair(self.transport, self.options.clone(), served, peer_options, protocol).1
            }
        };
        peer.send(b"hello").unwrap();
        (peer, peer_record)
    }
}

/// Both ends of a connection on a socket of its own.
fn stream_pair(
    transport: Transport,
    options: Rc<ConnectionOptions>,
    protocol: impl Protocol,
    peer_options: Rc<ConnectionOptions>,
    peer_protocol: impl Protocol,
) -> (Connection, Connection) {
    let (socket, peer) = sockets();
    socket.set_send_buffer_size(16 * 1024).unwrap();
    peer.set_nonblocking(true).unwrap();
    let peer = Socket::from_fd(peer.into()).unwrap();
    #[cfg(feature = "tls")]
    if let Transport::Tls12 | Transport::Tls13 = transport {
        let authority = tls::Authority::new();
        let versions = if transport == Transport::Tls12 { tls::ONLY_12 } else { tls::ONLY_13 };
        let (server, client) = (authority.server(versions), authority.client(versions));
        let name = tls::name("localhost");
        return (
            Connection::open_tls(socket, &server, options, protocol).unwrap(),
            Connection::open_connecting_tls(peer, &client, name, peer_options, peer_protocol).unwrap(),
        );
    }
    assert_eq!(transport, Transport::Tcp);
    (
        Connection::open(socket, options, protocol).unwrap(),
        Connection::open(peer, peer_options, peer_protocol).unwrap(),
    )
}

fn recorder(opened: &Rc<RefCell<Vec<(Connection, Record)>>>, action: &MakeAction) -> Recorder {
    let (record, opened, mut action) = (Record::default(), opened.clone(), action());
    Recorder::with_action(&record.clone(), move |what, connection| {
        if what == "open" {
            opened.borrow_mut().push((connection.clone(), record.clone()));
        }
        action(what, connection);
    })
}

async fn pair_with(transport: Transport, change: impl FnOnce(&mut ConnectionOptions)) -> Pair {
    let server = Server::new(transport, options(change), Rc::new(|| Box::new(|_, _| {})));
    server.accept(options(|_| {})).await
}

async fn pair(transport: Transport) -> Pair {
    pair_with(transport, |_| {}).await
}

impl Pair {
    /// Sends until the peer, which receives nothing any more, holds this side back.
    async fn back_up(&self, bytes: usize) {
        self.peer.pause_receive();
        self.peer.with_socket(|socket| socket.set_recv_buffer_size(16 * 1024)).unwrap().unwrap();
        for _ in 0..20 {
            while self.connection.queued() < bytes {
                self.connection.send(&[7; 4000]).unwrap();
            }
            some_ticks(1).await;
        }
        assert!(self.connection.queued() >= bytes / 2, "{}", self.connection.queued());
    }
}

/// Runs a test over each of these.
fn over<F: Future<Output = ()> + 'static>(transports: &[Transport], test: impl Fn(Transport) -> F) {
    for transport in transports {
        eprintln!("over {transport:?}");
        run(test(*transport));
    }
}

#[test]
fn what_was_sent_before_a_close_arrives_and_the_reason_given_is_told_once() {
    over(&ALL, |transport| async move {
        let pair = pair(transport).await;
        for _ in 0..50 {
            pair.connection.send(&[1; 1000]).unwrap();
        }
        pair.connection.close_with(CloseReason::Protocol("the first".to_owned()));
        pair.connection.close_with(CloseReason::Protocol("another".to_owned()));
        assert!(!pair.connection.is_open());
        assert!(pair.connection.send(b"more").is_err());
        pair.peer_record.wait_received(50_000).await;
        if transport.is_stream() {
            pair.peer_record.wait_for("read closed").await;
            pair.peer.close();
        }
        let reason = pair.record.wait_for("closed").await;
        assert_eq!(reason, "closed: the peer broke the protocol: the first");
        some_ticks(5).await;
        assert_eq!(pair.record.count("closed"), 1);
        assert!(pair.connection.send(b"more").is_err());
    });
}

#[test]
fn an_abort_does_not_wait_and_its_reason_replaces_that_of_a_close_that_it_cuts_short() {
    over(&ALL, |transport| async move {
        let pair = pair(transport).await;
        if transport.is_stream() {
            pair.back_up(500_000).await;
        }
        pair.connection.send(b"last").unwrap();
        pair.connection.close();
        pair.connection.abort(CloseReason::Protocol("cut short".to_owned()));
        pair.connection.abort(CloseReason::Protocol("too late".to_owned()));
        let reason = pair.record.wait_for("closed").await;
        assert_eq!(reason, "closed: the peer broke the protocol: cut short");
    });
}

#[test]
fn a_close_that_the_peer_does_not_let_end_is_cut_after_its_time() {
    over(&STREAMS, |transport| async move {
        let limit = Duration::from_millis(60);
        let pair = pair_with(transport, |options| options.close_timeout = limit).await;
        pair.back_up(500_000).await;
        let begun = corewire_runtime::now();
        pair.connection.close();
        let reason = pair.record.wait_for("closed").await;
        assert!(reason.contains("the peer did not take the last"), "{transport:?}: {reason}");
        assert!(corewire_runtime::now() - begun >= limit);
    });
}

#[test]
fn connections_that_live_at_the_end_of_their_worker_are_told() {
    for transport in ALL {
        let records = corewire_runtime::run(async move {
            let pair = pair(transport).await;
            (pair.record, pair.peer_record)
        })
        .unwrap();
        assert_eq!(records.0.count("closed: shut down"), 1, "{transport:?}: {:?}", records.0.log());
        assert_eq!(records.1.count("closed: shut down"), 1, "{transport:?}: {:?}", records.1.log());
    }
}

#[test]
fn what_was_accepted_leaves_before_the_worker_ends() {
    const BYTES: usize = 300_000;
    // What TLS is to send counts as with TCP.
    for transport in [Transport::Tcp, Transport::Udp, Transport::Kcp] {
        let served = Runtime::builder().workers(1).build().unwrap();
        let (give, address) = std::sync::mpsc::channel();
        let received = served.handle().spawn_on(0, move || async move {
            let (record, options) = (Record::default(), options(|_| {}));
            let recorder = Recorder::new(&record);
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let mut udp_options = UdpOptions::default();
            udp_options.receive_buffer_size = Some(4 << 20);
            let socket = open("127.0.0.1:0".parse().unwrap(), &udp_options).unwrap();
            let address = match transport {
                Transport::Tcp => listener.local_addr().unwrap(),
                _ => socket.local_addr().unwrap().as_socket().unwrap(),
            };
            give.send(address).unwrap();
            let recorder = RefCell::new(Some(recorder));
            let make = Box::new(move || Some(Box::new(recorder.take()?) as Box<dyn Protocol>));
            let _kept = match transport {
                Transport::Udp => Some(udp::serve(socket, &udp_options, options, 10, make).unwrap()),
                Transport::Kcp => {
                    Some(kcp::serve(socket, &udp_options, &kcp_options(), options, 10, make).unwrap())
                }
                _ => {
                    let (peer, _) = off_worker(move || listener.accept().unwrap()).await;
                    let recorder = Recorder::new(&record);
                    Connection::open(Socket::from_fd(peer.into()).unwrap(), options, recorder).unwrap();
                    None
                }
            };
            record.wait_received(BYTES).await;
            record.received().len()
        });
        let address = address.recv().unwrap();
        corewire_runtime::run(async move {
            let (protocol, options) = (Recorder::new(&Record::default()), options(|_| {}));
            let connection = match transport {
                Transport::Udp => {
                    udp::connect(address, &UdpOptions::default(), options, Box::new(protocol)).unwrap()
                }
                Transport::Kcp => {
                    let protocol = Box::new(protocol);
                    kcp::connect(address, &UdpOptions::default(), &kcp_options(), options, protocol).unwrap()
                }
                _ => {
                    let socket = std::net::TcpStream::connect(address).unwrap();
                    socket.set_nonblocking(true).unwrap();
                    Connection::open(Socket::from_fd(socket.into()).unwrap(), options, protocol).unwrap()
                }
            };
            for _ in 0..BYTES / 1000 {
                connection.send(&[7; 1000]).unwrap();
            }
        })
        .unwrap();
        assert_eq!(received.unwrap().join().unwrap(), BYTES, "{transport:?}");
    }
}

#[test]
fn a_shutdown_waits_for_a_peer_that_takes_nothing_no_longer_than_it_may() {
    for transport in STREAMS {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let stuck = runtime.handle().spawn_on(0, move || async move {
            let pair = pair(transport).await;
            pair.back_up(500_000).await;
            std::mem::forget(pair);
        });
        stuck.unwrap().join().unwrap();
        let begun = std::time::Instant::now();
        // Without it a worker waits for 1 s.
        runtime.shutdown(PATIENCE);
        assert!(begun.elapsed() < PATIENCE / 2, "{transport:?}");
    }
}

#[test]
fn a_paused_connection_is_given_nothing_and_a_datagram_for_it_is_dropped() {
    over(&ALL, |transport| async move {
        let pair = pair(transport).await;
        pair.connection.pause_receive();
        pair.connection.pause_receive();
        pair.peer.send(b" one").unwrap();
        some_ticks(50).await;
        assert_eq!(pair.record.received(), b"hello");
        pair.connection.resume_receive();
        pair.peer.send(b" two").unwrap();
        pair.record.wait_received(9).await;
        some_ticks(5).await;
        let expected: &[u8] = if transport.is_stream() { b"hello one two" } else { b"hello two" };
        assert_eq!(pair.record.received(), expected, "{transport:?}");
    });
}

#[test]
fn the_end_of_the_peer_is_told_behind_what_it_sent_also_after_a_pause() {
    over(&STREAMS, |transport| async move {
        let pair = pair(transport).await;
        pair.connection.pause_receive();
        pair.peer.send(&[3; 20_000]).unwrap();
        pair.peer.shutdown_write();
        assert!(pair.peer.send(b"more").is_err());
        some_ticks(50).await;
        assert_eq!(pair.record.count("read closed"), 0);
        pair.connection.resume_receive();
        pair.record.wait_for("closed").await;
        assert_eq!(pair.record.received().len(), 20_005);
        assert_eq!(pair.record.count("read closed"), 1);
        assert_eq!(pair.record.count("closed: closed by the peer"), 1, "{:?}", pair.record.log());
    });
}

#[test]
fn a_panicking_handler_closes_its_connection_and_no_other() {
    over(&ALL, |transport| async move {
        let action: MakeAction = Rc::new(|| {
            let mut calls = 0;
            Box::new(move |what, connection| {
                calls += usize::from(what == "received");
                assert!(calls < 2, "on purpose");
                if what == "received" {
                    connection.send(b"ack").unwrap();
                }
            })
        });
        let server = Server::new(transport, options(|_| {}), action);
        let first = server.accept(options(|_| {})).await;
        let second = server.accept(options(|_| {})).await;
        first.peer_record.wait_received(3).await;
        first.peer.send(b"again").unwrap();
        let reason = first.record.wait_for("closed").await;
        assert!(reason.contains("a handler panicked: on purpose"), "{reason}");
        let third = server.accept(options(|_| {})).await;
        third.peer_record.wait_received(3).await;
        assert!(second.connection.is_open() && third.connection.is_open());
    });
}

#[test]
fn near_the_memory_limit_the_largest_is_paused_and_over_it_closed() {
    const LIMIT: usize = 8 << 20;
    for transport in ALL {
        let runtime = Runtime::builder().workers(1).memory_limit(LIMIT).build().unwrap();
        let test = runtime.handle().spawn(move || async move {
            let server = Server::new(transport, options(|_| {}), Rc::new(|| Box::new(|_, _| {})));
            let large = server.accept(options(|_| {})).await;
            let small = server.accept(options(|_| {})).await;
            let mut held = large.connection.charge(MemoryKind::Payload, LIMIT - LIMIT / 16);
            some_ticks(2).await;
            large.peer.send(b" too much").unwrap();
            small.peer.send(b" a little").unwrap();
            small.record.wait_received(14).await;
            some_ticks(20).await;
            assert_eq!(large.record.received(), b"hello", "{transport:?}: it is paused");
            held.set(0);
            some_ticks(30).await;
            large.peer.send(b" again").unwrap();
            large.record.wait_received(11).await;
            held.set(LIMIT + LIMIT / 4);
            let reason = large.record.wait_for("closed").await;
            assert!(reason.contains(&format!("limit of {LIMIT}")), "{transport:?}: {reason}");
            assert!(small.connection.is_open());
        });
        let test = test.unwrap();
        futures_lite::future::block_on(test).unwrap();
    }
}

#[test]
fn near_the_memory_limit_new_peers_of_a_datagram_socket_are_refused() {
    const LIMIT: usize = 8 << 20;
    for transport in [Transport::Udp, Transport::Kcp] {
        let runtime = Runtime::builder().workers(1).memory_limit(LIMIT).build().unwrap();
        let handle = runtime.handle().clone();
        let test = runtime.handle().spawn(move || async move {
            let server = Server::new(transport, options(|_| {}), Rc::new(|| Box::new(|_, _| {})));
            let known = server.accept(options(|_| {})).await;
            let held = known.connection.charge(MemoryKind::Payload, LIMIT - LIMIT / 16);
            some_ticks(2).await;
            let refused = server.connect(options(|_| {}));
            while handle.stats().refused == 0 {
                some_ticks(1).await;
            }
            assert_eq!(server.opened.borrow().len(), 1, "{transport:?}");
            drop((held, refused));
            some_ticks(30).await;
            server.accept(options(|_| {})).await;
        });
        futures_lite::future::block_on(test.unwrap()).unwrap();
    }
}

#[test]
fn a_silent_peer_is_closed_and_one_that_talks_is_not() {
    over(&ALL, |transport| async move {
        let idle = Duration::from_millis(500);
        for _ in 0..20 {
            let pair = pair_with(transport, |options| options.idle_timeout = Some(idle)).await;
            let begun = std::time::Instant::now();
            let (mut last, mut widest) = (begun, Duration::ZERO);
            while begun.elapsed() < idle + idle / 4 && pair.connection.is_open() {
                some_ticks(10).await;
                if pair.connection.is_open() {
                    pair.peer.send(b"x").unwrap();
                }
                widest = widest.max(last.elapsed());
                last = std::time::Instant::now();
            }
            let was_closed = !pair.connection.is_open();
            let reason = pair.record.wait_for("closed").await;
            assert_eq!(reason, "closed: idle for 500ms");
            if !was_closed {
                return;
            }
            // On a machine that stops for so long it was silent: once more.
            assert!(widest > idle / 2, "{transport:?}: closed, though it talked every {widest:?} at least");
        }
        panic!("this machine is too busy for this test");
    });
}

#[test]
fn a_peer_whose_frame_does_not_come_is_closed_where_frames_can_be_awaited() {
    over(&ALL, |transport| async move {
        let action: MakeAction = Rc::new(|| {
            Box::new(|what, connection| {
                if what == "open" {
                    connection.set_progress(FrameProgress::AwaitingFirst);
                }
            })
        });
        let time = Duration::from_millis(50);
        let server =
            Server::new(transport, options(|options| options.first_frame_timeout = Some(time)), action);
        let pair = server.accept(options(|_| {})).await;
        if transport.is_stream() {
            let reason = pair.record.wait_for("closed").await;
            assert!(reason.contains("no whole frame arrived within 50ms"), "{reason}");
        } else {
            // A datagram is whole or not there.
            some_ticks(150).await;
            assert!(pair.connection.is_open(), "{:?}", pair.record.log());
        }
    });
}

#[test]
fn a_peer_that_does_not_read_is_closed() {
    over(&STREAMS, |transport| async move {
        let rate = RateMin { bytes_per_second: 100_000, window: Duration::from_millis(100) };
        let pair = pair_with(transport, |options| options.rate_min = Some(rate)).await;
        pair.back_up(500_000).await;
        let reason = pair.record.wait_for("closed").await;
        assert!(reason.contains("less than the least rate"), "{transport:?}: {reason}");
    });
}

#[test]
fn a_peer_that_leaves_answers_unread_is_held_back_and_senders_wait_for_it() {
    over(&STREAMS, |transport| async move {
        let marks = |options: &mut ConnectionOptions| {
            (options.high_water, options.low_water) = (100_000, 20_000);
        };
        let pair = pair_with(transport, marks).await;
        pair.back_up(200_000).await;
        assert!(poll_once(pair.connection.send_ready()).await.is_none());
        assert!(poll_once(pair.connection.flushed()).await.is_none());
        pair.peer.send(b" more").unwrap();
        some_ticks(30).await;
        assert_eq!(pair.record.received(), b"hello", "{transport:?}: it does not read, nor is it read from");
        pair.peer.resume_receive();
        pair.connection.send_ready().await.unwrap();
        pair.connection.flushed().await.unwrap();
        pair.record.wait_for("drained").await;
        pair.record.wait_received(10).await;
    });
}

#[test]
fn a_connection_that_is_held_back_keeps_its_worker_from_nothing_and_lets_it_sleep() {
    over(&STREAMS, |transport| async move {
        let pair = pair(transport).await;
        pair.back_up(500_000).await;
        let before = pair.connection.tick();
        corewire_runtime::sleep(Duration::from_millis(200)).await;
        let turns = pair.connection.tick() - before;
        assert!(turns < 500, "{transport:?}: {turns} turns of the loop while nothing happens");
    });
}

#[test]
fn a_send_is_flushed_within_its_tick() {
    over(&ALL, |transport| async move {
        let pair = pair(transport).await;
        pair.connection.send(&[9; 100]).unwrap();
        let tick = pair.connection.tick();
        pair.connection.flushed().await.unwrap();
        assert!(pair.connection.tick() <= tick + 1, "{transport:?}");
        pair.peer_record.wait_received(100).await;
    });
}

/// Decodes frames of one byte and counts its calls.
struct Counts {
    record: Record,
    frames_in_call: Rc<RefCell<Vec<usize>>>,
}

impl Protocol for Counts {
    fn on_received(&mut self, connection: &Connection, mut data: Bytes) {
        self.frames_in_call.borrow_mut().push(0);
        while !data.is_empty() {
            self.record.note(format!("{}", data.get_u8()));
            *self.frames_in_call.borrow_mut().last_mut().unwrap() += 1;
            if !connection.frame_done(1) {
                return connection.defer(data);
            }
        }
    }
}

#[test]
fn the_rest_of_a_stream_s_quota_is_deferred_and_a_datagram_is_decoded_whole() {
    over(&ALL, |transport| async move {
        let record = Record::default();
        let frames_in_call: Rc<RefCell<Vec<usize>>> = Rc::default();
        let make = {
            let (record, frames_in_call) = (record.clone(), frames_in_call.clone());
            move || Counts { record: record.clone(), frames_in_call: frames_in_call.clone() }
        };
        let udp_options = UdpOptions::default();
        let (_server, peer) = match transport {
            Transport::Udp | Transport::Kcp => {
                let socket = open("127.0.0.1:0".parse().unwrap(), &udp_options).unwrap();
                let address = socket.local_addr().unwrap().as_socket().unwrap();
                let make = Box::new(move || Some(Box::new(make()) as Box<dyn Protocol>));
                let protocol = Box::new(Recorder::new(&Record::default()));
                let peer = if transport == Transport::Udp {
                    udp::serve(socket, &udp_options, options(|_| {}), 10, make).unwrap();
                    udp::connect(address, &udp_options, options(|_| {}), protocol)
                } else {
                    kcp::serve(socket, &udp_options, &kcp_options(), options(|_| {}), 10, make).unwrap();
                    kcp::connect(address, &udp_options, &kcp_options(), options(|_| {}), protocol)
                };
                (None, peer.unwrap())
            }
            stream => {
                let protocol = Recorder::new(&Record::default());
                let (connection, peer) =
                    stream_pair(stream, options(|_| {}), make(), options(|_| {}), protocol);
                (Some(connection), peer)
            }
        };
        let sent: Vec<u8> = (0..20_000).map(|at| (at % 251) as u8).collect();
        peer.send(&sent).unwrap();
        while record.log().len() < sent.len() {
            some_ticks(1).await;
        }
        let got: Vec<u8> = record.log().iter().map(|number| number.parse().unwrap()).collect();
        assert!(got == sent, "{transport:?}: in order, each once");
        let calls = frames_in_call.borrow();
        if transport.is_stream() {
            assert!(calls.iter().all(|frames| *frames <= 512), "{transport:?}: {calls:?}");
        } else {
            assert_eq!(*calls, [20_000]);
        }
    });
}

#[test]
fn one_greedy_peer_of_a_shared_socket_leaves_the_others_their_turn() {
    over(&[Transport::Udp, Transport::Kcp], |transport| async move {
        let action: MakeAction = Rc::new(|| {
            Box::new(|what, connection| {
                if what == "received" {
                    let _ = connection.send(b"ack");
                }
            })
        });
        let server = Server::new(transport, options(|_| {}), action);
        let greedy = server.accept(options(|_| {})).await;
        let polite = server.accept(options(|_| {})).await;
        polite.peer_record.wait_received(3).await;
        for round in 2..20 {
            for _ in 0..100 {
                let _ = greedy.peer.send(&[5; 1000]);
            }
            polite.peer.send(b"?").unwrap();
            polite.peer_record.wait_received(3 * round).await;
        }
        greedy.connection.pause_receive();
        polite.peer.send(b"?").unwrap();
        polite.peer_record.wait_received(60).await;
    });
}

#[test]
fn the_connections_of_a_closed_socket_are_told_the_end() {
    over(&[Transport::Udp, Transport::Kcp], |transport| async move {
        let pair = pair(transport).await;
        pair.port.unwrap().close();
        assert_eq!(pair.record.wait_for("closed").await, "closed: shut down", "{transport:?}");
    });
}

#[test]
fn a_client_s_connection_to_a_closed_port_ends_with_the_refusal() {
    over(&[Transport::Udp, Transport::Kcp], |transport| async move {
        let gone = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = gone.local_addr().unwrap();
        drop(gone);
        some_ticks(5).await;
        let record = Record::default();
        let protocol = Box::new(Recorder::new(&record));
        let udp_options = UdpOptions::default();
        let connection = match transport {
            Transport::Kcp => kcp::connect(address, &udp_options, &kcp_options(), options(|_| {}), protocol),
            _ => udp::connect(address, &udp_options, options(|_| {}), protocol),
        };
        connection.unwrap().send(b"anybody there?").unwrap();
        let reason = record.wait_for("closed").await;
        assert!(reason.contains("refused"), "{transport:?}: {reason}");
    });
}
