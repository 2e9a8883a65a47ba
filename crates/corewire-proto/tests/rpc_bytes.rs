//! The bytes of both versions, as the format's descriptions give them.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::time::Duration;

use corewire_proto::rpc::{
    Begin, Code, Connection, Failure, Frame, MethodPath, Mode, Options, Settings, TraceContext, Version,
};
use corewire_testkit::rpc_pair::{RpcPair, RpcPeer, Seen, SeenExtensions};

const UNARY: &str = "47525043 01010400 00000000 00000018 000b4563686f53657276696365 00046563686f 48656c6c6f";
const UNARY_RESPONSE: &str = "47525043 01020400 00000000 00000007 0000 48656c6c6f";
const INIT: &str =
    "47525043 01100000 00000001 0000001a 001253747265616d42656e636853657276696365 00046563686f";
const ACK: &str = "47525043 01110000 00000001 00000000";
const DATA: &str = "47525043 01120000 00000001 00000005 68656c6c6f";
const END: &str = "47525043 01130000 00000001 00000000";
const SETTINGS: &str = "47525043 02210000 00000000 0000001e 0001 00040000 0002 01000000 0003 00004000 0004 00001000 0005 00004000";

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn path(service: &str, method: &str) -> MethodPath {
    MethodPath::new(service, method).unwrap()
}

/// A client of version 2 whose SETTINGS are out of the way.
fn started_client(first_id: u32) -> RpcPeer {
    let settings = Settings { first_id, ..Settings::default() };
    let mut client = RpcPeer::new(Connection::client(Version::V2, settings));
    client.machine.start(&mut client.out);
    client.receive(&hex(SETTINGS)).unwrap();
    client.out.clear();
    client
}

/// A server of version 2 whose SETTINGS are out of the way.
fn started_server() -> RpcPeer {
    let mut server = RpcPeer::new(Connection::server(Settings::default()));
    server.receive(&hex(SETTINGS)).unwrap();
    assert_eq!(server.out, hex(SETTINGS));
    server.out.clear();
    server
}

#[test]
fn a_unary_call_of_version_1_has_the_bytes_of_the_original() {
    let mut pair = RpcPair::new(Version::V1);
    let call =
        pair.client.machine.unary(&path("EchoService", "echo"), b"Hello", &mut pair.client.out).unwrap();
    assert_eq!(pair.client.out, hex(UNARY));
    let seen = pair.to_server();
    let [Seen::Request { call: served, mode: Mode::Unary, is_stream: false, path, payload, end: true, .. }] =
        &seen[..]
    else {
        panic!("{seen:?}")
    };
    assert_eq!((&path[..], payload.as_deref()), ("EchoService/echo", Some(&b"Hello"[..])));
    pair.server.machine.send(*served, b"Hello", true, &mut pair.server.out).unwrap();
    assert_eq!(pair.server.out, hex(UNARY_RESPONSE));
    assert_eq!(pair.to_client(), [Seen::Message(call, b"Hello".into(), true, SeenExtensions::default())]);
    pair.assert_settles_idle();
}

#[test]
fn an_unknown_service_of_version_1_is_answered_by_its_code_alone() {
    let mut server = RpcPeer::new(Connection::server(Settings::default()));
    let mut request = hex(UNARY);
    request[8..12].copy_from_slice(&3001u32.to_be_bytes());
    let seen = server.receive(&request).unwrap();
    let failure = Failure { code: Code::SERVICE_NOT_FOUND, message: "no such service", details: b"" };
    server.machine.fail(seen[0].call().unwrap(), &failure, &mut server.out).unwrap();
    assert_eq!(server.out, hex("47525043 01020400 00000bb9 00000002 0002"));
    server.assert_idle();
}

