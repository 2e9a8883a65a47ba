//! What a faulty or hostile peer may send, and that nothing is left behind by it.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, Begin, Code, Connection, ConnectionError, Event, Frame, FrameType, HeaderError,
    METHOD_NAMES_MAX, METHODS_MAX, MethodPath, Mode, Options, Origin, Rate, Reassembly, Settings, Version,
};
use corewire_testkit::rpc_pair::{RpcPair, RpcPeer, Seen};

const V1: u8 = 1;
const V2: u8 = 2;

const REQUEST: u8 = 0x01;
const RESPONSE: u8 = 0x02;
const PING: u8 = 0x03;
const ERROR: u8 = 0x04;
const INIT: u8 = 0x10;
const ACK: u8 = 0x11;
const DATA: u8 = 0x12;
const END: u8 = 0x13;
const CANCEL: u8 = 0x14;
const CREDIT: u8 = 0x20;
const SETTINGS: u8 = 0x21;

/// A REQUEST's or INIT's names, `S/e`.
const NAMES: &[u8] = b"\0\x01S\0\x01e";

fn frame(version: u8, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![b'G', b'R', b'P', b'C', version, kind, flags, 0];
    bytes.extend_from_slice(&id.to_be_bytes());
    bytes.extend_from_slice(&(body.len() as u32).to_be_bytes());
    bytes.extend_from_slice(body);
    bytes
}

/// The first frame of a call, with names for this call alone.
fn begun(version: u8, kind: u8, flags: u8, id: u32, body: &[u8]) -> Vec<u8> {
    match version {
        V1 => frame(V1, kind, flags, id, body),
        _ => frame(V2, kind, flags | 0x40, id, &[b"\0\0", body].concat()),
    }
}

/// A server to which the client has already spoken this version.
fn server(version: u8) -> RpcPeer {
    server_with(version, Settings::default())
}

fn server_with(version: u8, settings: Settings) -> RpcPeer {
    let mut server = RpcPeer::new(Connection::server(settings));
    if version == V2 {
        server.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap();
        server.out.clear();
    }
    server
}

/// A client that knows the server's settings, with a bidi call (id 0) and a stream (id 1) in use.
fn client(version: Version) -> RpcPeer {
    let mut client = RpcPeer::new(Connection::client(version, Settings::default()));
    let path = MethodPath::new("S", "e").unwrap();
    let begin = Begin { path: &path, mode: Mode::Bidi, end: false, options: Options::default() };
    client.machine.begin(&begin, Some(b"x"), &mut client.out).unwrap();
    client.machine.open_stream(&path, &Options::default(), &mut client.out).unwrap();
    if version == Version::V2 {
        client.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap();
    }
    client.out.clear();
    client
}

/// The peer is cut off with this error, and nothing is left.
#[track_caller]
fn assert_closes(mut peer: RpcPeer, bytes: &[u8], expected: ConnectionError) {
    assert_eq!(peer.receive(bytes), Err(expected));
    peer.lose();
    peer.assert_idle();
}

/// The peer is answered by `answer` and may go on; nothing is left.
#[track_caller]
fn assert_answers(mut peer: RpcPeer, bytes: &[u8], answer: &[u8]) {
    assert_eq!(peer.receive(bytes), Ok(vec![]));
    assert_eq!(peer.out, answer);
    peer.assert_idle();
}

#[test]
fn a_malformed_header_closes_the_connection() {
    let good = begun(V1, REQUEST, 4, 0, NAMES);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        bytes
    };
    assert_closes(server(V1), &with(0, b'X'), HeaderError::Magic { found: 0x5852_5043 }.into());
    assert_closes(server(V1), &with(4, 0), HeaderError::Version { found: 0 }.into());
    assert_closes(server(V1), &with(4, 255), HeaderError::Version { found: 255 }.into());
    for found in [0x00, 0x05, 0x0f, 0x15, 0x20, 0x21, 0x22, 0x23, 0xff] {
        assert_closes(server(V1), &with(5, found), HeaderError::Type { version: Version::V1, found }.into());
    }
    let reserved = |flags, reserved| HeaderError::ReservedBits { kind: FrameType::Request, flags, reserved };
    assert_closes(server(V1), &with(6, 0x0c), reserved(0x0c, 0).into());
    assert_closes(server(V1), &with(7, 1), reserved(4, 1).into());
}

#[test]
fn flags_are_refused_where_the_version_gives_them_no_meaning() {
    for (version, kind, allowed) in [
        (V1, REQUEST, 0x07),
        (V1, RESPONSE, 0x07),
        (V1, PING, 0),
        (V1, INIT, 0),
        (V1, ACK, 0),
        (V1, DATA, 0),
        (V1, END, 0),
        (V1, CANCEL, 0),
        (V2, REQUEST, 0x7f),
        (V2, RESPONSE, 0x2f),
        (V2, PING, 0x01),
        (V2, ERROR, 0x08),
        (V2, INIT, 0x48),
        (V2, DATA, 0),
        (V2, CANCEL, 0),
        (V2, CREDIT, 0),
        (V2, SETTINGS, 0),
        (V2, 0x22, 0x01),
    ] {
        for bit in (0..8).map(|bit| 1 << bit) {
            let parsed = corewire_proto::rpc::Header::parse(&frame(version, kind, bit, 0, b""));
            assert_eq!(
                parsed.is_ok(),
                allowed & bit != 0,
                "version {version}, type {kind:#x}, flag {bit:#x}"
            );
        }
    }
}

