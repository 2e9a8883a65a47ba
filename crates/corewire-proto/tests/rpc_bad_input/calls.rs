//! Frames of a call that cannot be read, or come too late.

use corewire_proto::rpc::{Code, Connection, ConnectionError, FrameType, MethodPath, Settings, Version};
use corewire_testkit::rpc_pair::{RpcPeer, Seen};

use crate::common::*;

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
fn a_single_message_without_end_closes_a_connection_of_version_2_and_ends_its_half_in_version_1() {
    assert_closes(server(V2), &begun(V2, REQUEST, 0, 3, NAMES), ConnectionError::EndMissing { id: 3 });
    let seen = server(V1).receive(&begun(V1, REQUEST, 0, 3, NAMES)).unwrap();
    assert!(matches!(seen[..], [Seen::Request { end: true, .. }]));
}
