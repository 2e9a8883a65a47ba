//! Floods, and what is none.

use std::time::Duration;

use corewire_proto::rpc::{Code, ConnectionError, Frame, FrameType, Rate, Settings};
use corewire_testkit::rpc_pair::RpcPeer;

use crate::common::*;

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