#[test]
fn a_body_over_the_limit_closes_the_connection_before_it_arrives() {
    let header = &frame(V1, REQUEST, 4, 0, &[0; 11])[..16];
    let settings = Settings { max_body: 10, ..Settings::default() };
    assert_closes(server_with(V1, settings), header, ConnectionError::BodyTooLong { len: 11, limit: 10 });
    let mut huge = header.to_vec();
    huge[12..].copy_from_slice(&[0xff; 4]);
    let limit = 16 * 1024 * 1024;
    assert_closes(server(V1), &huge, ConnectionError::BodyTooLong { len: u32::MAX, limit });
}

#[test]
fn one_connection_speaks_one_version() {
    let mut two = frame(V1, CANCEL, 0, 0, b"");
    two.extend(frame(V2, SETTINGS, 0, 0, b""));
    let changed = |spoken, found| ConnectionError::VersionChanged { spoken, found };
    assert_closes(server(V1), &two, changed(Version::V1, Version::V2));
    assert_closes(
        client(Version::V2),
        &frame(V1, RESPONSE, 4, 0, b"\0\0"),
        changed(Version::V2, Version::V1),
    );
}

#[test]
fn a_version_that_a_server_does_not_speak_is_answered_in_that_version() {
    let only = |version| Settings { versions: [version].into_iter().collect(), ..Settings::default() };
    let mut second = RpcPeer::new(Connection::server(only(Version::V1)));
    let error = second.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap_err();
    assert_eq!(error, ConnectionError::VersionRefused { version: Version::V2 });
    second.machine.abort(&error, &mut second.out);
    let (header, _) = Frame::parse(&second.out).unwrap().unwrap();
    let (_, last) = Frame::parse(&second.out[16 + header.body_len as usize..]).unwrap().unwrap();
    assert!(
        matches!(last, Frame::GoAway(body) if body.last_accepted.is_none() && body.code.0 == 16),
        "{last:?}"
    );
    second.assert_idle();

    let first = || RpcPeer::new(Connection::server(only(Version::V2)));
    assert_answers(first(), &begun(V1, REQUEST, 4, 9, NAMES), &frame(V1, RESPONSE, 4, 9, b"\0\x04"));
    assert_answers(first(), &begun(V1, INIT, 0, 9, NAMES), &frame(V1, CANCEL, 0, 9, b""));
}

#[test]
fn version_2_begins_with_settings_and_has_them_once() {
    let fresh = || RpcPeer::new(Connection::server(Settings::default()));
    let found = FrameType::Request;
    assert_closes(fresh(), &begun(V2, REQUEST, 4, 0, NAMES), ConnectionError::SettingsMissing { found });
    assert_closes(server(V2), &frame(V2, SETTINGS, 0, 0, b""), ConnectionError::SettingsTwice);
}

#[test]
fn a_method_that_cannot_be_read_fails_only_its_call() {
    let names: [&[u8]; 6] = [b"", b"\0", b"\0\x09S", b"\0\x01S", b"\0\x01S\0\x02e", b"\xff\xffS\0\x01e"];
    // The number of version 2.
    for (version, bodies) in [(V1, &names[..]), (V2, &names[..2])] {
        for body in bodies {
            let answer = frame(version, RESPONSE, 4, 9, b"\0\x04");
            assert_answers(server(version), &frame(version, REQUEST, 4, 9, body), &answer);
            let answer = frame(version, CANCEL, 0, 9, if version == V1 { b"" } else { b"\0\x04" });
            assert_answers(server(version), &frame(version, INIT, 0, 9, body), &answer);
        }
    }
}

#[test]
fn names_that_cannot_be_read_close_a_connection_on_which_they_would_have_a_number() {
    for body in [&b""[..], b"\0", b"\0\x01", b"\0\x01\0\x09S", b"\0\x01\0\x01S", b"\0\x01\0\x01S\0\x02e"] {
        for (kind, frame_type) in [(REQUEST, FrameType::Request), (INIT, FrameType::StreamInit)] {
            let flags = if kind == REQUEST { 0x44 } else { 0x40 };
            let error = server(V2).receive(&frame(V2, kind, flags, 9, body)).unwrap_err();
            assert!(matches!(error, ConnectionError::Body { kind, .. } if kind == frame_type), "{error:?}");
        }
    }
}

/// The first frame of a call that gives its names a number.
fn defining(id: u32, number: u16, service: &[u8]) -> Vec<u8> {
    let (number, len) = (number.to_be_bytes(), (service.len() as u16).to_be_bytes());
    frame(V2, REQUEST, 0x44, id, &[&number[..], &len, service, b"\0\x01e", b"payload"].concat())
}

#[test]
fn a_number_that_stands_for_no_method_closes_the_connection() {
    for number in [0, 1, 2, u16::MAX] {
        let undefined = ConnectionError::MethodUndefined { id: 7, number };
        for (kind, flags) in [(REQUEST, 4), (INIT, 0)] {
            assert_closes(server(V2), &frame(V2, kind, flags, 7, &number.to_be_bytes()), undefined);
        }
    }
    let mut bytes = defining(1, 1, b"S");
    bytes.extend(frame(V2, REQUEST, 4, 2, b"\0\x01"));
    bytes.extend(frame(V2, REQUEST, 4, 3, b"\0\x02"));
    assert_closes(server(V2), &bytes, ConnectionError::MethodUndefined { id: 3, number: 2 });
}

#[test]
fn a_number_given_again_or_out_of_sequence_closes_the_connection() {
    for (number, expected) in [(1, 2), (3, 2), (u16::MAX, 2)] {
        let bytes = [defining(1, 1, b"S"), defining(2, number, b"S")].concat();
        assert_closes(server(V2), &bytes, ConnectionError::MethodOutOfOrder { number, expected });
    }
}

