//! What calls and streams mean: halves, cancellation, credits, limits, going away.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

use std::time::Duration;

use corewire_proto::rpc::{
    Begin, CallError, CallKey, Code, Connection, Failure, MethodPath, Mode, Options, SendError, Settings,
    Unsendable, Version,
};
use corewire_testkit::rpc_pair::{RpcPair, RpcPeer, Seen, SeenExtensions};

const BOTH: [Version; 2] = [Version::V1, Version::V2];

fn path() -> MethodPath {
    MethodPath::new("S", "e").unwrap()
}

fn message(call: CallKey, payload: &[u8], end: bool) -> Seen {
    Seen::Message(call, payload.to_vec(), end, SeenExtensions::default())
}

fn ended(call: CallKey) -> Seen {
    Seen::Ended(call, SeenExtensions::default())
}

/// A pair that has exchanged settings.
fn pair(version: Version, client: Settings, server: Settings) -> RpcPair {
    let mut pair = RpcPair::with_settings(version, client, server);
    pair.client.machine.start(&mut pair.client.out);
    pair.to_server();
    pair.to_client();
    pair
}

fn default_pair(version: Version) -> RpcPair {
    pair(version, Settings::default(), Settings::default())
}

/// Begins a call and delivers it: its key on each side.
fn begin(pair: &mut RpcPair, mode: Mode, first: &[u8], end: bool) -> (CallKey, CallKey) {
    let begin = Begin { path: &path(), mode, end, options: Options::default() };
    let call = pair.client.machine.begin(&begin, Some(first), &mut pair.client.out).unwrap();
    (call, pair.to_server()[0].call().unwrap())
}

/// Opens a stream, accepted: its key on each side.
fn open(pair: &mut RpcPair) -> (CallKey, CallKey) {
    let call = pair.client.machine.open_stream(&path(), &Options::default(), &mut pair.client.out).unwrap();
    let served = pair.to_server()[0].call().unwrap();
    pair.server.machine.accept(served, &mut pair.server.out).unwrap();
    assert_eq!(pair.to_client(), [Seen::Accepted(call)]);
    (call, served)
}

fn send(peer: &mut RpcPeer, call: CallKey, payload: &[u8], end: bool) -> Result<(), SendError> {
    peer.machine.send(call, payload, end, &mut peer.out)
}

#[test]
fn a_server_stream_is_one_request_and_many_responses() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let (call, served) = begin(&mut pair, Mode::ServerStream, b"from", false);
        for line in [b"1", b"2"] {
            send(&mut pair.server, served, line, false).unwrap();
        }
        send(&mut pair.server, served, b"3", true).unwrap();
        assert_eq!(send(&mut pair.server, served, b"4", true), Err(SendError::CallOver));
        let seen = pair.to_client();
        assert_eq!(seen, [message(call, b"1", false), message(call, b"2", false), message(call, b"3", true)]);
        pair.assert_settles_idle();
    }
}

#[test]
fn the_halves_of_a_bidi_call_end_independently() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let (call, served) = begin(&mut pair, Mode::Bidi, b"1", false);
        send(&mut pair.server, served, b"a", false).unwrap();
        pair.server.machine.finish(served, &mut pair.server.out).unwrap();
        assert_eq!(pair.to_client(), [message(call, b"a", false), ended(call)]);
        // The client goes on alone.
        send(&mut pair.client, call, b"2", false).unwrap();
        send(&mut pair.client, call, b"3", true).unwrap();
        assert_eq!(pair.to_server(), [message(served, b"2", false), message(served, b"3", true)]);
        pair.assert_settles_idle();
    }
}

#[test]
fn an_early_response_ends_a_client_stream_as_a_whole() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let (call, served) = begin(&mut pair, Mode::ClientStream, b"1", false);
        send(&mut pair.server, served, b"enough", true).unwrap();
        send(&mut pair.client, call, b"2", false).unwrap();
        assert_eq!(pair.to_server(), [], "it crossed the response");
        assert_eq!(pair.to_client(), [message(call, b"enough", true)]);
        assert_eq!(send(&mut pair.client, call, b"3", false), Err(SendError::CallOver));
        assert_eq!(pair.to_server(), []);
        pair.assert_settles_idle();
    }
}

