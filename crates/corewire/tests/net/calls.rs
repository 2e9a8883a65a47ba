//! Calls and their numbers: matching, time-outs, cancellation, and what happens when the connection dies.

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use corewire::client::Call;
use corewire::{Bytes, CallError, LengthFieldCodec, NetClient, NetUri, run, spawn_local};

use crate::common::*;

const SHORT: Duration = Duration::from_millis(30);

/// A client and its peer, by hand.
fn pair(max_in_flight: usize) -> (NetClient, TcpStream, RawServer) {
    let server = RawServer::new();
    let client = client_of(&server.uri).max_in_flight(max_in_flight).inbox(100).connect_blocking().unwrap();
    let peer = server.accept();
    (client, peer, server)
}

/// Begins a call: its request is on its way, or it waits for its turn.
fn begin<'a>(client: &'a NetClient, payload: &'a [u8]) -> Call<'a> {
    let mut call = client.request(payload);
    assert!(poll_once(&mut call).is_pending());
    call
}

#[track_caller]
fn expect_request(peer: &mut TcpStream, sequence: u8, payload: &[u8]) {
    assert_eq!(read_srmp(peer), (1, sequence, payload.to_vec()));
}

fn answer(peer: &mut TcpStream, sequence: u8, payload: &[u8]) {
    peer.write_all(&srmp(0x81, sequence, payload)).unwrap();
}

#[test]
fn replies_find_their_calls_by_number_in_any_order() {
    let (client, mut peer, _server) = pair(256);
    let calls = [&b"one"[..], b"two", b"three"].map(|payload| begin(&client, payload));
    for (sequence, payload) in [(1, &b"one"[..]), (2, b"two"), (3, b"three")] {
        expect_request(&mut peer, sequence, payload);
    }
    for (sequence, payload) in [(3, &b"3"[..]), (1, b"1"), (2, b"2")] {
        answer(&mut peer, sequence, payload);
    }
    let replies: Vec<_> = calls.into_iter().map(|call| wait(call).unwrap()).collect();
    assert_eq!(replies, ["1", "2", "3"]);
}