#[test]
fn a_connection_remembers_so_many_methods() {
    let full = || {
        let mut server = server(V2);
        for number in 1..=METHODS_MAX {
            let seen = server.receive(&defining(u32::from(number), number, b"S")).unwrap();
            let RpcPeer { machine, out, .. } = &mut server;
            machine.fail(seen[0].call().unwrap(), &Code::INTERNAL.into(), out).unwrap();
        }
        server
    };
    let mut named = full();
    let seen = named.receive(&begun(V2, REQUEST, 4, 2_000, NAMES)).unwrap();
    assert_eq!(seen.len(), 1, "names for one call need no room");
    let too_many = ConnectionError::TooManyMethods { limit: METHODS_MAX };
    assert_closes(full(), &defining(2_000, METHODS_MAX + 1, b"S"), too_many);
    assert!(full().machine.method_bytes() < 64 * 1024);

    let long = [b'x'; 40_000];
    let bytes = [defining(1, 1, &long), defining(2, 2, &long)].concat();
    let too_long = ConnectionError::MethodNamesTooLong { len: 2 * 40_005, limit: METHOD_NAMES_MAX };
    assert_closes(server(V2), &bytes, too_long);
}

#[test]
fn names_have_their_number_also_when_the_call_is_refused() {
    let settings = Settings { max_calls: 0, max_streams: 0, max_extension: 4, ..Settings::default() };
    let block = b"\0\x09\x04\0\x06\x01abcde";
    let with_block = |id: u32, number: &[u8]| frame(V2, REQUEST, 0x4c, id, &[number, NAMES, block].concat());
    let broken = frame(V2, REQUEST, 0x4c, 3, &[b"\0\x03", NAMES, b"\xff"].concat());
    let stream = frame(V2, INIT, 0x40, 4, &[b"\0\x04", NAMES].concat());
    let mut server = server_with(V2, settings);
    for bytes in [defining(1, 1, b"S"), with_block(2, b"\0\x02"), broken, stream] {
        assert_eq!(server.receive(&bytes), Ok(vec![]));
    }
    for number in 1..=4_u8 {
        assert_eq!(server.receive(&frame(V2, REQUEST, 4, 10 + u32::from(number), &[0, number])), Ok(vec![]));
    }
    let undefined = ConnectionError::MethodUndefined { id: 20, number: 5 };
    assert_closes(server, &frame(V2, REQUEST, 4, 20, b"\0\x05"), undefined);
}

#[test]
fn names_in_a_frame_that_goes_on_fail_its_call() {
    let mut server = server(V2);
    let call = server.receive(&begun(V2, REQUEST, 1, 1, NAMES)).unwrap()[0].call().unwrap();
    let seen = server.receive(&frame(V2, REQUEST, 0x51, 1, b"\0\x01\0\x01S\0\x01e")).unwrap();
    assert_eq!(seen, [Seen::Cancelled(call, Code::INVALID_REQUEST, String::new())]);
    server.assert_idle();
}

#[test]
fn what_a_client_names_after_goaway_is_not_read() {
    let mut server = server(V2);
    server.machine.go_away(Code::OK, "", &mut server.out);
    server.receive(&frame(V2, REQUEST, 4, 1, b"\0\x09")).unwrap();
    server.receive(&defining(2, 7, b"S")).unwrap();
    server.assert_idle();
}

#[test]
fn a_broken_extension_block_fails_only_its_call() {
    let cases: [(&str, &[u8]); 9] = [
        ("longer than the body", b"\0\x09"),
        ("an entry cut short", b"\0\x03\x04\0\x09"),
        ("a short deadline", b"\0\x05\x01\0\x02\0\x01"),
        ("a zero trace", &[&b"\0\x1c\x02\0\x19"[..], &[0; 25]].concat()),
        ("a state without a trace", b"\0\x04\x03\0\x01a"),
        ("no name", b"\0\x04\x04\0\x01\0"),
        ("a name beyond the entry", b"\0\x05\x04\0\x02\x09a"),
        ("a name in capitals", b"\0\x05\x04\0\x02\x01A"),
        ("two deadlines", &[&b"\0\x16"[..], &[1, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1].repeat(2)].concat()),
    ];
    for (what, block) in cases {
        let body = [NAMES, block].concat();
        let mut server = server(V2);
        assert_eq!(server.receive(&begun(V2, REQUEST, 0x0c, 3, &body)), Ok(vec![]), "{what}");
        assert_eq!(server.out, frame(V2, RESPONSE, 4, 3, b"\0\x04"), "{what}");
        server.assert_idle();
    }
}

#[test]
fn an_extension_block_over_the_limit_is_refused() {
    let settings = Settings { max_extension: 10, ..Settings::default() };
    let block = b"\0\x09\x04\0\x06\x01abcde";
    let answer = frame(V2, RESPONSE, 4, 3, b"\0\x0c");
    let request = begun(V2, REQUEST, 0x0c, 3, &[NAMES, &block[..]].concat());
    assert_answers(server_with(V2, settings), &request, &answer);
}

#[test]
fn a_response_that_cannot_be_read_fails_only_its_call() {
    for (version, flags, body) in
        [(V1, 4, &b"\0"[..]), (V2, 4, b""), (V2, 0x0c, b"\0\x09\0\0"), (V2, 0x24, b"\0\0")]
    {
        let spoken = if version == V1 { Version::V1 } else { Version::V2 };
        let mut client = RpcPeer::new(Connection::client(spoken, Settings::default()));
        let path = MethodPath::new("S", "e").unwrap();
        let call = client.machine.unary(&path, b"", &mut client.out).unwrap();
        if version == V2 {
            client.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap();
        }
        let seen = client.receive(&frame(version, RESPONSE, flags, 0, body)).unwrap();
        assert_eq!(seen, [Seen::Failed(call, Code::INVALID_RESPONSE, String::new(), vec![])]);
        client.assert_idle();
    }
}