#[test]
fn a_call_of_version_2_may_begin_and_end_without_a_message() {
    let mut pair = default_pair(Version::V2);
    let path = path();
    let mut begin = Begin { path: &path, mode: Mode::Bidi, end: false, options: Options::default() };
    let call = pair.client.machine.begin(&begin, None::<&[u8]>, &mut pair.client.out).unwrap();
    let seen = pair.to_server();
    assert!(matches!(seen[..], [Seen::Request { payload: None, end: false, .. }]), "{seen:?}");
    let served = seen[0].call().unwrap();
    send(&mut pair.server, served, b"", false).unwrap();
    pair.server.machine.finish(served, &mut pair.server.out).unwrap();
    assert_eq!(pair.to_client(), [message(call, b"", false), ended(call)], "an empty message is not an end");
    pair.client.machine.finish(call, &mut pair.client.out).unwrap();
    assert_eq!(pair.to_server(), [ended(served)]);

    begin.end = true;
    pair.client.machine.begin(&begin, None::<&[u8]>, &mut pair.client.out).unwrap();
    let seen = pair.to_server();
    assert!(matches!(seen[..], [Seen::Request { payload: None, end: true, .. }]), "{seen:?}");
    pair.server.machine.finish(seen[0].call().unwrap(), &mut pair.server.out).unwrap();

    begin.mode = Mode::Unary;
    let refused = pair.client.machine.begin(&begin, None::<&[u8]>, &mut pair.client.out);
    assert_eq!(refused, Err(CallError::MessageNeeded));
    pair.assert_settles_idle();
}

#[test]
fn a_half_of_one_message_cannot_end_without_it() {
    let mut pair = default_pair(Version::V2);
    let (_, served) = begin(&mut pair, Mode::Unary, b"", true);
    let RpcPeer { machine, out, .. } = &mut pair.server;
    assert_eq!(machine.finish(served, out), Err(SendError::MessageNeeded));
    machine.fail(served, &Failure::from(Code::INTERNAL), out).unwrap();
    pair.assert_settles_idle();
}

#[test]
fn a_cancelled_stream_is_told_apart_from_one_that_ended() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let (_, ends) = open(&mut pair);
        let (cancelled, breaks) = open(&mut pair);
        let RpcPeer { machine, out, .. } = &mut pair.client;
        machine.cancel(cancelled, Code::CANCELLED, "", out).unwrap();
        let code = if version == Version::V1 { Code::OK } else { Code::CANCELLED };
        assert_eq!(pair.to_server(), [Seen::Cancelled(breaks, code, String::new())]);
        // One that the server has not even accepted.
        let RpcPeer { machine, out, .. } = &mut pair.client;
        let call = machine.open_stream(&path(), &Options::default(), out).unwrap();
        machine.cancel(call, Code::OK, "", out).unwrap();
        assert!(matches!(pair.to_server()[..], [Seen::Request { .. }, Seen::Cancelled(..)]));
        pair.server.machine.cancel(ends, Code::UNAVAILABLE, "", &mut pair.server.out).unwrap();
        assert!(matches!(pair.to_client()[..], [Seen::Cancelled(..)]));
        pair.assert_settles_idle();
    }
}

#[test]
fn calls_of_version_1_that_were_given_up_and_are_never_answered_hold_no_place() {
    let mut client =
        RpcPeer::new(Connection::client(Version::V1, Settings { max_calls: 4, ..Settings::default() }));
    for _ in 0..100 {
        for mode in [Mode::Unary, Mode::ClientStream, Mode::ServerStream, Mode::Bidi] {
            let begin = Begin { path: &path(), mode, end: false, options: Options::default() };
            let RpcPeer { machine, out, .. } = &mut client;
            let call = machine.begin(&begin, Some(b"x"), out).unwrap();
            machine.cancel(call, Code::DEADLINE_EXCEEDED, "", out).unwrap();
        }
    }
    client.assert_idle();
}

