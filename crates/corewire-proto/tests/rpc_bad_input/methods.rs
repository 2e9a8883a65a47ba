//! Names of methods, and the numbers that stand for them.

use corewire_proto::rpc::{Code, ConnectionError, FrameType, METHOD_NAMES_MAX, METHODS_MAX, Settings};
use corewire_testkit::rpc_pair::{RpcPeer, Seen};

use crate::common::*;

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