#[test]
fn bodies_of_ack_end_and_cancel_are_stepped_over() {
    let mut server = server(V1);
    let mut bytes = begun(V1, INIT, 0, 1, NAMES);
    bytes.extend(frame(V1, DATA, 0, 1, b"hi"));
    bytes.extend(frame(V1, END, 0, 1, b"a body that nobody expects"));
    bytes.extend(begun(V1, INIT, 0, 2, NAMES));
    bytes.extend(frame(V1, CANCEL, 0, 2, b"another"));
    bytes.extend(begun(V1, REQUEST, 4, 1, NAMES));
    let seen = server.receive(&bytes).unwrap();
    let kinds: Vec<_> = seen.iter().map(|seen| format!("{seen:?}")).collect();
    for (kind, start) in kinds.iter().zip(["Request", "Message", "Ended", "Request", "Cancelled", "Request"])
    {
        assert!(kind.starts_with(start), "{kind}");
    }
    let mut client = client(Version::V1);
    let seen = client.receive(&frame(V1, ACK, 0, 1, b"a body")).unwrap();
    assert!(matches!(seen[..], [Seen::Accepted(_)]));
}

#[test]
fn heartbeats_and_errors_of_version_1_are_stepped_over() {
    assert_answers(server(V1), &frame(V1, PING, 0, 0, b"tick"), b"");
    assert_answers(server(V1), &frame(V1, ERROR, 0, 0, b"what?"), b"");
}

#[test]
fn frames_for_calls_that_are_over_are_dropped() {
    for version in [V1, V2] {
        for kind in [DATA, END, CANCEL] {
            assert_answers(server(version), &frame(version, kind, 0, 77, b""), b"");
        }
    }
    assert_answers(server(V2), &frame(V2, REQUEST, 0x11, 77, b"more"), b"");
    assert_answers(server(V2), &frame(V2, CREDIT, 0, 77, b"\0\0\0\x01"), b"");
    for (version, byte) in [(Version::V1, V1), (Version::V2, V2)] {
        let mut client = client(version);
        for kind in [DATA, END, CANCEL, ACK] {
            assert_eq!(client.receive(&frame(byte, kind, 0, 77, b"")), Ok(vec![]));
        }
        assert_eq!(client.receive(&frame(byte, RESPONSE, 4, 77, b"\0\0late")), Ok(vec![]));
        assert_eq!((client.machine.calls_in_flight(), client.machine.streams_open()), (1, 1));
    }
}

#[test]
fn a_stream_accepted_twice_closes_the_connection() {
    for (version, byte) in [(Version::V1, V1), (Version::V2, V2)] {
        let twice = frame(byte, ACK, 0, 1, b"").repeat(2);
        assert_closes(client(version), &twice, ConnectionError::AcceptedTwice { id: 1 });
    }
}

#[test]
fn an_id_used_again_in_flight_closes_the_connection() {
    for version in [V1, V2] {
        let in_use = ConnectionError::IdInUse { id: 5 };
        let twice = begun(version, REQUEST, 4, 5, NAMES).repeat(2);
        assert_closes(server(version), &twice, in_use);
        let twice = begun(version, INIT, 0, 5, NAMES).repeat(2);
        assert_closes(server(version), &twice, in_use);
    }
    let in_use = ConnectionError::IdInUse { id: 5 };
    // Other names, or another mode, are not the same client stream going on.
    let mut other = begun(V1, REQUEST, 1, 5, NAMES);
    other.extend(frame(V1, REQUEST, 1, 5, b"\0\x01S\0\x01f"));
    assert_closes(server(V1), &other, in_use);
    let mut other = begun(V1, REQUEST, 1, 5, NAMES);
    other.extend(begun(V1, REQUEST, 3, 5, NAMES));
    assert_closes(server(V1), &other, in_use);
    // Version 2 numbers calls and streams from one sequence.
    let mut both = begun(V2, REQUEST, 4, 5, NAMES);
    both.extend(begun(V2, INIT, 0, 5, NAMES));
    assert_closes(server(V2), &both, in_use);
}

#[test]
fn version_1_numbers_calls_and_streams_apart() {
    let mut server = server(V1);
    let mut both = begun(V1, REQUEST, 4, 5, NAMES);
    both.extend(begun(V1, INIT, 0, 5, NAMES));
    let seen = server.receive(&both).unwrap();
    for seen in &seen {
        server.machine.cancel(seen.call().unwrap(), Code::OK, "", &mut server.out).unwrap();
    }
    server.assert_idle();
}

#[test]
fn an_id_of_version_1_may_be_used_again_when_its_call_is_over() {
    let mut server = server(V1);
    for _ in 0..3 {
        let seen = server.receive(&begun(V1, REQUEST, 4, 5, NAMES)).unwrap();
        server.machine.send(seen[0].call().unwrap(), b"", true, &mut server.out).unwrap();
    }
    server.assert_idle();
}

#[test]
fn an_id_of_version_2_that_is_not_later_than_the_one_before_closes_the_connection() {
    let begin = |id: u32, is_stream: bool| match is_stream {
        true => begun(V2, INIT, 0, id, NAMES),
        false => begun(V2, REQUEST, 4, id, NAMES),
    };
    for is_stream in [true, false] {
        for (last, id) in [(5, 5), (5, 4), (5, 0x8000_0005), (0, u32::MAX)] {
            let mut server = server(V2);
            let seen = server.receive(&begin(last, false)).unwrap();
            server.machine.send(seen[0].call().unwrap(), b"", true, &mut server.out).unwrap();
            assert_closes(server, &begin(id, is_stream), ConnectionError::IdOutOfOrder { id, last });
        }
        let mut server = server(V2);
        for id in [5, 7, 0x8000_0004, u32::MAX, 0, 9] {
            let seen = server.receive(&begin(id, is_stream)).unwrap();
            let call = seen[0].call().unwrap();
            server.machine.fail(call, &Code::INTERNAL.into(), &mut server.out).unwrap();
        }
        // Also a call that was refused was the last one.
        let refused = frame(V2, REQUEST, 4, 12, b"\xff");
        assert_eq!(server.receive(&refused), Ok(vec![]));
        assert_closes(server, &begin(12, is_stream), ConnectionError::IdOutOfOrder { id: 12, last: 12 });
    }
}