#[test]
fn a_server_of_version_1_that_knows_streams_only_fails_a_call_at_once() {
    for mode in [Mode::Unary, Mode::Bidi] {
        let mut client = RpcPeer::new(Connection::client(Version::V1, Settings::default()));
        let stream = client.machine.open_stream(&path(), &Options::default(), &mut client.out).unwrap();
        let begin = Begin { path: &path(), mode, end: false, options: Options::default() };
        let call = client.machine.begin(&begin, Some(b"x"), &mut client.out).unwrap();
        let id = client.machine.wire_id(call).unwrap();
        client.out.clear();
        let mut cancel = vec![b'G', b'R', b'P', b'C', 1, 0x14, 0, 0];
        cancel.extend(id.to_be_bytes());
        cancel.extend([0; 4]);
        let seen = client.receive(&cancel).unwrap();
        let [Seen::Failed(failed, code, message, _)] = &seen[..] else { panic!("{seen:?}") };
        assert_eq!((*failed, *code), (call, Code::METHOD_NOT_FOUND));
        assert!(message.contains("streams only"), "{message}");
        assert_eq!(client.out, b"", "it would not read more");
        assert_eq!(client.lose(), [stream]);
        client.assert_idle();
    }
}

#[test]
fn a_cancel_that_crosses_the_response_ends_the_call_once() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let (call, served) = begin(&mut pair, Mode::Unary, b"x", true);
        send(&mut pair.server, served, b"y", true).unwrap();
        pair.client.machine.cancel(call, Code::CANCELLED, "", &mut pair.client.out).unwrap();
        // A server of version 1 may never answer: nothing is kept for it.
        assert_eq!(pair.client.machine.calls_abandoned(), usize::from(version == Version::V2));
        assert_eq!(pair.to_client(), [], "nobody waits for the response");
        assert_eq!(pair.to_server(), [], "there is nothing to cancel");
        pair.assert_settles_idle();
    }
}

#[test]
fn the_late_response_of_a_cancelled_call_reaches_no_other_call() {
    let settings = Settings { first_id: u32::MAX, ..Settings::default() };
    for version in BOTH {
        let mut pair = pair(version, settings, Settings::default());
        let (cancelled, slow) = begin(&mut pair, Mode::Unary, b"slow", true);
        pair.client.machine.cancel(cancelled, Code::CANCELLED, "", &mut pair.client.out).unwrap();
        let calls: Vec<_> = (0..5)
            .map(|_| pair.client.machine.unary(&path(), b"fast", &mut pair.client.out).unwrap())
            .collect();
        // The server of version 1 knows of no cancel, and answers.
        let _ = send(&mut pair.server, slow, b"late", true);
        assert_eq!(pair.to_client(), []);
        for seen in pair.to_server() {
            if let Seen::Request { call, .. } = seen {
                send(&mut pair.server, call, b"right", true).unwrap();
            }
        }
        let expected: Vec<_> = calls.into_iter().map(|call| message(call, b"right", true)).collect();
        assert_eq!(pair.to_client(), expected);
        pair.assert_settles_idle();
    }
}

#[test]
fn responses_may_come_in_any_order() {
    for version in BOTH {
        let mut pair = default_pair(version);
        let begun: Vec<_> = (0..4).map(|_| begin(&mut pair, Mode::Unary, b"", true)).collect();
        for &(_, served) in begun.iter().rev() {
            send(&mut pair.server, served, b"", true).unwrap();
        }
        let expected: Vec<_> = begun.iter().rev().map(|&(call, _)| message(call, b"", true)).collect();
        assert_eq!(pair.to_client(), expected);
        pair.assert_settles_idle();
    }
}

#[test]
fn a_failure_ends_both_halves_of_a_call() {
    for version in BOTH {
        for mode in [Mode::ClientStream, Mode::Bidi] {
            let mut pair = default_pair(version);
            let (call, served) = begin(&mut pair, mode, b"1", false);
            let failure = Failure { code: Code::UNAVAILABLE, message: "later", details: &[] };
            pair.server.machine.fail(served, &failure, &mut pair.server.out).unwrap();
            send(&mut pair.client, call, b"2", false).unwrap();
            assert_eq!(pair.to_server(), []);
            let seen = pair.to_client();
            let expected = match version {
                Version::V1 => Seen::Failed(call, Code::INTERNAL, String::new(), b"later".into()),
                Version::V2 => Seen::Failed(call, Code::UNAVAILABLE, "later".into(), vec![]),
            };
            assert_eq!(seen, [expected]);
            pair.assert_settles_idle();
        }
    }
}