/// Replies of which some use up the connection's quota are served behind the tasks of a tick: who has just run is woken
/// once more.
#[test]
fn large_replies_that_come_together_all_reach_the_one_task_that_waits_for_them() {
    let server = standard_echo();
    let uri = server.uri().to_owned();
    run(async move {
        let client = client_of(&uri).connect().await.unwrap();
        let payload = vec![7; 40_000];
        for _ in 0..50 {
            let mut calls: Vec<_> = (0..3).map(|_| Some(client.request(&payload))).collect();
            std::future::poll_fn(|context| {
                for call in &mut calls {
                    if let Some(Poll::Ready(reply)) = call.as_mut().map(|call| Pin::new(call).poll(context)) {
                        assert_eq!(reply.unwrap(), payload);
                        *call = None;
                    }
                }
                if calls.iter().all(Option::is_none) { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
        }
    })
    .unwrap();
}

fn in_order() -> LengthFieldCodec {
    LengthFieldCodec::newlife(0, 2).unwrap()
}

#[test]
fn replies_find_their_calls_in_order_first_in_first_out() {
    let server = RawServer::new();
    let client = NetUri::parse(&server.uri).unwrap().client().codec(in_order).connect_blocking().unwrap();
    let mut peer = server.accept();
    let calls = [&b"one"[..], b"two", b"three"].map(|payload| begin(&client, payload));
    expect(&mut peer, b"\x03\0one\x03\0two\x05\0three");
    peer.write_all(b"\x01\x001\x01\x002\x01\x003").unwrap();
    let replies: Vec<_> = calls.into_iter().map(|call| wait(call).unwrap()).collect();
    assert_eq!(replies, ["1", "2", "3"]);
}

#[test]
fn a_late_reply_in_order_is_swallowed_in_its_place() {
    let server = RawServer::new();
    let client = NetUri::parse(&server.uri).unwrap().client().codec(in_order).connect_blocking().unwrap();
    let mut peer = server.accept();
    let dropped = [begin(&client, b"a"), begin(&client, b"b")];
    let call = begin(&client, b"c");
    expect(&mut peer, b"\x01\0a\x01\0b\x01\0c");
    drop(dropped);
    peer.write_all(b"\x01\0A\x01\0B\x01\0C").unwrap();
    assert_eq!(wait(call).unwrap(), &b"C"[..]);
}

/// Answers each request but the second with its own payload, over any number of connections.
fn skips_the_second(server: RawServer) {
    std::thread::spawn(move || {
        let mut requests = 0;
        while let Ok((peer, _)) = server.listener.accept() {
            let mut peer = patient(peer);
            let mut frame = [0; 3];
            while peer.read_exact(&mut frame).is_ok() {
                requests += 1;
                if requests != 2 {
                    peer.write_all(&frame).unwrap();
                }
            }
        }
    });
}

#[test]
fn a_reply_in_order_that_never_comes_costs_its_own_call_and_no_later_one() {
    let server = RawServer::new();
    let uri = NetUri::parse(&server.uri).unwrap();
    let client = uri.client().codec(in_order).connect_blocking().unwrap();
    skips_the_second(server);
    assert_eq!(wait(client.request(b"1")).unwrap(), "1");
    assert_eq!(wait(client.request(b"2").timeout(SHORT)), Err(CallError::TimedOut(SHORT)));
    // On another connection, where no reply is awaited that will not come.
    for number in [b"3", b"4", b"5"] {
        assert_eq!(wait(client.request(number)).unwrap(), number[..]);
    }
}

#[test]
fn a_reply_in_order_that_is_given_up_and_never_comes_costs_no_later_one_either() {
    let server = RawServer::new();
    let uri = NetUri::parse(&server.uri).unwrap();
    let client = uri.client().codec(in_order).connect_blocking().unwrap();
    let mut peer = server.accept();
    let mut dropped = client.request(b"a").timeout(SHORT);
    assert!(poll_once(&mut dropped).is_pending());
    expect(&mut peer, b"\x01\0a");
    drop(dropped);
    // Its time is over: the connection is out of step, and another one is made.
    assert_eq!(read_to_end(&mut peer), b"");
    let mut peer = server.accept();
    let call = begin(&client, b"b");
    expect(&mut peer, b"\x01\0b");
    peer.write_all(b"\x01\0B").unwrap();
    assert_eq!(wait(call).unwrap(), &b"B"[..]);
}

#[test]
fn calls_behind_one_that_times_out_in_order_are_lost_and_say_why() {
    let server = RawServer::new();
    let uri = NetUri::parse(&server.uri).unwrap();
    let client = uri.client().codec(in_order).connect_blocking().unwrap();
    let _peer = server.accept();
    let mut first = client.request(b"a").timeout(SHORT);
    assert!(poll_once(&mut first).is_pending());
    let behind = begin(&client, b"b");
    assert_eq!(wait(first), Err(CallError::TimedOut(SHORT)));
    let Err(CallError::ConnectionLost(why)) = wait(behind) else { panic!("it is lost") };
    assert!(why.contains("due in order did not come in time"), "{why}");
}

#[test]
fn an_error_reply_is_an_error() {
    let (client, mut peer, _server) = pair(256);
    let call = begin(&client, b"please");
    expect_request(&mut peer, 1, b"please");
    peer.write_all(&srmp(0xc1, 1, b"no")).unwrap();
    let error = wait(call).unwrap_err();
    assert_eq!(error, CallError::Remote(Bytes::from_static(b"no")));
    assert_eq!(error.to_string(), "the server answers with an error: no");
}

#[test]
fn a_late_reply_a_double_one_and_an_unknown_one_complete_no_other_call() {
    let (client, mut peer, _server) = pair(256);
    assert_eq!(wait(client.request(b"slow").timeout(SHORT)), Err(CallError::TimedOut(SHORT)));
    let call = begin(&client, b"next");
    expect_request(&mut peer, 1, b"slow");
    expect_request(&mut peer, 2, b"next");
    answer(&mut peer, 1, b"late");
    answer(&mut peer, 1, b"late again");
    answer(&mut peer, 77, b"of nobody");
    answer(&mut peer, 2, b"right");
    answer(&mut peer, 2, b"wrong");
    assert_eq!(wait(call).unwrap(), &b"right"[..]);
    // What belongs to no call is handed on, the late reply is not.
    let strays: Vec<_> = (0..3).map(|_| wait(client.recv()).unwrap().payload).collect();
    assert_eq!(strays, ["late again", "of nobody", "wrong"]);
    let call = begin(&client, b"third");
    expect_request(&mut peer, 3, b"third");
    answer(&mut peer, 3, b"3");
    assert_eq!(wait(call).unwrap(), &b"3"[..]);
}

#[test]
fn a_number_in_use_is_not_given_again_when_the_numbers_wrap() {
    let (client, mut peer, _server) = pair(256);
    let held = begin(&client, b"held");
    expect_request(&mut peer, 1, b"held");
    for turn in 2..600_u32 {
        let sequence = (2 + (turn - 2) % 255) as u8;
        let call = begin(&client, b"x");
        expect_request(&mut peer, sequence, b"x");
        answer(&mut peer, sequence, b"y");
        assert_eq!(wait(call).unwrap(), &b"y"[..]);
    }
    answer(&mut peer, 1, b"at last");
    assert_eq!(wait(held).unwrap(), &b"at last"[..]);
}

#[test]
fn a_call_that_is_dropped_before_it_begins_sends_nothing() {
    let (client, mut peer, _server) = pair(256);
    drop(client.request(b"never"));
    let call = begin(&client, b"first");
    expect_request(&mut peer, 1, b"first");
    answer(&mut peer, 1, b"");
    wait(call).unwrap();
}

#[test]
fn a_call_that_is_dropped_in_flight_keeps_its_number_until_the_late_reply() {
    let (client, mut peer, _server) = pair(2);
    let dropped = begin(&client, b"dropped");
    expect_request(&mut peer, 1, b"dropped");
    drop(dropped);
    // One number is left: these go one after the other, under other numbers than 1.
    let calls = [&b"a"[..], b"b"].map(|payload| begin(&client, payload));
    expect_request(&mut peer, 2, b"a");
    answer(&mut peer, 2, b"A");
    expect_request(&mut peer, 3, b"b");
    // The late reply frees it for the next call, whose reply is still to come.
    let third = begin(&client, b"c");
    answer(&mut peer, 1, b"late");
    expect_request(&mut peer, 4, b"c");
    answer(&mut peer, 4, b"C");
    answer(&mut peer, 3, b"B");
    let replies: Vec<_> = calls.into_iter().map(|call| wait(call).unwrap()).collect();
    assert_eq!(replies, ["A", "B"]);
    assert_eq!(wait(third).unwrap(), &b"C"[..]);
}

#[test]
fn a_call_that_is_dropped_while_it_waits_for_a_number_lets_the_next_one_go_on() {
    let (client, mut peer, _server) = pair(1);
    let first = begin(&client, b"first");
    let dropped = begin(&client, b"dropped");
    let last = begin(&client, b"last");
    expect_request(&mut peer, 1, b"first");
    drop(dropped);
    answer(&mut peer, 1, b"1");
    assert_eq!(wait(first).unwrap(), &b"1"[..]);
    expect_request(&mut peer, 2, b"last");
    answer(&mut peer, 2, b"2");
    assert_eq!(wait(last).unwrap(), &b"2"[..]);
}

#[test]
fn a_call_that_is_dropped_when_done_but_not_polled_leaks_no_number() {
    let (client, mut peer, _server) = pair(3);
    for turn in 1..=20 {
        let done = begin(&client, b"done");
        let call = begin(&client, b"polled");
        for _ in 0..2 {
            let (_, sequence, _) = read_srmp(&mut peer);
            answer(&mut peer, sequence, b"reply");
        }
        // Answered after it, so the first is done too.
        assert_eq!(wait(call).unwrap(), &b"reply"[..], "{turn}");
        drop(done);
    }
}

#[test]
fn a_call_that_is_dropped_while_there_is_no_connection_is_never_sent() {
    let (client, mut peer, server) = pair(256);
    drop(server.listener);
    let first = begin(&client, b"lost");
    expect_request(&mut peer, 1, b"lost");
    drop(peer);
    assert!(matches!(wait(first), Err(CallError::ConnectionLost(_))));
    let (dropped, kept) = (begin(&client, b"dropped"), begin(&client, b"kept"));
    drop(dropped);
    let listener = std::net::TcpListener::bind(&server.uri["tcp://".len()..]).unwrap();
    let mut peer = patient(listener.accept().unwrap().0);
    expect_request(&mut peer, 1, b"kept");
    answer(&mut peer, 1, b"yes");
    assert_eq!(wait(kept).unwrap(), &b"yes"[..]);
}

#[test]
fn the_257th_call_waits_and_all_are_served_in_order() {
    let (client, mut peer, _server) = pair(1000);
    let payloads: Vec<_> = (0..400_u16).map(u16::to_le_bytes).collect();
    let calls: Vec<_> = payloads.iter().map(|payload| begin(&client, payload)).collect();
    let mut open: std::collections::VecDeque<_> = (0..256)
        .map(|at| {
            let (_, sequence, payload) = read_srmp(&mut peer);
            assert_eq!(payload, payloads[at]);
            sequence
        })
        .collect();
    peer.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
    assert_eq!(peer.peek(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock, "no number is left");
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    for payload in &payloads[256..] {
        let sequence = open.pop_front().unwrap();
        answer(&mut peer, sequence, b"reply");
        let (_, again, got) = read_srmp(&mut peer);
        assert_eq!(
            (again, &got[..]),
            (sequence, &payload[..]),
            "the freed number, to the one who waited longest"
        );
        open.push_back(again);
    }
    open.into_iter().for_each(|sequence| answer(&mut peer, sequence, b"reply"));
    for call in calls {
        assert_eq!(wait(call).unwrap(), &b"reply"[..]);
    }
}

#[test]
fn a_call_that_waits_is_not_overtaken_by_those_that_call_again_and_again() {
    let server = standard_echo();
    let uri = server.uri().to_owned();
    let (rounds, waited) = run(async move {
        let client = Rc::new(client_of(&uri).max_in_flight(1).connect().await.unwrap());
        let (rounds, stop) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(false)));
        let busy = {
            let (client, rounds, stop) = (client.clone(), rounds.clone(), stop.clone());
            spawn_local(async move {
                while !stop.get() && rounds.get() < 10_000 {
                    client.request(b"again").await.unwrap();
                    rounds.set(rounds.get() + 1);
                }
            })
        };
        while rounds.get() < 10 {
            corewire::runtime::yield_now().await;
        }
        let before = rounds.get();
        client.request(b"once").await.unwrap();
        let waited = rounds.get() - before;
        stop.set(true);
        busy.await.unwrap();
        (rounds.get(), waited)
    })
    .unwrap();
    assert!(waited <= 8, "{waited} of {rounds} calls were made before the one that waited");
}

#[test]
fn a_call_whose_turn_has_come_and_that_is_dropped_passes_its_turn_on() {
    let server = standard_echo();
    let uri = server.uri().to_owned();
    run(async move {
        let client = client_of(&uri).max_in_flight(1).connect().await.unwrap();
        let mut nobody = Context::from_waker(Waker::noop());
        let mut first = client.request(b"first");
        let (mut dropped, mut last) = (client.request(b"dropped"), client.request(b"last"));
        for call in [&mut first, &mut dropped, &mut last] {
            assert!(Pin::new(call).poll(&mut nobody).is_pending());
        }
        // Its reply calls the second one, whose waker wakes nobody: it is dropped unpolled.
        assert_eq!(first.await.unwrap(), &b"first"[..]);
        drop(dropped);
        assert_eq!(last.await.unwrap(), &b"last"[..]);
    })
    .unwrap();
}

#[test]
fn when_every_number_was_given_up_the_connection_is_replaced() {
    let (client, mut peer, server) = pair(2);
    let lost = [&b"a"[..], b"b"].map(|payload| {
        let mut call = client.request(payload).timeout(SHORT);
        assert!(poll_once(&mut call).is_pending());
        call
    });
    // Waits for a number from before they are given up.
    let waits = begin(&client, b"c");
    expect_request(&mut peer, 1, b"a");
    expect_request(&mut peer, 2, b"b");
    let began = Instant::now();
    for call in lost {
        assert_eq!(wait(call), Err(CallError::TimedOut(SHORT)));
    }
    assert_eq!(read_to_end(&mut peer), b"");
    let mut peer = server.accept();
    expect_request(&mut peer, 1, b"c");
    answer(&mut peer, 1, b"C");
    assert_eq!(wait(waits).unwrap(), &b"C"[..]);
    assert!(began.elapsed() < Duration::from_secs(10), "it did not wait for its own time-out");
}

#[test]
fn a_call_that_waits_for_a_number_times_out_too() {
    let (client, mut peer, _server) = pair(1);
    let first = begin(&client, b"first");
    assert_eq!(wait(client.request(b"second").timeout(SHORT)), Err(CallError::TimedOut(SHORT)));
    expect_request(&mut peer, 1, b"first");
    answer(&mut peer, 1, b"1");
    wait(first).unwrap();
    let third = begin(&client, b"third");
    expect_request(&mut peer, 2, b"third");
    answer(&mut peer, 2, b"3");
    wait(third).unwrap();
}

#[test]
fn ten_thousand_calls_fail_at_once_and_once_when_the_connection_dies() {
    const CALLS: usize = 10_000;
    let server = RawServer::new();
    let client = NetUri::parse(&server.uri).unwrap().client().codec(in_order).connect_blocking().unwrap();
    let mut peer = server.accept();
    let mut calls: Vec<_> = (0..CALLS).map(|_| begin(&client, b"x")).collect();
    expect(&mut peer, &b"\x01\0x".repeat(CALLS));
    // One is answered, in the last moment.
    peer.write_all(b"\x01\0y").unwrap();
    assert_eq!(wait(&mut calls[0]).unwrap(), &b"y"[..]);
    let began = Instant::now();
    drop(peer);
    for call in &mut calls[1..] {
        assert!(matches!(wait(call), Err(CallError::ConnectionLost(_))));
    }
    assert!(began.elapsed() < Duration::from_secs(10), "at once, not after the time-out of 15 s");
    // Each is over: polled again it has nothing more to give.
    assert!(matches!(poll_once(&mut calls[5]), Poll::Ready(Err(CallError::Closed))));
    // And the client goes on.
    let mut peer = server.accept();
    let call = begin(&client, b"new");
    expect(&mut peer, b"\x03\0new");
    peer.write_all(b"\x03\0NEW").unwrap();
    assert_eq!(wait(call).unwrap(), &b"NEW"[..]);
}

#[test]
fn a_call_begun_on_the_worker_completes_on_another_thread() {
    let (client, mut peer, _server) = pair(1);
    let client: &'static NetClient = Box::leak(Box::new(client));
    let (sender, calls) = events();
    client
        .worker()
        .run(move || {
            // The first is in flight, the second waits for its number.
            for payload in [&b"first"[..], b"second"] {
                let mut call = client.request(payload);
                assert!(poll_once(&mut call).is_pending());
                sender.send(call).unwrap();
            }
        })
        .unwrap();
    let (first, second) = (calls.next(), calls.next());
    expect_request(&mut peer, 1, b"first");
    answer(&mut peer, 1, b"1");
    assert_eq!(wait(first).unwrap(), &b"1"[..]);
    let waiting = std::thread::spawn(move || wait(second));
    expect_request(&mut peer, 2, b"second");
    answer(&mut peer, 2, b"2");
    assert_eq!(waiting.join().unwrap().unwrap(), &b"2"[..]);
}

#[test]
fn a_payload_that_the_codec_cannot_carry_costs_no_number() {
    let server = RawServer::new();
    let codec = || LengthFieldCodec::newlife(0, 1).unwrap();
    let client = NetUri::parse(&server.uri)
        .unwrap()
        .client()
        .codec(codec)
        .max_in_flight(1)
        .connect_blocking()
        .unwrap();
    let mut peer = server.accept();
    for _ in 0..3 {
        assert!(matches!(wait(client.request(&[0; 256])), Err(CallError::Encode(_))));
    }
    let waits = begin(&client, b"x");
    // Waits for its turn, fails in it, and the one behind it has its turn.
    let bad = client.request(&[0; 256]);
    let mut bad = Box::pin(bad);
    let _ = bad.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    let behind = begin(&client, b"y");
    expect(&mut peer, b"\x01x");
    peer.write_all(b"\x01X").unwrap();
    assert_eq!(wait(waits).unwrap(), &b"X"[..]);
    assert!(matches!(wait(bad), Err(CallError::Encode(_))));
    expect(&mut peer, b"\x01y");
    peer.write_all(b"\x01Y").unwrap();
    assert_eq!(wait(behind).unwrap(), &b"Y"[..]);
}