/// Frames that move nothing.
fn strays(version: u8) -> Vec<Vec<u8>> {
    let mut all: Vec<_> = [DATA, END, CANCEL].map(|kind| frame(version, kind, 0, 77, b"")).into();
    if version == V1 {
        all.extend([frame(V1, PING, 0, 0, b"tick"), frame(V1, ERROR, 0, 0, b"")]);
    } else {
        all.extend([
            frame(V2, REQUEST, 0x11, 77, b"more"),
            frame(V2, PING, 1, 0, b"12345678"),
            frame(V2, CREDIT, 0, 77, b"\0\0\0\x01"),
            // Of a call that is there, and to which nothing was sent.
            frame(V2, CREDIT, 0, 1, b"\0\0\0\x01"),
        ]);
    }
    all
}

#[test]
fn a_flood_of_frames_that_belong_to_nothing_closes_the_connection() {
    let settings = Settings { strays: Rate { burst: 10, per_second: 1 }, ..Settings::default() };
    for version in [V1, V2] {
        for stray in strays(version) {
            let mut server = server_with(version, settings);
            server.receive(&begun(version, REQUEST, 3, 1, NAMES)).unwrap();
            server.receive(&stray.repeat(10)).unwrap();
            let kind = Frame::parse(&stray).unwrap().unwrap().0.kind;
            let flood = ConnectionError::StrayFlood { kind, burst: 10, per_second: 1 };
            assert_closes(server, &stray, flood);
        }
    }
    let away = frame(V2, 0x22, 1, 0, &[0; 6]);
    let kind = FrameType::GoAway;
    let flood = ConnectionError::StrayFlood { kind, burst: 10, per_second: 1 };
    let mut server = server_with(V2, settings);
    server.receive(&away.repeat(11)).unwrap();
    assert_closes(server, &away, flood);
}

#[test]
fn what_may_have_crossed_the_end_of_a_call_is_no_flood() {
    let none = Rate { burst: 0, per_second: 0 };
    let settings = Settings { strays: none, max_calls: 1, max_streams: 1, ..Settings::default() };
    for version in [V1, V2] {
        // Failed by the server, and refused by a limit, while the client has its whole window on the way.
        let mut server = server_with(version, settings);
        let more = if version == V1 { NAMES } else { b"x" };
        let (opened, cont) = (begun(version, INIT, 0, 1, NAMES), if version == V1 { 1 } else { 0x11 });
        let call = server.receive(&opened).unwrap()[0].call().unwrap();
        server.receive(&begun(version, INIT, 0, 2, NAMES)).unwrap();
        server.machine.cancel(call, Code::CANCELLED, "", &mut server.out).unwrap();
        for id in [1, 2] {
            let messages = 256 * 1024 / 17;
            server.receive(&frame(version, DATA, 0, id, b"x").repeat(messages)).unwrap();
            server.receive(&frame(version, END, 0, id, b"")).unwrap();
            server.receive(&frame(version, CANCEL, 0, id, b"")).unwrap();
        }
        server.receive(&begun(version, REQUEST, 1, 3, NAMES)).unwrap();
        server.receive(&begun(version, REQUEST, 1, 4, NAMES)).unwrap();
        server.receive(&frame(version, REQUEST, cont, 4, more).repeat(10_000)).unwrap();
        server.receive(&frame(version, REQUEST, cont | 4, 4, more)).unwrap();
        assert_eq!(server.lose().len(), 1);
        server.assert_idle();
    }
    // A CREDIT for each message is as many as there may be.
    let mut server = server_with(V2, settings);
    let call = server.receive(&begun(V2, REQUEST, 6, 1, NAMES)).unwrap()[0].call().unwrap();
    for _ in 0..2_000 {
        server.machine.send(call, b"", false, &mut server.out).unwrap();
    }
    server.receive(&frame(V2, CREDIT, 0, 1, b"\0\0\0\x10").repeat(2_000)).unwrap();
    server.machine.finish(call, &mut server.out).unwrap();
    server.assert_idle();
}

#[test]
fn a_frame_of_an_unknown_id_costs_as_much_as_one_of_a_call() {
    let strays = Rate { burst: u32::MAX, per_second: 0 };
    for version in [V1, V2] {
        let mut server = server_with(version, Settings { strays, ..Settings::default() });
        let begin = |id: u32| begun(version, REQUEST, 3, id, NAMES);
        server.receive(&(0..16_000).flat_map(begin).collect::<Vec<_>>()).unwrap();
        let mut time = |id: u32| {
            let bytes = frame(version, CANCEL, 0, id, b"").repeat(2_000);
            let began = std::time::Instant::now();
            server.receive(&bytes).unwrap();
            began.elapsed()
        };
        // The least of several times: whoever else runs here does not count.
        let mut least = |id| (0..5).map(|_| time(id)).min().unwrap();
        // None of the first is there; the others share their low bits with calls, and with none.
        let fast = least(16_000).max(Duration::from_micros(200));
        for id in [15_999 + (1 << 20), 1 << 14, 1 << 31] {
            let slow = least(id);
            assert!(slow < fast * 50, "version {version}, id {id}: {slow:?} against {fast:?}");
        }
        assert_eq!(server.lose().len(), 16_000);
    }
}