#[test]
fn a_slow_consumer_stops_its_own_producer_and_nobody_else() {
    let small = Settings { window: 100, ..Settings::default() };
    let mut pair = pair(Version::V2, Settings::default(), small);
    let (slow, slow_served) = open(&mut pair);
    let (quick, quick_served) = open(&mut pair);
    let mut sent = 0;
    while send(&mut pair.client, slow, &[1; 34], false).is_ok() {
        sent += 1;
    }
    assert_eq!(sent, 2, "50 bytes each");
    assert_eq!(send(&mut pair.client, slow, b"", false), Err(SendError::Blocked));
    for _ in 0..10 {
        send(&mut pair.client, quick, &[2; 34], false).unwrap();
        pair.to_server().iter().for_each(|_| {
            pair.server.machine.release(quick_served, 34, &mut pair.server.out);
        });
        pair.to_client();
    }
    assert_eq!(pair.client.machine.poll_send(slow), Err(SendError::Blocked));
    assert_eq!(pair.client.machine.poll_send(quick), Ok(()));
    assert_eq!(pair.server.machine.buffered_bytes(), 100);
    assert!(!pair.server.machine.is_receive_paused());
    pair.server.machine.release(slow_served, 34, &mut pair.server.out);
    assert_eq!(pair.to_client(), [Seen::Writable(slow)]);
    send(&mut pair.client, slow, &[1; 34], false).unwrap();
    for call in [slow, quick] {
        pair.client.machine.finish(call, &mut pair.client.out).unwrap();
    }
    pair.to_server();
    for served in [slow_served, quick_served] {
        pair.server.machine.finish(served, &mut pair.server.out).unwrap();
    }
    pair.assert_settles_idle();
}

#[test]
fn a_message_longer_than_the_window_passes_and_stops_the_next() {
    let small = Settings { window: 10, ..Settings::default() };
    let mut pair = pair(Version::V2, small, small);
    let (call, served) = begin(&mut pair, Mode::ServerStream, b"", true);
    send(&mut pair.server, served, &[1; 5_000], false).unwrap();
    assert_eq!(send(&mut pair.server, served, b"2", false), Err(SendError::Blocked));
    assert_eq!(pair.to_client().len(), 1);
    pair.client.machine.release(call, 5_000, &mut pair.client.out);
    assert_eq!(pair.to_server(), [Seen::Writable(served)]);
    send(&mut pair.server, served, &[1; 5_000], false).unwrap();
    send(&mut pair.server, served, b"a last message needs no credit", true).unwrap();
    assert_eq!(pair.to_client().len(), 2);
    pair.client.machine.release(call, 5_000, &mut pair.client.out);
    assert!(pair.client.out.is_empty(), "a half that has ended needs none");
    pair.assert_settles_idle();
}

#[test]
fn until_the_server_has_spoken_a_client_sends_one_message_per_call() {
    let mut pair = RpcPair::new(Version::V2);
    let path = path();
    let begin = Begin { path: &path, mode: Mode::Bidi, end: false, options: Options::default() };
    let call = pair.client.machine.begin(&begin, Some(b"1"), &mut pair.client.out).unwrap();
    assert_eq!(send(&mut pair.client, call, b"2", false), Err(SendError::Blocked));
    pair.client.machine.unary(&path, b"not held back", &mut pair.client.out).unwrap();
    pair.to_server();
    let seen = pair.to_client();
    assert!(
        matches!(seen[..], [Seen::Settings(_), Seen::Writable(writable)] if writable == call),
        "{seen:?}"
    );
    send(&mut pair.client, call, b"2", false).unwrap();
    assert_eq!(pair.server.lose().len(), 2);
    assert_eq!(pair.client.lose().len(), 2);
}

#[test]
fn version_1_pauses_reading_while_a_consumer_is_over_the_window() {
    let small = Settings { window: 100, ..Settings::default() };
    let mut pair = pair(Version::V1, Settings::default(), small);
    let (call, served) = open(&mut pair);
    for paused in [false, false, true] {
        send(&mut pair.client, call, &[1; 34], false).unwrap();
        pair.to_server();
        assert_eq!(pair.server.machine.is_receive_paused(), paused);
    }
    pair.server.machine.release(served, 34, &mut pair.server.out);
    assert!(pair.server.machine.is_receive_paused(), "100 of 100: a message more would stop it again");
    pair.server.machine.release(served, 34, &mut pair.server.out);
    assert!(!pair.server.machine.is_receive_paused(), "half of the window is free");
    assert!(pair.server.out.is_empty(), "version 1 has no credits to send");
    send(&mut pair.client, call, &[1; 34], false).unwrap();
    pair.client.machine.cancel(call, Code::OK, "", &mut pair.client.out).unwrap();
    pair.to_server();
    pair.assert_settles_idle();
}

