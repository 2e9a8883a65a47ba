//! A server and a client together, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use corewire::{
    CallError, Frame, LengthFieldCodec, NetClient, NetServer, NetUri, ServerHandle, Session, StandardCodec,
    wait,
};

fn echo() -> impl FnMut(&Session, Frame<'_>) {
    |session: &Session, frame: Frame<'_>| session.reply(&frame, frame.payload()).unwrap()
}

fn standard_server() -> ServerHandle {
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(echo)
        .workers(1)
        .start()
        .unwrap()
}

fn standard_client(server: &ServerHandle) -> NetClient {
    NetUri::parse(server.uri()).unwrap().client().codec(StandardCodec::default).connect_blocking().unwrap()
}

#[test]
fn a_request_gets_its_reply() {
    let server = standard_server();
    let client = standard_client(&server);
    for len in [0, 1, 28, 5000, 65_534, 65_535, 1 << 20] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        assert!(wait(client.request(&payload)).unwrap() == payload, "{len} bytes");
    }
}

#[test]
fn many_calls_at_once_each_get_their_own_reply() {
    let server = standard_server();
    let client = standard_client(&server);
    let payloads: Vec<_> = (0..2000_u32).map(u32::to_le_bytes).collect();
    let mut calls: Vec<_> = payloads.iter().map(|payload| Some(client.request(payload))).collect();
    // All are begun at once: more than there are sequence numbers.
    let mut left = calls.len();
    wait(std::future::poll_fn(|context| {
        for (at, slot) in calls.iter_mut().enumerate() {
            let Some(call) = slot else { continue };
            if let Poll::Ready(reply) = Pin::new(call).poll(context) {
                assert_eq!(reply.unwrap(), payloads[at][..]);
                *slot = None;
                left -= 1;
            }
        }
        if left == 0 { Poll::Ready(()) } else { Poll::Pending }
    }));
}

#[test]
fn replies_in_order_find_their_calls() {
    let codec = || LengthFieldCodec::newlife(0, 2).unwrap();
    let server = NetServer::bind("tcp://127.0.0.1:0").codec(codec).handler(echo).workers(1).start().unwrap();
    let client = NetUri::parse(server.uri()).unwrap().client().codec(codec).connect_blocking().unwrap();
    for round in 0..100_u8 {
        assert_eq!(&wait(client.request(&[round; 30])).unwrap()[..], &[round; 30]);
    }
    assert!(matches!(wait(client.request(&[0; 70_000])), Err(CallError::Encode(_))));
    assert_eq!(&wait(client.request(b"after")).unwrap()[..], b"after");
}

#[test]
fn a_call_without_reply_times_out_and_its_number_is_not_used_again() {
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(|| |_: &Session, _: Frame<'_>| {})
        .workers(1)
        .start()
        .unwrap();
    let client = standard_client(&server);
    let error = wait(client.request(b"?").timeout(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error, CallError::TimedOut(Duration::from_millis(20)));
}

#[test]
fn shutdown_says_what_it_did() {
    let server = standard_server();
    let clients: Vec<_> = (0..3).map(|_| standard_client(&server)).collect();
    for client in &clients {
        wait(client.request(b"x")).unwrap();
    }
    assert_eq!(server.stats().sessions, 3);
    let report = server.shutdown(Duration::from_secs(5));
    assert_eq!((report.sessions, report.finished, report.cut), (3, 3, 0));
}

#[test]
fn group_sends_reach_those_that_are_picked() {
    let server = standard_server();
    let clients: Vec<_> = (0..4)
        .map(|_| {
            NetUri::parse(server.uri())
                .unwrap()
                .client()
                .codec(StandardCodec::default)
                .inbox(10)
                .connect_blocking()
                .unwrap()
        })
        .collect();
    for client in &clients {
        wait(client.request(b"x")).unwrap();
    }
    assert_eq!(wait(server.send_where(&b"news"[..], |session| session.id() % 2 == 0).done()), 2);
    assert_eq!(wait(server.send_all(&b"all"[..]).done()), 4);
    let mut news = 0;
    for client in &clients {
        let first = wait(client.recv()).unwrap();
        if &first.payload[..] == b"news" {
            news += 1;
            assert_eq!(&wait(client.recv()).unwrap().payload[..], b"all");
        } else {
            assert_eq!(&first.payload[..], b"all");
        }
    }
    assert_eq!(news, 2);
}