#[test]
fn frames_after_the_end_of_a_half_close_the_connection() {
    let after = |kind, id| ConnectionError::AfterEnd { kind, id };
    for version in [V1, V2] {
        let mut bytes = begun(version, INIT, 0, 1, NAMES);
        bytes.extend(frame(version, END, 0, 1, b""));
        let mut data = bytes.clone();
        data.extend(frame(version, DATA, 0, 1, b"late"));
        assert_closes(server(version), &data, after(FrameType::StreamData, 1));
        bytes.extend(frame(version, END, 0, 1, b""));
        assert_closes(server(version), &bytes, after(FrameType::StreamEnd, 1));
    }
    let mut bytes = begun(V2, REQUEST, 7, 1, NAMES);
    bytes.extend(frame(V2, REQUEST, 0x13, 1, b"late"));
    assert_closes(server(V2), &bytes, after(FrameType::Request, 1));
    let twice = frame(V2, RESPONSE, 7, 0, b"\0\0").repeat(2);
    assert_closes(client(Version::V2), &twice, after(FrameType::Response, 0));
}

#[test]
fn frames_of_the_other_role_or_family_close_the_connection() {
    let unexpected = |kind, id| ConnectionError::Unexpected { kind, id };
    for version in [V1, V2] {
        assert_closes(
            server(version),
            &frame(version, RESPONSE, 4, 0, b"\0\0"),
            unexpected(FrameType::Response, 0),
        );
        assert_closes(
            server(version),
            &frame(version, ACK, 0, 0, b""),
            unexpected(FrameType::StreamInitAck, 0),
        );
        let spoken = if version == V1 { Version::V1 } else { Version::V2 };
        assert_closes(
            client(spoken),
            &begun(version, REQUEST, 4, 0, NAMES),
            unexpected(FrameType::Request, 0),
        );
        assert_closes(
            client(spoken),
            &begun(version, INIT, 0, 0, NAMES),
            unexpected(FrameType::StreamInit, 0),
        );
    }
    assert_closes(server(V2), &frame(V2, ERROR, 0, 0, b"\0\x01\0\0"), unexpected(FrameType::Error, 0));
    // In version 2 an id is of one family.
    assert_closes(client(Version::V2), &frame(V2, DATA, 0, 0, b"x"), unexpected(FrameType::StreamData, 0));
    assert_closes(
        client(Version::V2),
        &frame(V2, RESPONSE, 4, 1, b"\0\0"),
        unexpected(FrameType::Response, 1),
    );
}

#[test]
fn a_single_message_without_end_closes_a_connection_of_version_2_and_ends_its_half_in_version_1() {
    assert_closes(server(V2), &begun(V2, REQUEST, 0, 3, NAMES), ConnectionError::EndMissing { id: 3 });
    let seen = server(V1).receive(&begun(V1, REQUEST, 0, 3, NAMES)).unwrap();
    assert!(matches!(seen[..], [Seen::Request { end: true, .. }]));
}

#[test]
fn credit_that_overflows_closes_the_connection() {
    let window = i64::from(Settings::default().window);
    let amount = u32::MAX;
    let credit = window - 17 + i64::from(amount);
    let bytes = frame(V2, CREDIT, 0, 0, &amount.to_be_bytes());
    assert_closes(client(Version::V2), &bytes, ConnectionError::CreditOverflow { id: 0, credit });
    let grants = frame(V2, CREDIT, 0, 0, &0x4000_0000u32.to_be_bytes()).repeat(2);
    let credit = window - 17 + 0x8000_0000;
    assert_closes(client(Version::V2), &grants, ConnectionError::CreditOverflow { id: 0, credit });
}

#[test]
fn broken_frames_of_the_connection_close_it() {
    for (kind, body) in [
        (CREDIT, &b"\0\0\0\0"[..]),
        (CREDIT, b"\0\0\x01"),
        (PING, b"1234567"),
        (PING, b"123456789"),
        (0x22, b"\0\0\0\x01\0"),
        (0x22, b"\0\0\0\x01\0\0\xff"),
    ] {
        let error = client(Version::V2).receive(&frame(V2, kind, 0, 0, body)).unwrap_err();
        assert!(matches!(error, ConnectionError::Body { .. }), "{error:?}");
    }
    for body in [&b"\0\x01\0\0\0"[..], b"\0\x01\x80\0\0\0"] {
        let mut server = RpcPeer::new(Connection::server(Settings::default()));
        let error = server.receive(&frame(V2, SETTINGS, 0, 0, body)).unwrap_err();
        assert!(matches!(error, ConnectionError::Body { kind: FrameType::Settings, .. }), "{error:?}");
    }
}

#[test]
fn a_message_without_credit_closes_the_connection() {
    let settings = Settings { window: 40, ..Settings::default() };
    let mut bytes = begun(V2, INIT, 0, 1, NAMES);
    // Two messages of 16 and 4 bytes take the window whole; not even an empty one may follow.
    bytes.extend(frame(V2, DATA, 0, 1, b"four").repeat(2));
    bytes.extend(frame(V2, DATA, 0, 1, b""));
    assert_closes(server_with(V2, settings), &bytes, ConnectionError::NoCredit { id: 1 });
}

#[test]
fn a_flood_of_pings_closes_the_connection() {
    let ping = frame(V2, PING, 0, 0, b"12345678");
    let flood = ConnectionError::PingFlood { burst: 64, per_second: 8 };
    assert_closes(server(V2), &ping.repeat(65), flood);
    let mut server = server(V2);
    for second in 0..100 {
        server.now = Duration::from_secs(second);
        server.receive(&ping.repeat(8)).unwrap();
    }
    assert_eq!(server.out.len(), 800 * ping.len(), "every one within the rate is answered");
    assert_closes(server, &ping.repeat(65), flood);
}