#[test]
fn reading_pauses_when_consumers_together_hold_too_much() {
    let settings = Settings { max_buffered: 1_000, ..Settings::default() };
    let mut pair = pair(Version::V2, Settings::default(), settings);
    let (call, served) = open(&mut pair);
    send(&mut pair.client, call, &[1; 984], false).unwrap();
    pair.to_server();
    assert!(!pair.server.machine.is_receive_paused());
    send(&mut pair.client, call, b"", false).unwrap();
    pair.to_server();
    assert!(pair.server.machine.is_receive_paused());
    pair.server.machine.release(served, 0, &mut pair.server.out);
    assert!(pair.server.machine.is_receive_paused(), "1,000 of 1,000: a message more would stop it again");
    pair.server.machine.release(served, 984, &mut pair.server.out);
    assert!(!pair.server.machine.is_receive_paused());
    pair.server.machine.cancel(served, Code::OK, "", &mut pair.server.out).unwrap();
    pair.assert_settles_idle();
}

#[test]
fn a_server_that_has_ended_and_drops_the_rest_still_returns_credit() {
    let small = Settings { window: 100, ..Settings::default() };
    let mut pair = pair(Version::V2, Settings::default(), small);
    let (call, served) = open(&mut pair);
    let RpcPeer { machine, out, .. } = &mut pair.server;
    machine.finish(served, out).unwrap();
    machine.cancel(served, Code::OK, "", out).unwrap();
    assert_eq!(pair.to_client(), [ended(call)]);
    for _ in 0..20 {
        send(&mut pair.client, call, &[0; 60], false).unwrap();
        assert_eq!(pair.to_server(), []);
        pair.to_client();
    }
    pair.client.machine.finish(call, &mut pair.client.out).unwrap();
    assert_eq!(pair.to_server(), []);
    pair.assert_settles_idle();
}

#[test]
fn taking_a_message_after_the_end_of_its_half_grants_nothing() {
    let small = Settings { window: 10, ..Settings::default() };
    let mut pair = pair(Version::V2, Settings::default(), small);
    let (call, served) = open(&mut pair);
    send(&mut pair.client, call, b"long enough for a credit", true).unwrap();
    assert_eq!(pair.to_server().len(), 2);
    pair.server.machine.release(served, 24, &mut pair.server.out);
    assert_eq!((pair.server.machine.buffered_bytes(), &pair.server.out[..]), (0, &[][..]));
    pair.server.machine.finish(served, &mut pair.server.out).unwrap();
    pair.assert_settles_idle();
}

#[test]
fn going_away_finishes_what_was_accepted_and_refuses_the_rest() {
    let settings = Settings { first_id: u32::MAX - 1, ..Settings::default() };
    let mut pair = pair(Version::V2, settings, Settings::default());
    let accepted: Vec<_> = (0..3).map(|_| begin(&mut pair, Mode::Unary, b"", true)).collect();
    let late = pair.client.machine.unary(&path(), b"", &mut pair.client.out).unwrap();
    let late_stream =
        pair.client.machine.open_stream(&path(), &Options::default(), &mut pair.client.out).unwrap();
    send(&mut pair.client, late_stream, b"x", false).unwrap();
    pair.server.machine.go_away(Code::OK, "moving", &mut pair.server.out);
    let written = pair.server.out.clone();
    assert_eq!(pair.to_server(), [], "later calls are not begun");
    assert_eq!(pair.server.out, written, "the client knows it from the GOAWAY");
    for &(_, served) in &accepted {
        send(&mut pair.server, served, b"done", true).unwrap();
    }
    let seen = pair.to_client();
    let (head, tail) = seen.split_at(3);
    assert_eq!(head[0], Seen::GoingAway(Some(0), Code::OK, "moving".into()), "the third id, over the wrap");
    assert!(head[1..].contains(&Seen::Refused(late)) && head[1..].contains(&Seen::Refused(late_stream)));
    assert_eq!(tail, accepted.iter().map(|&(call, _)| message(call, b"done", true)).collect::<Vec<_>>());
    let refused = pair.client.machine.unary(&path(), b"", &mut pair.client.out);
    assert_eq!(refused, Err(CallError::GoingAway));
    pair.assert_settles_idle();
}