#[test]
fn a_stream_of_version_1_has_the_bytes_of_the_original() {
    let settings = Settings { first_id: 1, ..Settings::default() };
    let mut pair = RpcPair::with_settings(Version::V1, settings, Settings::default());
    let path = path("StreamBenchService", "echo");
    let call = pair.client.machine.open_stream(&path, &Options::default(), &mut pair.client.out).unwrap();
    assert_eq!(pair.client.out, hex(INIT));
    let served = pair.to_server()[0].call().unwrap();
    pair.server.machine.accept(served, &mut pair.server.out).unwrap();
    assert_eq!(pair.server.out, hex(ACK));
    assert_eq!(pair.to_client(), [Seen::Accepted(call)]);
    pair.client.machine.send(call, b"hello", false, &mut pair.client.out).unwrap();
    assert_eq!(pair.client.out, hex(DATA));
    let seen = pair.to_server();
    assert_eq!(seen, [Seen::Message(served, b"hello".into(), false, SeenExtensions::default())]);
    pair.client.machine.finish(call, &mut pair.client.out).unwrap();
    assert_eq!(pair.client.out, hex(END));
    assert_eq!(pair.to_server(), [Seen::Ended(served, SeenExtensions::default())]);
    pair.server.machine.finish(served, &mut pair.server.out).unwrap();
    assert_eq!(pair.server.out, hex(END));
    assert_eq!(pair.to_client(), [Seen::Ended(call, SeenExtensions::default())]);
    pair.assert_settles_idle();
}

#[test]
fn requests_of_version_1_repeat_the_names_in_a_client_stream() {
    let mut pair = RpcPair::new(Version::V1);
    let path = path("Up", "put");
    let begin = Begin { path: &path, mode: Mode::ClientStream, end: false, options: Options::default() };
    let call = pair.client.machine.begin(&begin, Some(b"a"), &mut pair.client.out).unwrap();
    pair.client.machine.send(call, b"b", true, &mut pair.client.out).unwrap();
    let frames = [
        "47525043 01010100 00000000 0000000a 00025570 0003707574 61",
        "47525043 01010500 00000000 0000000a 00025570 0003707574 62",
    ];
    assert_eq!(pair.client.out, hex(&frames.concat()));
    let seen = pair.to_server();
    let served = seen[0].call().unwrap();
    assert_eq!(seen[1], Seen::Message(served, b"b".into(), true, SeenExtensions::default()));
    pair.server.machine.send(served, b"2", true, &mut pair.server.out).unwrap();
    assert_eq!(pair.to_client(), [Seen::Message(call, b"2".into(), true, SeenExtensions::default())]);
    pair.assert_settles_idle();
}

/// Whatever stands between backquotes and begins with the magic is read, and written again as it was.
#[test]
fn every_example_of_the_specification_is_a_frame() {
    let text = include_str!("../../../docs/rpc-protocol-v2.md");
    let examples = text.split_once("## 11. Examples").unwrap().1;
    let mut count = 0;
    for span in examples.split('`').skip(1).step_by(2).filter(|span| span.starts_with("47525043")) {
        let bytes = hex(span);
        let (header, frame) =
            Frame::parse(&bytes).unwrap_or_else(|error| panic!("{span}: {error}")).expect(span);
        let mut written = Vec::new();
        frame.emit(header.version, header.id, &mut written);
        assert_eq!(written, bytes, "{span}");
        count += 1;
    }
    assert_eq!(count, 24);
}

#[test]
fn version_2_begins_with_settings() {
    let mut pair = RpcPair::new(Version::V2);
    pair.client.machine.start(&mut pair.client.out);
    assert_eq!(pair.client.out, hex(SETTINGS));
    pair.to_server();
    assert_eq!(pair.server.out, hex(SETTINGS));
}