#[test]
fn a_flood_of_cancelled_calls_closes_the_connection() {
    for version in [V1, V2] {
        let settings = Settings { cancels: Rate { burst: 10, per_second: 1 }, ..Settings::default() };
        let reset = |id| [begun(version, INIT, 0, id, NAMES), frame(version, CANCEL, 0, id, b"")].concat();
        let flood = ConnectionError::CancelFlood { burst: 10, per_second: 1 };
        let resets: Vec<u8> = (0..11).flat_map(reset).collect();
        assert_closes(server_with(version, settings), &resets, flood);
        // Calls that end well pay for as many cancels.
        let mut server = server_with(version, settings);
        for id in 0..100 {
            server.receive(&reset(2 * id)).unwrap();
            let seen = server.receive(&begun(version, REQUEST, 4, 2 * id + 1, NAMES)).unwrap();
            server.machine.send(seen[0].call().unwrap(), b"", true, &mut server.out).unwrap();
        }
        server.assert_idle();
    }
}

/// A call whose handler is at work, and what its client does to it.
fn aborts(version: u8, id: u32) -> Vec<(&'static str, Vec<u8>)> {
    let call = |more: Vec<u8>| [begun(version, REQUEST, 1, id, NAMES), more].concat();
    let mut all = vec![("cancelled", call(frame(version, CANCEL, 0, id, b"")))];
    if version == V2 {
        let long = [&[0xff, 0xff][..], &[0; 0xffff]].concat();
        all = vec![
            ("cancelled", call(frame(version, CANCEL, 0, id, b""))),
            ("EMPTY without END", call(frame(version, REQUEST, 0x31, id, b""))),
            ("a broken block", call(frame(version, REQUEST, 0x19, id, b"\xff\xff"))),
            ("a block over the limit", call(frame(version, REQUEST, 0x19, id, &long))),
        ];
    } else {
        all[0].1 = [begun(version, INIT, 0, id, NAMES), frame(version, CANCEL, 0, id, b"")].concat();
        all.push(("a broken body", call(frame(version, REQUEST, 5, id, b"\xff"))));
    }
    all
}

#[test]
fn every_way_to_abort_a_handler_takes_a_token_of_the_same_bucket() {
    let settings = Settings { cancels: Rate { burst: 10, per_second: 1 }, ..Settings::default() };
    let flood = ConnectionError::CancelFlood { burst: 10, per_second: 1 };
    for version in [V1, V2] {
        for (at, (what, _)) in aborts(version, 0).into_iter().enumerate() {
            let mut server = server_with(version, settings);
            for id in 0..10 {
                let seen = server.receive(&aborts(version, id)[at].1);
                assert_eq!(seen.map(|seen| seen.len()), Ok(2), "version {version}, {what}");
            }
            assert_closes(server, &aborts(version, 10)[at].1, flood);
        }
    }
}

#[test]
fn calls_that_the_server_fails_pay_for_no_abort() {
    let settings = Settings { cancels: Rate { burst: 10, per_second: 0 }, ..Settings::default() };
    for version in [V1, V2] {
        let mut server = server_with(version, settings);
        let mut ids = 0..;
        let mut next = move || ids.next().unwrap();
        let mut abort = |server: &mut RpcPeer| server.receive(&aborts(version, next())[0].1);
        for _ in 0..10 {
            abort(&mut server).unwrap();
        }
        for id in 1_000..1_020 {
            let seen = server.receive(&begun(version, REQUEST, 4, id, NAMES)).unwrap();
            let RpcPeer { machine, out, .. } = &mut server;
            machine.fail(seen[0].call().unwrap(), &Code::METHOD_NOT_FOUND.into(), out).unwrap();
        }
        let last = aborts(version, 2_000).remove(0).1;
        let flood = ConnectionError::CancelFlood { burst: 10, per_second: 0 };
        assert_closes(server, &last, flood);
    }
}

#[test]
fn more_calls_than_the_limit_are_refused_and_the_rest_of_them_dropped() {
    let settings = Settings { max_calls: 2, ..Settings::default() };
    for version in [V1, V2] {
        let mut server = server_with(version, settings);
        for id in 0..2 {
            assert_eq!(server.receive(&begun(version, REQUEST, 4, id, NAMES)).unwrap().len(), 1);
        }
        // A client stream of three frames.
        let more = if version == V1 { (1, NAMES) } else { (0x11, &b"x"[..]) };
        let mut bytes = begun(version, REQUEST, 1, 2, NAMES);
        bytes.extend(frame(version, REQUEST, more.0, 2, more.1));
        assert_eq!(server.receive(&bytes), Ok(vec![]));
        let code: &[u8] = if version == V1 { b"\0\x0a" } else { b"\0\x0c" };
        assert_eq!(server.out, frame(version, RESPONSE, 5, 2, code), "one answer");
        assert_eq!(server.receive(&frame(version, REQUEST, more.0 | 4, 2, more.1)), Ok(vec![]));
        assert_eq!((server.machine.calls_in_flight(), server.machine.calls_abandoned()), (2, 0));
        assert_eq!(server.lose().len(), 2);
        server.assert_idle();
    }
}

#[test]
fn refused_calls_of_version_1_that_never_end_are_limited() {
    let settings = Settings { max_calls: 0, ..Settings::default() };
    let bytes: Vec<u8> = (0..=1024).flat_map(|id| begun(V1, REQUEST, 1, id, NAMES)).collect();
    assert_closes(server_with(V1, settings), &bytes, ConnectionError::TooManyRefused { limit: 1024 });
}

