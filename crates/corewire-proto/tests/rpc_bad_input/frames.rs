//! Frames that are none, and frames out of place.

use corewire_proto::rpc::{
    Code, Connection, ConnectionError, Frame, FrameType, HeaderError, Settings, Version,
};
use corewire_testkit::rpc_pair::RpcPeer;

use crate::common::*;

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
fn heartbeats_and_errors_of_version_1_are_stepped_over() {
    assert_answers(server(V1), &frame(V1, PING, 0, 0, b"tick"), b"");
    assert_answers(server(V1), &frame(V1, ERROR, 0, 0, b"what?"), b"");
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
fn a_fault_is_told_to_a_peer_of_version_2() {
    let mut server = server(V2);
    let error = server.receive(&frame(V2, SETTINGS, 0, 0, b"")).unwrap_err();
    server.machine.abort(&error, &mut server.out);
    let (_, frame) = Frame::parse(&server.out).unwrap().unwrap();
    let Frame::GoAway(body) = frame else { panic!("{frame:?}") };
    assert_eq!((body.code, body.reason), (Code::PROTOCOL_ERROR, &error.to_string()[..]));
}