#[test]
fn a_method_of_version_2_is_named_once_and_then_by_its_number() {
    let (mut client, mut server) = (started_client(0), started_server());
    let echo = path("EchoService", "echo");
    // The same names from elsewhere are the same method.
    let again = path("EchoService", "echo");
    client.machine.unary(&echo, b"Hello", &mut client.out).unwrap();
    client.machine.unary(&again, b"Hello", &mut client.out).unwrap();
    let frames = [
        "47525043 02014400 00000000 0000001a 0001 000b4563686f53657276696365 00046563686f 48656c6c6f",
        "47525043 02010400 00000001 00000007 0001 48656c6c6f",
    ];
    assert_eq!(client.out, hex(&frames.concat()));
    let alone = "47525043 02014400 00000002 0000001a 0000 000b4563686f53657276696365 00046563686f 48656c6c6f";
    let mut seen = server.receive(&client.out).unwrap();
    seen.extend(server.receive(&hex(alone)).unwrap());
    let paths = seen.iter().map(|seen| match seen {
        Seen::Request { path, payload, .. } => (&path[..], payload.as_deref()),
        other => panic!("{other:?}"),
    });
    assert!(paths.eq([("EchoService/echo", Some(&b"Hello"[..])); 3]));
    server.machine.send(seen[0].call().unwrap(), b"Hello", true, &mut server.out).unwrap();
    assert_eq!(server.out, hex("47525043 02020400 00000000 00000007 0000 48656c6c6f"));
}

#[test]
fn a_deadline_a_trace_and_metadata_have_the_bytes_of_the_specification() {
    let mut client = started_client(1);
    let options = Options {
        timeout: Some(Duration::from_millis(250)),
        trace: Some(
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".parse::<TraceContext>().unwrap(),
        ),
        metadata: &[("user", b"ann")],
        ..Options::default()
    };
    let path = path("EchoService", "echo");
    let begin = Begin { path: &path, mode: Mode::Unary, end: true, options };
    client.machine.begin(&begin, Some(b"Hello"), &mut client.out).unwrap();
    let example = "47525043 02014c00 00000001 0000004e 0001 000b4563686f53657276696365 00046563686f \
        0032 01 0008 000000000003d090 02 0019 0af7651916cd43dd8448eb211c80319c b7ad6b7169203331 01 \
        04 0008 04 75736572 616e6e 48656c6c6f";
    assert_eq!(client.out, hex(example));
    let seen = started_server().receive(&client.out).unwrap();
    let [Seen::Request { extensions, payload, .. }] = &seen[..] else { panic!("{seen:?}") };
    let expected = SeenExtensions {
        timeout: Some(Duration::from_millis(250)),
        trace: Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01".into()),
        trace_state: None,
        metadata: vec![("user".into(), b"ann".into())],
    };
    assert_eq!((extensions, payload.as_deref()), (&expected, Some(&b"Hello"[..])));
}

#[test]
fn a_client_stream_of_version_2_has_the_bytes_of_the_specification() {
    let (mut client, mut server) = (started_client(2), started_server());
    let path = path("Up", "put");
    let begin = Begin { path: &path, mode: Mode::ClientStream, end: false, options: Options::default() };
    let call = client.machine.begin(&begin, Some(b"a"), &mut client.out).unwrap();
    client.machine.send(call, b"b", false, &mut client.out).unwrap();
    client.machine.finish(call, &mut client.out).unwrap();
    let frames = [
        "47525043 02014100 00000002 0000000c 0001 00025570 0003707574 61",
        "47525043 02011100 00000002 00000001 62",
        "47525043 02013500 00000002 00000000",
    ];
    assert_eq!(client.out, hex(&frames.concat()));
    let seen = server.receive(&client.out).unwrap();
    let served = seen[0].call().unwrap();
    assert_eq!(seen[2], Seen::Ended(served, SeenExtensions::default()));
    server.machine.send(served, b"2", false, &mut server.out).unwrap();
    assert_eq!(server.out, hex("47525043 02020500 00000002 00000003 0000 32"));
    let seen = client.receive(&server.out).unwrap();
    assert_eq!(seen, [Seen::Message(call, b"2".into(), true, SeenExtensions::default())]);
    client.assert_idle();
    server.assert_idle();
}

