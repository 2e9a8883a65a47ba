//! A pipeline of framing and objects: values on both sides.

use std::io::Write;

use corewire::proto::codec::{FrameHead, FrameKind, JsonCodec};
use corewire::{
    CallError, Frame, LineCodec, NetServer, ObjectCallError, ServerHandle, Session, StandardCodec, objects,
};
use serde::{Deserialize, Serialize};

use crate::common::*;

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Sum {
    numbers: Vec<i64>,
}

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Total {
    total: i64,
}

/// Adds numbers; says nothing to an empty sum.
fn adder(_: &Session, _: FrameHead, sum: Sum) -> Option<Total> {
    (!sum.numbers.is_empty()).then(|| Total { total: sum.numbers.iter().sum() })
}

fn lines() -> ServerHandle {
    local().codec(LineCodec::new).handler(|| objects(JsonCodec::<Sum, Total>::new(), adder)).start().unwrap()
}

fn adding() -> ServerHandle {
    standard(|| objects(JsonCodec::<Sum, Total>::new(), adder))
}

#[test]
fn values_go_in_and_come_out() {
    let server = lines();
    let mut peer = raw(&server);
    peer.write_all(b"{\"numbers\":[1,2,39]}\n {\"numbers\":[]}\n{\"numbers\":[-7]}\r\n").unwrap();
    expect(&mut peer, b"{\"total\":42}\n{\"total\":-7}\n");
}

#[test]
fn bad_json_gets_an_error_reply_and_the_session_goes_on() {
    let server = adding();
    let mut peer = raw(&server);
    for (sequence, bad) in
        [&b"{\"numbers\":"[..], b"", b"\xff\xfe", b"{\"numbers\":[1]} x", b"{\"numbers\":\"1\"}"]
            .into_iter()
            .enumerate()
    {
        peer.write_all(&srmp(3, sequence as u8, bad)).unwrap();
        let (flag, got, text) = read_srmp(&mut peer);
        assert_eq!((flag, got), (0xc3, sequence as u8));
        assert!(String::from_utf8(text).unwrap().starts_with("the payload cannot be read: "));
        peer.write_all(&srmp(3, 99, b"{\"numbers\":[2,2]}")).unwrap();
        expect(&mut peer, &srmp(0x83, 99, b"{\"total\":4}"));
    }
    let nested = [b"[".repeat(10_000), b"]".repeat(10_000)].concat();
    peer.write_all(&srmp(3, 1, &nested)).unwrap();
    assert_eq!(read_srmp(&mut peer).0, 0xc3);
}

#[test]
fn a_client_calls_with_objects() {
    let server = adding();
    let client = connect(&server);
    let codec = || JsonCodec::<Total, Sum>::new();
    let total = wait(client.request_object(codec(), &Sum { numbers: vec![40, 2] })).unwrap();
    assert_eq!(total, Total { total: 42 });
    // What the server refuses is its error, in its words.
    let error = wait(client.request_object(JsonCodec::<Total, u32>::new(), &1)).unwrap_err();
    let ObjectCallError::Call(CallError::Remote(text)) = error else { panic!("{error:?}") };
    assert!(text.starts_with(b"the payload cannot be read: "));
    // A reply that is no such value.
    let error =
        wait(client.request_object(JsonCodec::<Sum, Sum>::new(), &Sum { numbers: vec![1] })).unwrap_err();
    assert!(matches!(error, ObjectCallError::Reply(_)), "{error:?}");
    assert!(error.to_string().contains("cannot be read"), "{error}");
    // And the client goes on.
    assert!(wait(client.request_object(codec(), &Sum { numbers: vec![1] })).is_ok());
}

#[test]
fn a_value_that_cannot_be_written_is_not_sent() {
    let (sender, events) = events();
    let sender = std::sync::Mutex::new(sender);
    let server = standard(move || {
        let sender = sender.lock().unwrap().clone();
        move |session: &Session, frame: Frame<'_>| {
            sender.send(frame.payload().to_vec()).unwrap();
            session.reply(&frame, frame.payload()).unwrap();
        }
    });
    let client = connect(&server);
    // JSON has no keys of this kind.
    let map = std::collections::HashMap::from([(vec![1_u8], 1_u8)]);
    let codec = JsonCodec::<u8, std::collections::HashMap<Vec<u8>, u8>>::new();
    let error = wait(client.request_object(codec, &map)).unwrap_err();
    assert!(matches!(error, ObjectCallError::Call(CallError::Encode(_))), "{error:?}");
    assert_eq!(wait(client.request(b"next")).unwrap(), &b"next"[..]);
    assert_eq!(events.next(), b"next");
}

#[test]
fn objects_go_one_way_too() {
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(|| objects(JsonCodec::<Sum, Total>::new(), adder))
        .workers(1)
        .start()
        .unwrap();
    let client = client_of(server.uri()).inbox(1).connect_blocking().unwrap();
    // Not answered: the next one is.
    wait(client.send_object(JsonCodec::<(), u32>::new(), &1)).unwrap();
    wait(client.send_object(JsonCodec::<Total, Sum>::new(), &Sum { numbers: vec![20, 3] })).unwrap();
    // As a message, not as the reply to a call that it could be mistaken for.
    let message = wait(client.recv()).unwrap();
    assert_eq!(message.head.kind, FrameKind::OneWay);
    assert_eq!(&message.payload[..], b"{\"total\":23}");
}
