//! Ids of calls that are used again, out of sequence or unknown.

use std::time::Duration;

use corewire_proto::rpc::{Code, ConnectionError, Frame, FrameType, MethodPath, Rate, Settings, Version};
use corewire_testkit::rpc_pair::{RpcPair, Seen};

use crate::common::*;

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