#[test]
fn a_failure_with_detail_has_the_bytes_of_the_specification() {
    let (mut client, mut server) = (started_client(3), started_server());
    let call = client.machine.unary(&path("S", "e"), b"", &mut client.out).unwrap();
    let served = server.receive(&client.out).unwrap()[0].call().unwrap();
    let failure = Failure { code: Code::PERMISSION_DENIED, message: "no", details: &[0xff] };
    server.machine.fail(served, &failure, &mut server.out).unwrap();
    assert_eq!(server.out, hex("47525043 02040000 00000003 00000007 000e 0002 6e6f ff"));
    let seen = client.receive(&server.out).unwrap();
    assert_eq!(seen, [Seen::Failed(call, Code::PERMISSION_DENIED, "no".into(), vec![0xff])]);
    client.assert_idle();
    server.assert_idle();
}

#[test]
fn a_cancel_has_the_bytes_of_the_specification() {
    let (mut client, mut server) = (started_client(4), started_server());
    let call = client.machine.unary(&path("S", "e"), b"", &mut client.out).unwrap();
    let served = server.receive(&std::mem::take(&mut client.out)).unwrap()[0].call().unwrap();
    client.machine.cancel(call, Code::CANCELLED, "bye", &mut client.out).unwrap();
    assert_eq!(client.out, hex("47525043 02140000 00000004 00000005 000b 627965"));
    let seen = server.receive(&client.out).unwrap();
    assert_eq!(seen, [Seen::Cancelled(served, Code::CANCELLED, "bye".into())]);
    assert_eq!(server.out, hex("47525043 02140000 00000004 00000000"), "the answer frees the id");
    assert_eq!((client.machine.calls_in_flight(), client.machine.calls_abandoned()), (1, 1));
    assert_eq!(client.receive(&server.out).unwrap(), []);
    client.assert_idle();
    server.assert_idle();
}

#[test]
fn pings_and_going_away_have_the_bytes_of_the_specification() {
    let (mut client, mut server) = (started_client(41), started_server());
    client.machine.ping([1, 2, 3, 4, 5, 6, 7, 8], &mut client.out);
    assert_eq!(client.out, hex("47525043 02030000 00000000 00000008 0102030405060708"));
    assert_eq!(server.receive(&std::mem::take(&mut client.out)).unwrap(), []);
    assert_eq!(server.out, hex("47525043 02030100 00000000 00000008 0102030405060708"));
    let seen = client.receive(&std::mem::take(&mut server.out)).unwrap();
    assert_eq!(seen, [Seen::Pong([1, 2, 3, 4, 5, 6, 7, 8])]);

    server.machine.go_away(Code::OK, "", &mut server.out);
    assert_eq!(server.out, hex("47525043 02220100 00000000 00000006 00000000 0000"));
    let mut server = started_server();
    client.machine.unary(&path("S", "e"), b"", &mut client.out).unwrap();
    server.receive(&client.out).unwrap();
    server.machine.go_away(Code::OK, "bye", &mut server.out);
    assert_eq!(server.out, hex("47525043 02220000 00000000 00000009 00000029 0000 627965"));
    assert_eq!(client.receive(&server.out).unwrap(), [Seen::GoingAway(Some(41), Code::OK, "bye".into())]);
}

#[test]
fn a_credit_has_the_bytes_of_the_specification() {
    let (mut client, mut server) = (started_client(5), started_server());
    let path = path("S", "e");
    let call = client.machine.open_stream(&path, &Options::default(), &mut client.out).unwrap();
    client.machine.send(call, &[7; 131_056][..], false, &mut client.out).unwrap();
    let seen = server.receive(&client.out).unwrap();
    server.machine.release(seen[1].call().unwrap(), 131_056, &mut server.out);
    assert_eq!(server.out, hex("47525043 02200000 00000005 00000004 00020000"));
    assert_eq!(client.receive(&server.out).unwrap(), [], "nobody was waiting for it");
}
