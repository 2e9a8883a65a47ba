//! Connections that are lost, and clients that come back.

use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use corewire::client::{ClientSendError, Framing, Reconnect};
use corewire::{CallError, ClientBuilder, NetServer, StandardCodec};

use crate::common::*;

fn quickly() -> Reconnect {
    let mut reconnect = Reconnect::default();
    reconnect.initial = Duration::from_millis(1);
    reconnect.max = Duration::from_millis(5);
    reconnect
}

fn builder(uri: &str) -> ClientBuilder<Framing<fn() -> StandardCodec>> {
    client_of(uri).reconnect(quickly())
}

fn address(server: &RawServer) -> SocketAddr {
    server.listener.local_addr().unwrap()
}

#[test]
fn a_client_finds_its_server_again_on_the_same_port() {
    let mut server = standard_echo();
    let uri = server.uri().to_owned();
    let client = builder(&uri).connect_blocking().unwrap();
    for round in 0..5_u8 {
        assert_eq!(wait(client.request(&[round])).unwrap(), [round][..]);
        drop(server);
        server =
            NetServer::bind(&uri).codec(StandardCodec::default).handler(echo).workers(1).start().unwrap();
        // The loss may be noticed with the first call.
        let reply = loop {
            match wait(client.request(b"again")) {
                Err(CallError::ConnectionLost(_)) => {}
                reply => break reply,
            }
        };
        assert_eq!(reply.unwrap(), &b"again"[..]);
    }
}

#[test]
fn what_is_sent_while_the_connection_is_down_waits_and_arrives_in_order() {
    let server = RawServer::new();
    let client = builder(&server.uri).connect_blocking().unwrap();
    let address = address(&server);
    let peer = server.accept();
    let mut call = client.request(b"lost");
    assert!(poll_once(&mut call).is_pending());
    let mut peer_reads = peer;
    assert_eq!(read_srmp(&mut peer_reads).2, b"lost");
    drop(server);
    drop(peer_reads);
    assert!(matches!(wait(call), Err(CallError::ConnectionLost(_))));
    for at in 0..100_u8 {
        wait(client.send(&[at])).unwrap();
    }
    let mut call = client.request(b"a call too");
    assert!(poll_once(&mut call).is_pending());
    let again = TcpListener::bind(address).unwrap();
    let mut peer = patient(again.accept().unwrap().0);
    let (mut messages, mut sequence) = (Vec::new(), None);
    while messages.len() < 100 || sequence.is_none() {
        let (flag, number, payload) = read_srmp(&mut peer);
        match flag {
            0x41 => messages.extend(payload),
            _ => sequence = Some((number, payload)),
        }
    }
    assert_eq!(messages, (0..100).collect::<Vec<u8>>());
    let (number, payload) = sequence.unwrap();
    assert_eq!(payload, b"a call too");
    peer.write_all(&srmp(0x81, number, b"yes")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"yes"[..]);
}

#[test]
fn a_call_times_out_while_there_is_no_connection() {
    let server = RawServer::new();
    let client = builder(&server.uri).inbox(1).connect_blocking().unwrap();
    drop(server.accept());
    let kept = server.listener;
    drop(kept);
    let timeout = Duration::from_millis(30);
    let error = loop {
        // Until the loss is known here, it is that.
        match wait(client.request(b"x").timeout(timeout)).unwrap_err() {
            CallError::ConnectionLost(_) => {}
            error => break error,
        }
    };
    assert_eq!(error, CallError::TimedOut(timeout));
}

#[test]
fn after_its_attempts_a_client_closes() {
    let server = RawServer::new();
    let mut reconnect = quickly();
    reconnect.attempts_max = Some(3);
    let client = client_of(&server.uri).reconnect(reconnect).inbox(1).connect_blocking().unwrap();
    let peer = server.accept();
    drop(server);
    drop(peer);
    assert_eq!(wait(client.recv()), None, "the inbox ends with the client");
    assert_eq!(wait(client.request(b"x")), Err(CallError::Closed));
}

#[test]
fn what_waits_for_a_connection_fails_when_the_attempts_are_over() {
    let server = RawServer::new();
    let mut reconnect = quickly();
    reconnect.attempts_max = Some(20);
    let client = client_of(&server.uri).reconnect(reconnect).connect_blocking().unwrap();
    let peer = server.accept();
    drop(server);
    drop(peer);
    let error = loop {
        match wait(client.request(b"x")).unwrap_err() {
            CallError::ConnectionLost(_) => {}
            error => break error,
        }
    };
    assert_eq!(error, CallError::Closed);
}

