//! The known faults of the originals whose formats Corewire speaks: for each a test that it is not here, named after
//! the fault.

use std::io::Write;
use std::time::Duration;

use corewire::proto::codec::EncodeError;
use corewire::{CallError, Frame, FrameSendError, LengthFieldCodec, NetUri, Session};

use crate::common::*;

#[test]
fn lengths_silently_truncated() {
    let (sender, events) = events();
    let sender = std::sync::Mutex::new(sender);
    let codec = || LengthFieldCodec::newlife(0, 2).unwrap();
    let server = local()
        .codec(codec)
        .handler(move || {
            let sender = sender.lock().unwrap().clone();
            move |session: &Session, _: Frame<'_>| {
                // The original writes 65,536 as 0.
                sender.send(session.send(&vec![1; 65_536])).unwrap();
                session.send(b"next").unwrap();
            }
        })
        .start()
        .unwrap();
    let mut peer = raw(&server);
    peer.write_all(b"\x01\0x").unwrap();
    // Nothing of it is on the wire.
    expect(&mut peer, b"\x04\0next");
    let error = events.next().unwrap_err();
    assert!(matches!(error, FrameSendError::Encode(EncodeError::TooLong { len: 65_536, .. })), "{error}");
}

#[test]
fn partial_data_thrown_away_after_a_time_or_a_size() {
    let server = standard_echo();
    // By size: the first part of a frame is more than 1 MB.
    let mut header = vec![1, 1, 0xff, 0xff];
    header.extend(3_000_000_u32.to_le_bytes());
    let mut large = raw(&server);
    large.write_all(&[&header[..], &vec![5; 2_500_000]].concat()).unwrap();
    // By time. The original's 5 s are too long for a test; there is no such clock here at all.
    let mut slow = raw(&server);
    slow.write_all(&srmp(1, 2, b"slow")[..6]).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    slow.write_all(&srmp(1, 2, b"slow")[6..]).unwrap();
    expect(&mut slow, &srmp(0x81, 2, b"slow"));
    large.write_all(&vec![5; 500_000]).unwrap();
    header[0] = 0x81;
    expect(&mut large, &[&header[..], &vec![5; 3_000_000]].concat());
}

#[test]
fn a_sequence_of_one_byte_that_wraps_onto_a_call_in_flight() {
    let server = RawServer::new();
    let client = client_of(&server.uri).connect_blocking().unwrap();
    let mut peer = server.accept();
    let mut held = client.request(b"held");
    assert!(poll_once(&mut held).is_pending());
    let (_, number, _) = read_srmp(&mut peer);
    for _ in 0..300 {
        let mut call = client.request(b"x");
        assert!(poll_once(&mut call).is_pending());
        let (_, sequence, _) = read_srmp(&mut peer);
        assert_ne!(sequence, number);
        peer.write_all(&srmp(0x81, sequence, b"x")).unwrap();
        assert_eq!(wait(call).unwrap(), &b"x"[..]);
    }
    peer.write_all(&srmp(0x81, number, b"its own")).unwrap();
    assert_eq!(wait(held).unwrap(), &b"its own"[..]);
}

#[test]
fn a_matching_queue_that_throws_when_full() {
    let server = standard_echo();
    let client = connect(&server);
    let mut calls: Vec<_> = (0..1000).map(|_| client.request(b"x")).collect();
    for call in &mut calls {
        if let std::task::Poll::Ready(result) = poll_once(call) {
            result.unwrap();
        }
    }
    for call in calls {
        match wait(call) {
            Ok(reply) => assert_eq!(reply, &b"x"[..]),
            // Polled above, and ready then.
            Err(error) => assert_eq!(error, CallError::Closed),
        }
    }
}

