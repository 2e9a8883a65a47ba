//! Peers of datagram sockets that mean no good, or end silently: what they leave behind.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::net::SocketAddr;
use std::rc::Rc;

use common::*;
use corewire_proto::kcp::{Config, Mode};
use corewire_runtime::transport::{MakeProtocol, kcp, udp};
use corewire_runtime::udp::{UdpOptions, UdpPort, UdpSocket, open};
use corewire_runtime::{CloseReason, Connection, Protocol, Runtime, yield_now};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Udp,
    Kcp,
}

const BOTH: [Kind; 2] = [Kind::Udp, Kind::Kcp];

fn kcp_options() -> kcp::KcpOptions {
    kcp::KcpOptions {
        conversation: Config::turbo().windows(128, 128).mode(Mode::Stream),
        keys: None,
        answer_timeout: PATIENCE,
    }
}

/// What was opened for each peer, in their order.
type Opened = Rc<RefCell<Vec<(Connection, Record)>>>;

/// Notes each connection as it opens; then `action` follows.
fn recorder(opened: &Opened, mut action: impl FnMut(&str, &Connection) + 'static) -> Recorder {
    let (record, opened) = (Record::default(), opened.clone());
    Recorder::with_action(&record.clone(), move |what, connection| {
        if what == "open" {
            opened.borrow_mut().push((connection.clone(), record.clone()));
        }
        action(what, connection);
    })
}

fn serve(kind: Kind, peers_max: usize, make: MakeProtocol) -> (UdpPort, SocketAddr) {
    let udp_options = UdpOptions::default();
    let socket = open("127.0.0.1:0".parse().unwrap(), &udp_options).unwrap();
    let address = socket.local_addr().unwrap().as_socket().unwrap();
    let port = match kind {
        Kind::Udp => udp::serve(socket, &udp_options, options(|_| {}), peers_max, make),
        Kind::Kcp => kcp::serve(socket, &udp_options, &kcp_options(), options(|_| {}), peers_max, make),
    };
    (port.unwrap(), address)
}

fn connect(kind: Kind, address: SocketAddr) -> (Connection, Record) {
    let record = Record::default();
    let (udp_options, protocol) = (UdpOptions::default(), Box::new(Recorder::new(&record)));
    let connection = match kind {
        Kind::Udp => udp::connect(address, &udp_options, options(|_| {}), protocol),
        Kind::Kcp => kcp::connect(address, &udp_options, &kcp_options(), options(|_| {}), protocol),
    };
    (connection.unwrap(), record)
}

async fn wait_opened(opened: &Opened, count: usize) {
    while opened.borrow().len() < count {
        some_ticks(1).await;
    }
}

/// Runs on a worker of its own, both kinds one after the other.
fn over_both<F: Future<Output = ()> + 'static>(test: impl Fn(Kind) -> F) {
    for kind in BOTH {
        run(test(kind));
    }
}

#[test]
fn a_conversation_that_ends_with_bytes_unread_leaves_its_place_to_others() {
    run(async {
        let opened = Opened::default();
        let of_server = opened.clone();
        let make = move || {
            let pause = |what: &str, connection: &Connection| {
                if what == "open" {
                    connection.pause_receive();
                }
            };
            Some(Box::new(recorder(&of_server, pause)) as Box<dyn Protocol>)
        };
        let (_port, address) = serve(Kind::Kcp, 1, Box::new(make));
        for peers in 1..=3 {
            let (peer, record) = connect(Kind::Kcp, address);
            peer.send(&pattern(64_000)).unwrap();
            wait_opened(&opened, peers).await;
            // What has arrived by then waits to be read.
            some_ticks(10).await;
            let connection = opened.borrow()[peers - 1].0.clone();
            connection.abort(CloseReason::Local);
            record.wait_for("closed").await;
        }
    });
}

#[test]
fn a_server_is_told_when_a_kcp_client_aborts() {
    run(async {
        let opened = Opened::default();
        let of_server = opened.clone();
        let make = move || Some(Box::new(recorder(&of_server, |_, _| {})) as Box<dyn Protocol>);
        let (_port, address) = serve(Kind::Kcp, 10, Box::new(make));
        let (peer, _) = connect(Kind::Kcp, address);
        peer.send(b"hello").unwrap();
        wait_opened(&opened, 1).await;
        let record = opened.borrow()[0].1.clone();
        record.wait_received(5).await;
        peer.abort(CloseReason::Local);
        record.wait_for("closed").await;
    });
}

#[test]
fn kcp_peers_are_told_when_the_worker_of_their_server_ends() {
    let (sender, addresses) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        corewire_runtime::run(async move {
            let opened = Opened::default();
            let of_server = opened.clone();
            let make = move || Some(Box::new(recorder(&of_server, |_, _| {})) as Box<dyn Protocol>);
            let (_port, address) = serve(Kind::Kcp, 10, Box::new(make));
            sender.send(address).unwrap();
            wait_opened(&opened, 1).await;
            let connection = opened.borrow()[0].0.clone();
            connection.send(b"welcome").unwrap();
            // Told, and taken by the peer, so that only the end is left to tell.
            some_ticks(20).await;
        })
        .unwrap();
    });
    let address = addresses.recv().unwrap();
    run(async move {
        let (peer, record) = connect(Kind::Kcp, address);
        peer.send(b"hello").unwrap();
        record.wait_received(7).await;
        record.wait_for("closed").await;
    });
    server.join().unwrap();
}

