//! A server and a client together.

use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use corewire::{CallError, Frame, LengthFieldCodec, NetServer, NetUri, Session};

use crate::common::*;

#[test]
fn a_request_gets_its_reply() {
    let server = standard_echo();
    let client = connect(&server);
    for len in [0, 1, 28, 5000, 65_534, 65_535, 1 << 20] {
        let payload: Vec<u8> = (0..len).map(|at| at as u8).collect();
        assert!(wait(client.request(&payload)).unwrap() == payload, "{len} bytes");
    }
}

#[test]
fn many_calls_at_once_each_get_their_own_reply() {
    let server = standard_echo();
    let client = connect(&server);
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
fn a_call_without_reply_times_out() {
    let server = standard(|| |_: &Session, _: Frame<'_>| {});
    let client = connect(&server);
    let error = wait(client.request(b"?").timeout(Duration::from_millis(20))).unwrap_err();
    assert_eq!(error, CallError::TimedOut(Duration::from_millis(20)));
}

#[test]
fn shutdown_says_what_it_did() {
    let server = standard_echo();
    let clients: Vec<_> = (0..3).map(|_| connect(&server)).collect();
    for client in &clients {
        wait(client.request(b"x")).unwrap();
    }
    assert_eq!(server.stats().sessions, 3);
    let report = server.shutdown(Duration::from_secs(5));
    assert_eq!((report.sessions, report.finished, report.cut), (3, 3, 0));
}