#[test]
fn more_streams_than_the_limit_are_refused() {
    let settings = Settings { max_streams: 1, ..Settings::default() };
    for version in [V1, V2] {
        let mut server = server_with(version, settings);
        server.receive(&begun(version, INIT, 0, 1, NAMES)).unwrap();
        assert_eq!(server.receive(&begun(version, INIT, 0, 2, NAMES)), Ok(vec![]));
        assert_eq!(server.out, frame(version, CANCEL, 0, 2, if version == V1 { b"" } else { b"\0\x0c" }));
        server.receive(&frame(version, CANCEL, 0, 1, b"")).unwrap();
        server.assert_idle();
    }
}

#[test]
fn a_server_that_dies_fails_ten_thousand_calls_once_each() {
    for version in [Version::V1, Version::V2] {
        let mut client = RpcPeer::new(Connection::client(version, Settings::default()));
        let path = MethodPath::new("S", "e").unwrap();
        let begun: HashSet<_> =
            (0..10_000).map(|_| client.machine.unary(&path, b"x", &mut client.out).unwrap()).collect();
        let lost = client.lose();
        assert_eq!(lost.len(), 10_000);
        assert_eq!(lost.into_iter().collect::<HashSet<_>>(), begun);
        client.assert_idle();
        assert_eq!(client.lose(), []);
        assert!(
            client.machine.unary(&path, b"x", &mut client.out).is_err(),
            "a dead connection begins nothing"
        );
    }
}

#[test]
fn ids_go_on_over_the_wrap() {
    for version in [Version::V1, Version::V2] {
        let settings = Settings { first_id: u32::MAX - 1, ..Settings::default() };
        let mut pair = RpcPair::with_settings(version, settings, Settings::default());
        let path = MethodPath::new("S", "e").unwrap();
        let ids = |bytes: &[u8]| -> Vec<u32> {
            let (mut at, mut ids) = (0, Vec::new());
            while let Some((header, _)) = Frame::parse(&bytes[at..]).unwrap() {
                at += 16 + header.body_len as usize;
                ids.extend((header.kind == FrameType::Request).then_some(header.id));
            }
            ids
        };
        for _ in 0..4 {
            pair.client.machine.unary(&path, b"x", &mut pair.client.out).unwrap();
        }
        assert_eq!(ids(&pair.client.out), [u32::MAX - 1, u32::MAX, 0, 1]);
        for seen in pair.to_server() {
            if let Some(call) = seen.call() {
                pair.server.machine.send(call, b"y", true, &mut pair.server.out).unwrap();
            }
        }
        assert_eq!(pair.to_client().iter().filter(|seen| matches!(seen, Seen::Message(..))).count(), 4);
        pair.assert_settles_idle();
    }
}

#[test]
fn a_client_that_never_reads_makes_the_server_stop_reading() {
    const HIGH_WATER: usize = 10_000;
    let (mut machine, mut inbox) = (Connection::server(Settings::default()), Reassembly::new());
    let (mut out, mut answered) = (Vec::new(), 0);
    let request = begun(V1, REQUEST, 4, 1, NAMES);
    let mut receive = |chunk: &Bytes, out: &mut Vec<u8>| {
        let step = |input: &[u8], _: Origin<'_>| {
            if out.len() > HIGH_WATER {
                return Ok::<_, ConnectionError>(Advance::Stop(0));
            }
            let mut rest = input;
            let event = machine.receive(&mut rest, Duration::ZERO, out)?;
            if let Some(Event::Request { call, .. }) = event {
                machine.send(call, b"answer", true, out).unwrap();
                answered += 1;
            }
            Ok(Advance::Consumed(input.len() - rest.len()))
        };
        inbox.drive(chunk, step).unwrap();
        (inbox.len(), answered)
    };
    let (mut kept, mut answered) = receive(&Bytes::from(request.repeat(2_000)), &mut out);
    assert!(out.len() < HIGH_WATER + 100);
    assert_eq!(kept, (2_000 - answered) * request.len(), "the rest waits");
    while kept > 0 {
        out.clear();
        (kept, answered) = receive(&Bytes::new(), &mut out);
    }
    assert_eq!(answered, 2_000);
}

#[test]
fn a_fault_is_told_to_a_peer_of_version_2() {
    let mut server = server(V2);
    let error = server.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap_err();
    server.machine.abort(&error, &mut server.out);
    let (_, frame) = Frame::parse(&server.out).unwrap().unwrap();
    let Frame::GoAway(body) = frame else { panic!("{frame:?}") };
    assert_eq!((body.code, body.reason), (Code::PROTOCOL_ERROR, &error.to_string()[..]));
}

#[test]
fn frames_that_are_answered_here_are_handed_back_to_whoever_shares_the_time() {
    type OneFrame<'a> = &'a dyn Fn(u32) -> Vec<u8>;
    const FRAMES: usize = 4_000;
    let refused = |id| frame(V2, REQUEST, 0x24, id, b"\0\x01");
    let unnamed = |id| frame(V1, REQUEST, 4, id, b"\0");
    let init = |id| frame(V2, INIT, 0, id, b"\0");
    let floods: [(u8, OneFrame<'_>); 3] = [(V2, &refused), (V1, &unnamed), (V2, &init)];
    for (version, one) in floods {
        let mut server = server(version).machine;
        let mut out = Vec::new();
        let mut flood = match version {
            V1 => Vec::new(),
            _ => frame(V2, REQUEST, 0x44, 1, &[b"\0\x01", NAMES].concat()),
        };
        flood.extend((2..).take(FRAMES).flat_map(one));
        let (mut rest, len) = (&flood[..], one(0).len());
        let mut most = 0;
        while !rest.is_empty() {
            let before = rest.len();
            let event = server.receive(&mut rest, Duration::ZERO, &mut out).unwrap();
            assert!(event.is_some() || rest.is_empty());
            most = most.max((before - rest.len()) / len);
        }
        assert!(most <= 40, "{most} of {FRAMES} at once");
    }
}