#[test]
fn a_peer_that_comes_again_is_as_new_as_any() {
    run(async {
        let opened = Opened::default();
        let of_server = opened.clone();
        let make = move || {
            let close = |what: &str, connection: &Connection| {
                if what == "received" && opened_bye(connection) {
                    connection.close();
                }
            };
            Some(Box::new(recorder(&of_server, close)) as Box<dyn Protocol>)
        };
        let (_port, address) = serve(Kind::Udp, 2, Box::new(make));
        let again = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let others = [(); 2].map(|()| UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap());
        AGAIN.set(again.local_addr().ok());
        again.send_to(b"bye", address).await.unwrap();
        wait_opened(&opened, 1).await;
        let first = opened.borrow()[0].1.clone();
        first.wait_for("closed").await;
        AGAIN.set(None);
        others[0].send_to(b"other", address).await.unwrap();
        wait_opened(&opened, 2).await;
        again.send_to(b"again", address).await.unwrap();
        wait_opened(&opened, 3).await;
        others[1].send_to(b"more", address).await.unwrap();
        wait_opened(&opened, 4).await;
        some_ticks(3).await;
        let is_open: Vec<_> = opened.borrow().iter().map(|(connection, _)| connection.is_open()).collect();
        assert_eq!(is_open, [false, false, true, true], "the one that came first makes room");
    });
}

thread_local! {
    /// Whose connection is closed as it says something.
    static AGAIN: Cell<Option<SocketAddr>> = const { Cell::new(None) };
}

fn opened_bye(connection: &Connection) -> bool {
    AGAIN.get().is_some() && connection.peer_addr() == AGAIN.get()
}

#[test]
fn a_factory_that_panics_costs_its_peer_and_no_other() {
    over_both(|kind| async move {
        let opened = Opened::default();
        let (of_server, made) = (opened.clone(), Cell::new(0));
        let make = move || {
            made.set(made.get() + 1);
            assert!(made.get() != 1, "the first peer is not liked");
            Some(Box::new(recorder(&of_server, |_, _| {})) as Box<dyn Protocol>)
        };
        let (port, address) = serve(kind, 10, Box::new(make));
        let (unliked, _) = connect(kind, address);
        unliked.send(b"hello").unwrap();
        some_ticks(20).await;
        assert!(port.is_open(), "{kind:?}");
        let (peer, _) = connect(kind, address);
        peer.send(b"hello").unwrap();
        wait_opened(&opened, 1).await;
    });
}

#[test]
fn what_many_conversations_have_to_send_leaves_in_more_than_one_tick() {
    const CONVERSATIONS: usize = 64;
    /// As much as the window of each takes.
    const BYTES: usize = 128 * 1300;
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let handle = runtime.handle().clone();
    let (sender, addresses) = std::sync::mpsc::channel();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let test = runtime.handle().spawn(move || async move {
        let opened = Opened::default();
        let of_server = opened.clone();
        let make = move || Some(Box::new(recorder(&of_server, |_, _| {})) as Box<dyn Protocol>);
        let (_port, address) = serve(Kind::Kcp, 2 * CONVERSATIONS, Box::new(make));
        sender.send(address).unwrap();
        wait_opened(&opened, CONVERSATIONS).await;
        let records: Vec<_> = opened.borrow().iter().map(|(_, record)| record.clone()).collect();
        for record in records {
            // The address is validated by then.
            record.wait_received(5).await;
        }
        let mut before = handle.stats();
        for (connection, _) in opened.borrow().iter() {
            connection.send(&pattern(BYTES)).unwrap();
        }
        let mut most = 0;
        let all = before.sent_bytes + (CONVERSATIONS * BYTES) as u64;
        while before.sent_bytes < all {
            yield_now().await;
            let now = handle.stats();
            most = most.max(now.datagrams_sent - before.datagrams_sent);
            before = now;
        }
        drop(done);
        most
    });
    let address = addresses.recv().unwrap();
    let peers = std::thread::spawn(move || {
        corewire_runtime::run(async move {
            let peers: Vec<_> = (0..CONVERSATIONS).map(|_| connect(Kind::Kcp, address)).collect();
            for (peer, _) in &peers {
                peer.send(b"h").unwrap();
            }
            some_ticks(50).await;
            for (peer, _) in &peers {
                peer.send(b"ello").unwrap();
            }
            while is_done.try_recv() == Err(std::sync::mpsc::TryRecvError::Empty) {
                some_ticks(1).await;
            }
        })
        .unwrap();
    });
    let most = futures_lite::future::block_on(test.unwrap()).unwrap();
    peers.join().unwrap();
    // 128 of each.
    assert!(most < 64 * 128 / 2, "{most} datagrams in one tick");
}