#[test]
fn going_away_in_version_1_answers_later_calls_with_connection_closed() {
    let mut pair = default_pair(Version::V1);
    let (first, served) = begin(&mut pair, Mode::Unary, b"", true);
    pair.server.machine.go_away(Code::OK, "", &mut pair.server.out);
    let late = pair.client.machine.unary(&path(), b"", &mut pair.client.out).unwrap();
    let stream = pair.client.machine.open_stream(&path(), &Options::default(), &mut pair.client.out).unwrap();
    assert_eq!(pair.to_server(), []);
    send(&mut pair.server, served, b"", true).unwrap();
    let expected = [
        Seen::Failed(late, Code::CONNECTION_CLOSED, String::new(), vec![]),
        Seen::Cancelled(stream, Code::OK, String::new()),
        message(first, b"", true),
    ];
    assert_eq!(pair.to_client(), expected);
    pair.assert_settles_idle();
}

#[test]
fn a_server_that_goes_away_before_it_knows_its_client_says_so_first() {
    let mut pair = RpcPair::new(Version::V2);
    pair.server.machine.go_away(Code::OK, "", &mut pair.server.out);
    let call = pair.client.machine.unary(&path(), b"", &mut pair.client.out).unwrap();
    assert!(matches!(pair.to_server()[..], [Seen::Settings(_)]));
    let seen = pair.to_client();
    assert!(
        matches!(seen[..], [Seen::Settings(_), Seen::GoingAway(None, ..), Seen::Refused(refused)] if refused == call)
    );
    pair.assert_settles_idle();
}

#[test]
fn the_lower_limit_of_both_sides_holds() {
    let low =
        Settings { max_calls: 1, max_streams: 1, max_body: 50, max_extension: 20, ..Settings::default() };
    let mut pair = pair(Version::V2, Settings::default(), low);
    let options = Options { metadata: &[("name", b"a value too long")], ..Options::default() };
    let RpcPeer { machine, out, .. } = &mut pair.client;
    let path = path();
    let begin = Begin { path: &path, mode: Mode::Unary, end: true, options };
    let too_long = Unsendable::ExtensionTooLong { len: 26, limit: 20 };
    assert_eq!(machine.begin(&begin, Some(b""), out), Err(too_long.into()));
    let too_long = Unsendable::BodyTooLong { len: 51, limit: 50 };
    assert_eq!(machine.unary(&path, &[0; 43], out), Err(too_long.into()));
    machine.unary(&path, &[0; 42], out).unwrap();
    assert_eq!(machine.unary(&path, b"", out), Err(CallError::TooManyCalls { limit: 1 }));
    machine.open_stream(&path, &Options::default(), out).unwrap();
    let second = machine.open_stream(&path, &Options::default(), out);
    assert_eq!(second, Err(CallError::TooManyStreams { limit: 1 }));
    assert_eq!(pair.to_server().len(), 2, "nothing was written of what was refused");
}

#[test]
fn version_1_says_that_it_has_no_metadata() {
    let mut pair = default_pair(Version::V1);
    let path = path();
    let mut begin = Begin { path: &path, mode: Mode::Unary, end: true, options: Options::default() };
    begin.options.metadata = &[("user", b"ann")];
    let RpcPeer { machine, out, .. } = &mut pair.client;
    assert_eq!(machine.begin(&begin, Some(b""), out), Err(Unsendable::NotInVersion1.into()));
    begin.options = Options { timeout: Some(Duration::from_secs(1)), ..Options::default() };
    machine.begin(&begin, Some(b""), out).unwrap();
    let seen = pair.to_server();
    assert!(matches!(&seen[..], [Seen::Request { extensions, .. }] if extensions.timeout.is_none()));
}