#[test]
fn without_reconnecting_a_client_ends_with_its_connection() {
    let server = RawServer::new();
    let client = client_of(&server.uri).no_reconnect().inbox(1).connect_blocking().unwrap();
    let mut peer = server.accept();
    let mut call = client.request(b"pending");
    assert!(poll_once(&mut call).is_pending());
    read_srmp(&mut peer);
    drop(peer);
    assert!(matches!(wait(call), Err(CallError::ConnectionLost(_))));
    assert_eq!(wait(client.recv()), None);
    assert_eq!(wait(client.request(b"x")), Err(CallError::Closed));
    assert_eq!(wait(client.send(b"x")), Err(ClientSendError::Closed));
    server.listener.set_nonblocking(true).unwrap();
    assert_eq!(server.listener.accept().unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
}

#[test]
fn a_client_that_is_dropped_while_down_stops_trying() {
    let server = RawServer::new();
    let client = builder(&server.uri).inbox(1).connect_blocking().unwrap();
    let address = address(&server);
    let peer = server.accept();
    drop(server);
    drop(peer);
    // Down: a call waits.
    let timeout = Duration::from_millis(20);
    while wait(client.request(b"x").timeout(timeout)) != Err(CallError::TimedOut(timeout)) {}
    let worker = client.worker().clone();
    drop(client);
    let (sender, gone) = events();
    worker.run(move || sender.send(()).unwrap()).unwrap();
    gone.next();
    let again = TcpListener::bind(address).unwrap();
    again.set_nonblocking(true).unwrap();
    std::thread::sleep(Duration::from_millis(50));
    // At most the attempt that was under way, which is given up at once.
    if let Ok((peer, _)) = again.accept() {
        peer.set_nonblocking(false).unwrap();
        assert_eq!(read_to_end(&mut patient(peer)), b"");
    }
    assert!(again.accept().is_err());
}

/// Accepts and closes at once, and counts.
fn closes_at_once(server: RawServer) -> std::sync::Arc<std::sync::atomic::AtomicUsize> {
    let accepted = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = accepted.clone();
    std::thread::spawn(move || {
        while let Ok((peer, _)) = server.listener.accept() {
            count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            drop(peer);
        }
    });
    accepted
}

#[test]
fn a_server_that_accepts_and_closes_at_once_uses_up_the_attempts() {
    let server = RawServer::new();
    let mut reconnect = quickly();
    reconnect.attempts_max = Some(4);
    let uri = server.uri.clone();
    let accepted = closes_at_once(server);
    let client = client_of(&uri).reconnect(reconnect).inbox(1).connect_blocking().unwrap();
    assert_eq!(wait(client.recv()), None, "the client has closed");
    // The first one, and those that it may make again.
    assert_eq!(accepted.load(std::sync::atomic::Ordering::SeqCst), 5);
}

#[test]
fn a_panic_of_the_handler_at_the_end_of_a_connection_does_not_keep_the_client_down() {
    struct Fragile;
    impl corewire::Handler for Fragile {
        fn on_frame(&mut self, _: &corewire::Session, _: corewire::Frame<'_>) {}
        fn on_close(&mut self, _: &corewire::Session, _: &corewire::CloseReason) {
            panic!("on purpose, in on_close");
        }
    }
    let server = RawServer::new();
    let client = builder(&server.uri).handler(|| Fragile).connect_blocking().unwrap();
    for round in 0..3_u8 {
        let mut peer = server.accept();
        let mut call = client.request(b"x");
        if poll_once(&mut call).is_pending() {
            let (_, number, _) = read_srmp(&mut peer);
            peer.write_all(&srmp(0x81, number, &[round])).unwrap();
            // Answered, or begun on the connection before and lost with it.
            match wait(call) {
                Ok(reply) => assert_eq!(reply, &[round][..]),
                Err(error) => panic!("{error}"),
            }
        }
    }
}

#[test]
fn a_factory_that_panics_once_does_not_keep_the_client_down() {
    let server = RawServer::new();
    let made = std::cell::Cell::new(0);
    let codec = move || {
        made.set(made.get() + 1);
        // One is made to see how it matches, one for the first connection.
        assert_ne!(made.get(), 3, "on purpose");
        StandardCodec::default()
    };
    let uri = corewire::NetUri::parse(&server.uri).unwrap();
    let client = uri.client().codec(codec).reconnect(quickly()).connect_blocking().unwrap();
    drop(server.accept());
    let mut peer = server.accept();
    let mut call = client.request(b"x");
    assert!(poll_once(&mut call).is_pending());
    let (_, number, _) = read_srmp(&mut peer);
    peer.write_all(&srmp(0x81, number, b"y")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"y"[..]);
}

#[test]
fn a_server_that_comes_back_is_used_at_once_by_whoever_waits() {
    let server = RawServer::new();
    let mut reconnect = Reconnect::default();
    reconnect.initial = Duration::from_millis(1);
    reconnect.max = Duration::from_secs(3_600);
    let client = client_of(&server.uri).reconnect(reconnect).connect_blocking().unwrap();
    let address = address(&server);
    let peer = server.accept();
    drop(server);
    drop(peer);
    // Many attempts fail: the wait before the next could be minutes long.
    let timeout = Duration::from_millis(1_500);
    while wait(client.request(b"x").timeout(timeout)) != Err(CallError::TimedOut(timeout)) {}
    let again = TcpListener::bind(address).unwrap();
    let mut call = client.request(b"now");
    assert!(poll_once(&mut call).is_pending());
    let mut peer = patient(again.accept().unwrap().0);
    let (_, number, _) = read_srmp(&mut peer);
    peer.write_all(&srmp(0x81, number, b"yes")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"yes"[..]);
}
