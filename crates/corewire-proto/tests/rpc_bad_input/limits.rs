//! Credit, and calls beyond the limits.

use std::collections::HashSet;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, Connection, ConnectionError, Event, MethodPath, Origin, Reassembly, Settings, Version,
};
use corewire_testkit::rpc_pair::RpcPeer;

use crate::common::*;

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
fn a_message_without_credit_closes_the_connection() {
    let settings = Settings { window: 40, ..Settings::default() };
    let mut bytes = begun(V2, INIT, 0, 1, NAMES);
    // Two messages of 16 and 4 bytes take the window whole; not even an empty one may follow.
    bytes.extend(frame(V2, DATA, 0, 1, b"four").repeat(2));
    bytes.extend(frame(V2, DATA, 0, 1, b""));
    assert_closes(server_with(V2, settings), &bytes, ConnectionError::NoCredit { id: 1 });
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