#[test]
fn metadata_travels_both_ways_as_head_and_trailer() {
    let mut pair = default_pair(Version::V2);
    let (call, served) = begin(&mut pair, Mode::ServerStream, b"", true);
    let head = Options { metadata: &[("head", b"1"), ("head", b"2")], ..Options::default() };
    let trailer = Options { metadata: &[("trailer", b"\xff")], ..Options::default() };
    let RpcPeer { machine, out, .. } = &mut pair.server;
    machine.send_with(served, b"a", false, &head, out).unwrap();
    machine.finish_with(served, &trailer, out).unwrap();
    let with = |metadata: &[(&str, &[u8])]| SeenExtensions {
        metadata: metadata.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect(),
        ..SeenExtensions::default()
    };
    let expected = [
        Seen::Message(call, b"a".into(), false, with(head.metadata)),
        Seen::Ended(call, with(trailer.metadata)),
    ];
    assert_eq!(pair.to_client(), expected);
    pair.assert_settles_idle();
}

#[test]
fn a_metadata_name_that_cannot_be_read_is_not_sent() {
    let mut pair = default_pair(Version::V2);
    for name in ["", "Caps", "spa ce", &"x".repeat(256)] {
        let metadata: &[(&str, &[u8])] = &[(name, b"")];
        let begin = Begin {
            path: &path(),
            mode: Mode::Unary,
            end: true,
            options: Options { metadata, ..Options::default() },
        };
        let refused = pair.client.machine.begin(&begin, Some(b""), &mut pair.client.out);
        assert_eq!(refused, Err(Unsendable::MetadataName(name.to_owned()).into()));
    }
}

#[test]
fn a_stream_of_version_1_is_not_written_before_it_is_accepted() {
    let mut pair = default_pair(Version::V1);
    let call = pair.client.machine.open_stream(&path(), &Options::default(), &mut pair.client.out).unwrap();
    assert_eq!(send(&mut pair.client, call, b"x", false), Err(SendError::NotAccepted));
    assert_eq!(pair.client.machine.poll_send(call), Err(SendError::NotAccepted));
    let served = pair.to_server()[0].call().unwrap();
    // Sending accepts.
    send(&mut pair.server, served, b"hi", true).unwrap();
    assert_eq!(pair.to_client(), [Seen::Accepted(call), message(call, b"hi", false), ended(call)]);
    send(&mut pair.client, call, b"x", true).unwrap();
    assert_eq!(pair.to_server(), [message(served, b"x", false), ended(served)]);
    pair.assert_settles_idle();
}

#[test]
fn a_key_of_a_call_that_is_over_reaches_no_other_call() {
    let mut pair = default_pair(Version::V2);
    let (old, old_served) = begin(&mut pair, Mode::Unary, b"", true);
    send(&mut pair.server, old_served, b"", true).unwrap();
    pair.to_client();
    let (new, new_served) = begin(&mut pair, Mode::Unary, b"", true);
    assert_eq!((pair.client.machine.wire_id(old), pair.client.machine.wire_id(new)), (None, Some(1)));
    assert_eq!(
        (old.index(), old_served.index()),
        (new.index(), new_served.index()),
        "the slot is used again"
    );
    assert_eq!(send(&mut pair.server, old_served, b"wrong", true), Err(SendError::CallOver));
    let RpcPeer { machine, out, .. } = &mut pair.client;
    assert_eq!(machine.cancel(old, Code::OK, "", out), Err(SendError::CallOver));
    pair.server.machine.release(old_served, 10, &mut pair.server.out);
    send(&mut pair.server, new_served, b"right", true).unwrap();
    assert_eq!(pair.to_client(), [message(new, b"right", true)]);
    pair.assert_settles_idle();
}

#[test]
fn each_side_does_only_what_its_role_allows() {
    let mut pair = default_pair(Version::V2);
    let (call, served) = open(&mut pair);
    let RpcPeer { machine, out, .. } = &mut pair.server;
    assert_eq!(machine.unary(&path(), b"", out), Err(CallError::NotAClient));
    let RpcPeer { machine, out, .. } = &mut pair.client;
    assert_eq!(machine.fail(call, &Failure::from(Code::INTERNAL), out), Err(SendError::NotAServer));
    assert_eq!(machine.accept(call, out), Err(SendError::NotAServer));
    let metadata = Options { metadata: &[("a", b"")], ..Options::default() };
    assert_eq!(machine.send_with(call, b"", false, &metadata, out), Err(SendError::NoExtensions));
    machine.cancel(call, Code::OK, "", out).unwrap();
    assert_eq!(pair.to_server(), [Seen::Cancelled(served, Code::OK, String::new())]);
    pair.assert_settles_idle();
}