#[test]
fn last_in_first_out_matching_sold_as_first_in_first_out() {
    let codec = || LengthFieldCodec::newlife(0, 2).unwrap();
    let server = RawServer::new();
    let client = NetUri::parse(&server.uri).unwrap().client().codec(codec).connect_blocking().unwrap();
    let mut peer = server.accept();
    let mut calls = [client.request(b"1"), client.request(b"2"), client.request(b"3")];
    for call in &mut calls {
        assert!(poll_once(call).is_pending());
    }
    expect(&mut peer, b"\x01\x001\x01\x002\x01\x003");
    peer.write_all(b"\x01\0a\x01\0b\x01\0c").unwrap();
    assert_eq!(calls.map(|call| wait(call).unwrap()), ["a", "b", "c"]);
}

#[test]
fn a_decoder_that_throws_when_a_piece_ends_inside_the_length_field() {
    let server = local().codec(|| LengthFieldCodec::newlife(2, 4).unwrap()).handler(echo).start().unwrap();
    let frame = b"\0\0\x05\0\0\0hello";
    for cut in 0..=6 {
        let mut peer = raw(&server);
        // A whole frame before it shows that the first piece has been read.
        peer.write_all(&[&frame[..], &frame[..cut]].concat()).unwrap();
        expect(&mut peer, frame);
        peer.write_all(&frame[cut..]).unwrap();
        expect(&mut peer, frame);
    }
    assert_eq!(server.stats().workers.panics, 0);
}

#[test]
fn shared_codec_state_that_lets_one_session_cancel_another_ones_calls() {
    let server = RawServer::new();
    // The same factory makes the codecs of both.
    let (one, other) = (
        client_of(&server.uri).connect_blocking().unwrap(),
        client_of(&server.uri).connect_blocking().unwrap(),
    );
    let (mut peer_of_one, mut peer_of_other) = (server.accept(), server.accept());
    let (mut first, mut second) = (one.request(b"one"), other.request(b"other"));
    assert!(poll_once(&mut first).is_pending() && poll_once(&mut second).is_pending());
    assert_eq!(read_srmp(&mut peer_of_one), (1, 1, b"one".to_vec()));
    assert_eq!(read_srmp(&mut peer_of_other), (1, 1, b"other".to_vec()));
    drop(peer_of_one);
    assert!(matches!(wait(first), Err(CallError::ConnectionLost(_))));
    peer_of_other.write_all(&srmp(0x81, 1, b"fine")).unwrap();
    assert_eq!(wait(second).unwrap(), &b"fine"[..]);
}

#[test]
fn a_late_reply_that_completes_the_wrong_call() {
    let server = RawServer::new();
    let client = client_of(&server.uri).connect_blocking().unwrap();
    let mut peer = server.accept();
    let short = Duration::from_millis(10);
    assert_eq!(wait(client.request(b"first").timeout(short)), Err(CallError::TimedOut(short)));
    let mut second = client.request(b"second");
    assert!(poll_once(&mut second).is_pending());
    let (_, first, _) = read_srmp(&mut peer);
    let (_, number, _) = read_srmp(&mut peer);
    peer.write_all(&[srmp(0x81, first, b"late"), srmp(0x81, number, b"in time")].concat()).unwrap();
    assert_eq!(wait(second).unwrap(), &b"in time"[..]);
}

#[test]
fn a_late_reply_of_the_connection_before_that_completes_a_call_of_this_one() {
    let server = RawServer::new();
    let mut reconnect = corewire::client::Reconnect::default();
    reconnect.initial = Duration::from_millis(1);
    let client = client_of(&server.uri).reconnect(reconnect).connect_blocking().unwrap();
    let mut before = server.accept();
    let mut lost = client.request(b"lost");
    assert!(poll_once(&mut lost).is_pending());
    assert_eq!(read_srmp(&mut before).1, 1);
    // Finished on this side only: what is written after that is of a connection that is over.
    before.shutdown(std::net::Shutdown::Write).unwrap();
    assert!(matches!(wait(lost), Err(CallError::ConnectionLost(_))));
    let mut now = server.accept();
    let mut call = client.request(b"now");
    assert!(poll_once(&mut call).is_pending());
    let (_, number, _) = read_srmp(&mut now);
    now.write_all(&srmp(0x81, number, b"of now")).unwrap();
    assert_eq!(wait(call).unwrap(), &b"of now"[..]);
}
