//! Two RPC machines, joined, driven by random decisions and held against a model.

use std::collections::{HashMap, HashSet};

use corewire_proto::rpc::{
    Begin, CallKey, Code, Connection, Failure, MethodPath, Mode, Options, SendError, Settings, Version,
};

use crate::choices::Choices;
use crate::rpc_pair::{RpcPair, RpcPeer, Seen};

/// Two joined machines make calls of all kinds, with random delivery, ends, failures, cancels and going away.
///
/// What it holds them to: messages arrive once, whole, in order and on their call; a clean end arrives only after all
/// messages, and only if the peer ended cleanly; failures and cancels arrive only if the peer made them; every call
/// completes exactly once; at the end, after draining, a client that stops sending, or a sudden death, nothing is left.
///
/// # Panics
/// One of these does not hold.
pub fn rpc_machines(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut sim = Sim::new(&mut choices);
    while !choices.is_empty() {
        sim.step(&mut choices);
        sim.check();
    }
    match data.len() % 4 {
        0 => sim.die(),
        1 => sim.half_close(),
        _ => sim.drain(),
    }
}

const CLIENT: usize = 0;
const SERVER: usize = 1;

/// How one side's half of a call ended, as that side did it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Open,
    Clean,
    Failed,
    Cancelled,
}

/// One call, as both sides should see it; arrays are indexed by side.
#[derive(Debug)]
struct Record {
    is_stream: bool,
    mode: Mode,
    keys: [Option<CallKey>; 2],
    sent: [u32; 2],
    received: [u32; 2],
    ended: [End; 2],
    /// The side has seen the end of the other's half.
    saw_end: [bool; 2],
}

struct Sim {
    version: Version,
    pair: RpcPair,
    records: Vec<Record>,
    by_key: [HashMap<CallKey, usize>; 2],
    held: [Vec<(CallKey, usize)>; 2],
    server_went_away: bool,
}

impl Sim {
    fn new(choices: &mut Choices<'_>) -> Self {
        let version = if choices.flag() { Version::V2 } else { Version::V1 };
        let mut settings = || Settings {
            window: choices.below(300) as u32 + 1,
            max_calls: choices.below(12) as u32 + 1,
            max_streams: choices.below(6) as u32 + 1,
            first_id: 0u32.wrapping_sub(choices.below(20) as u32),
            ..Settings::default()
        };
        let pair = RpcPair::with_settings(version, settings(), settings());
        Self {
            version,
            pair,
            records: Vec::new(),
            by_key: Default::default(),
            held: Default::default(),
            server_went_away: false,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>) {
        match choices.below(24) {
            0..=3 => self.begin(choices),
            4..=9 => self.with_call(choices, |sim, side, key, choices| sim.send(side, key, choices)),
            10 => self.with_call(choices, |sim, side, key, _| sim.finish(side, key)),
            11 => self.with_call(choices, |sim, side, key, _| sim.cancel(side, key)),
            12 => self.with_call(choices, |sim, _, key, _| sim.fail(key)),
            13 => self.release(choices),
            14 if choices.below(32) == 0 => {
                self.server_went_away = true;
                let RpcPeer { machine, out, .. } = &mut self.pair.server;
                machine.go_away(Code::OK, "bye", out);
            }
            15 => self.with_call(choices, |sim, side, key, _| {
                if side == SERVER {
                    let RpcPeer { machine, out, .. } = &mut sim.pair.server;
                    let _ = machine.accept(key, out);
                }
            }),
            16..=19 => self.deliver(SERVER, choices.below(600)),
            _ => self.deliver(CLIENT, choices.below(600)),
        }
    }

    fn peer(&mut self, side: usize) -> &mut RpcPeer {
        if side == CLIENT { &mut self.pair.client } else { &mut self.pair.server }
    }

    fn check(&mut self) {
        for side in [CLIENT, SERVER] {
            let held: u64 = self.held[side].iter().map(|(_, len)| *len as u64 + 16).sum();
            assert!(self.peer(side).machine.buffered_bytes() <= held, "counts what nobody holds");
        }
    }

    fn begin(&mut self, choices: &mut Choices<'_>) {
        let tag = self.records.len();
        let path = MethodPath::new("S", &tag.to_string()).expect("short names");
        let kind = choices.below(5);
        let mode = [Mode::Unary, Mode::ClientStream, Mode::ServerStream, Mode::Bidi, Mode::Bidi][kind];
        let is_stream = kind == 4;
        let (end, payload) = (choices.flag(), payload(tag, CLIENT, 0, choices.below(1_500)));
        let RpcPeer { machine, out, .. } = &mut self.pair.client;
        let begun = if is_stream {
            machine.open_stream(&path, &Options::default(), out)
        } else {
            let begin = Begin { path: &path, mode, end, options: Options::default() };
            machine.begin(&begin, Some(&payload[..]), out)
        };
        let Ok(key) = begun else { return };
        let is_ended = !is_stream && (end || !mode.streams_requests());
        assert!(self.by_key[CLIENT].insert(key, tag).is_none(), "a key came twice");
        self.records.push(Record {
            is_stream,
            mode,
            keys: [Some(key), None],
            sent: [u32::from(!is_stream), 0],
            received: [0; 2],
            ended: [if is_ended { End::Clean } else { End::Open }, End::Open],
            saw_end: [false; 2],
        });
    }

    fn with_call(
        &mut self,
        choices: &mut Choices<'_>,
        act: impl FnOnce(&mut Self, usize, CallKey, &mut Choices<'_>),
    ) {
        let side = choices.below(2);
        // Recent calls are the live ones; older keys must be refused.
        let from = self.records.len().saturating_sub(24);
        if from == self.records.len() {
            return;
        }
        let tag = from + choices.below(self.records.len() - from);
        if let Some(key) = self.records[tag].keys[side] {
            act(self, side, key, choices);
        }
    }

    fn send(&mut self, side: usize, key: CallKey, choices: &mut Choices<'_>) {
        let tag = self.by_key[side][&key];
        let record = &self.records[tag];
        let end = choices.flag() && choices.flag();
        let payload = payload(tag, side, record.sent[side], choices.below(200));
        let is_single = side == SERVER && !record.mode.streams_responses();
        let RpcPeer { machine, out, .. } = self.peer(side);
        let before = out.len();
        let sent = machine.send(key, &payload[..], end, out);
        if let Err(error) = sent {
            assert_eq!(out.len(), before, "{error} but something was written");
            return;
        }
        let record = &mut self.records[tag];
        assert_eq!(record.ended[side], End::Open, "sent after the end");
        record.sent[side] += 1;
        if end || is_single {
            record.ended[side] = End::Clean;
        }
        if is_single {
            // The only response ends the call, whatever the client still sends.
            record.saw_end[side] = true;
        }
    }

    fn finish(&mut self, side: usize, key: CallKey) {
        let tag = self.by_key[side][&key];
        let RpcPeer { machine, out, .. } = self.peer(side);
        if machine.finish(key, out).is_ok() {
            let record = &mut self.records[tag];
            assert_eq!(record.ended[side], End::Open, "ended twice");
            record.ended[side] = End::Clean;
        }
    }

    fn cancel(&mut self, side: usize, key: CallKey) {
        let tag = self.by_key[side][&key];
        let RpcPeer { machine, out, .. } = self.peer(side);
        if machine.cancel(key, Code::CANCELLED, "enough", out).is_ok() {
            let record = &mut self.records[tag];
            // A client may cancel after its end; a server's end stands.
            if side == CLIENT || record.ended[side] == End::Open {
                record.ended[side] = End::Cancelled;
            }
            record.saw_end[side] = true;
            assert_eq!(
                self.peer(side).machine.cancel(key, Code::OK, "", &mut Vec::new()),
                Err(SendError::CallOver)
            );
        }
    }

    fn fail(&mut self, key: CallKey) {
        let Some(&tag) = self.by_key[SERVER].get(&key) else { return };
        let RpcPeer { machine, out, .. } = &mut self.pair.server;
        let failure = Failure { code: Code::INTERNAL, message: "broken", details: &[] };
        if machine.fail(key, &failure, out).is_ok() {
            let record = &mut self.records[tag];
            record.ended[SERVER] = End::Failed;
            record.saw_end[SERVER] = true;
        }
    }

    fn release(&mut self, choices: &mut Choices<'_>) {
        let side = choices.below(2);
        for _ in 0..choices.below(8) {
            if self.held[side].is_empty() {
                return;
            }
            let at = choices.below(self.held[side].len());
            let (key, len) = self.held[side].swap_remove(at);
            let RpcPeer { machine, out, .. } = self.peer(side);
            machine.release(key, len, out);
        }
    }

    /// Delivers some of what is on the way to a side.
    fn deliver(&mut self, side: usize, most: usize) {
        let from = &mut self.peer(1 - side).out;
        let chunk: Vec<u8> = from.drain(..most.min(from.len())).collect();
        let seen = self.peer(side).receive(&chunk).unwrap_or_else(|error| panic!("side {side}: {error}"));
        for seen in seen {
            self.on_seen(side, seen);
        }
    }

    fn on_seen(&mut self, side: usize, seen: Seen) {
        if let Seen::Request { call, mode, is_stream, ref path, ref payload, end, .. } = seen {
            let tag: usize = path.trim_start_matches("S/").parse().expect("a tag");
            let record = &mut self.records[tag];
            assert_eq!((side, mode, is_stream), (SERVER, record.mode, record.is_stream));
            assert!(record.keys[SERVER].replace(call).is_none(), "a call arrived twice");
            assert!(self.by_key[SERVER].insert(call, tag).is_none(), "a key came twice");
            if let Some(payload) = payload {
                self.on_message(side, tag, call, payload, end);
            }
            if end {
                self.on_clean_end(side, tag);
            }
            return;
        }
        let Some(call) = seen.call() else { return };
        let tag = self.by_key[side][&call];
        let other = 1 - side;
        match seen {
            Seen::Message(_, payload, end, _) => {
                self.on_message(side, tag, call, &payload, end);
                if end {
                    self.on_clean_end(side, tag);
                }
            }
            Seen::Ended(..) => self.on_clean_end(side, tag),
            Seen::Failed(_, code, ..) => {
                self.on_end(side, tag);
                let record = &self.records[tag];
                let is_refused = record.keys[SERVER].is_none()
                    && matches!(code, Code::RESOURCE_EXHAUSTED | Code::INTERNAL | Code::CONNECTION_CLOSED);
                // Version 1 has no other word for a server's cancel.
                let is_v1_cancel = self.version == Version::V1 && record.ended[other] == End::Cancelled;
                assert!(
                    record.ended[other] == End::Failed || is_refused || is_v1_cancel,
                    "{code:?} {record:?}"
                );
            }
            Seen::Cancelled(..) => {
                self.on_end(side, tag);
                let record = &self.records[tag];
                let is_refused = record.is_stream && record.keys[SERVER].is_none();
                let is_v1_failure = self.version == Version::V1 && record.ended[other] == End::Failed;
                // A client that has seen the whole call end closes its own half by a cancel.
                let is_closing = side == SERVER && record.saw_end[CLIENT];
                assert!(
                    record.ended[other] == End::Cancelled || is_refused || is_v1_failure || is_closing,
                    "{record:?}"
                );
            }
            Seen::Refused(_) => {
                self.on_end(side, tag);
                assert!(
                    self.server_went_away && self.records[tag].keys[SERVER].is_none(),
                    "refused, but begun"
                );
            }
            Seen::Accepted(_) | Seen::Writable(_) => {}
            Seen::Request { .. } | Seen::Settings(_) | Seen::Pong(_) | Seen::GoingAway(..) => unreachable!(),
        }
    }

    fn on_message(&mut self, side: usize, tag: usize, call: CallKey, bytes: &[u8], end: bool) {
        let record = &mut self.records[tag];
        assert!(!record.saw_end[side], "a message after the end: {record:?}");
        if bytes.is_empty() {
            // Version 1 says so that a half without any message ends.
            assert!(self.version == Version::V1 && end && record.received[side] == 0);
            return;
        }
        let sequence = record.received[side];
        assert_eq!(bytes, payload(tag, 1 - side, sequence, bytes.len() - HEAD), "another message was due");
        record.received[side] += 1;
        if !end {
            self.held[side].push((call, bytes.len()));
        }
    }

    fn on_clean_end(&mut self, side: usize, tag: usize) {
        self.on_end(side, tag);
        let (other, version) = (1 - side, self.version);
        let record = &self.records[tag];
        // A call of version 1 can only be given up by ending it.
        let is_v1_cancel = version == Version::V1
            && side == SERVER
            && (record.ended[CLIENT] == End::Cancelled || record.saw_end[CLIENT]);
        // A client may cancel after it has ended: the end is still on the way before the cancel.
        let is_before_cancel = side == SERVER && record.ended[CLIENT] == End::Cancelled;
        assert!(record.ended[other] == End::Clean || is_v1_cancel || is_before_cancel, "{record:?}");
        assert_eq!(record.received[side], record.sent[other], "an end before all messages");
    }

    fn on_end(&mut self, side: usize, tag: usize) {
        let version = self.version;
        let record = &mut self.records[tag];
        // Only a cancel may follow a clean end, and only on a server.
        assert!(!record.saw_end[side] || side == SERVER, "completed twice ({version:?}): {record:?}");
        record.saw_end[side] = true;
    }

    /// The connection dies: every call that has not completed comes out once.
    fn die(&mut self) {
        for side in [CLIENT, SERVER] {
            let lost = self.peer(side).lose();
            let distinct: HashSet<_> = lost.iter().copied().collect();
            assert_eq!(distinct.len(), lost.len(), "lost twice");
            for record in &self.records {
                let Some(key) = record.keys[side] else { continue };
                if !record.saw_end[side] {
                    assert!(distinct.contains(&key), "never completes: {record:?}");
                }
            }
            self.peer(side).assert_idle();
        }
    }

    /// The client stops sending: the server is idle when it has ended what it has open, whatever the client had not.
    fn half_close(&mut self) {
        self.deliver(SERVER, usize::MAX);
        self.pair.server.machine.end_receiving();
        for (key, len) in std::mem::take(&mut self.held[SERVER]) {
            let RpcPeer { machine, out, .. } = &mut self.pair.server;
            machine.release(key, len, out);
        }
        self.end_all(SERVER);
        self.pair.server.assert_idle();
        self.deliver(CLIENT, usize::MAX);
        self.pair.client.lose();
        self.pair.client.assert_idle();
    }

    /// Both sides end what they have open, and everything arrives.
    fn drain(&mut self) {
        for _ in 0..100 {
            for side in [SERVER, CLIENT] {
                self.deliver(side, usize::MAX);
                for (key, len) in std::mem::take(&mut self.held[side]) {
                    let RpcPeer { machine, out, .. } = self.peer(side);
                    machine.release(key, len, out);
                }
                self.end_all(side);
            }
            if self.pair.client.out.is_empty() && self.pair.server.out.is_empty() {
                break;
            }
        }
        self.pair.client.assert_idle();
        self.pair.server.assert_idle();
        for record in &self.records {
            assert!(record.saw_end[CLIENT], "never completes: {record:?}");
        }
    }

    fn end_all(&mut self, side: usize) {
        let keys: Vec<CallKey> = self.records.iter().filter_map(|record| record.keys[side]).collect();
        for key in keys {
            let tag = self.by_key[side][&key];
            let RpcPeer { machine, out, .. } = self.peer(side);
            let ended = machine.finish(key, out);
            if ended.is_ok() {
                self.records[tag].ended[side] = End::Clean;
            } else if ended == Err(SendError::MessageNeeded) {
                let mut all_end = Choices::new(&[]);
                self.send(side, key, &mut all_end);
            }
        }
    }
}

const HEAD: usize = 12;

fn payload(tag: usize, side: usize, sequence: u32, filler: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD + filler);
    bytes.extend_from_slice(&(tag as u32).to_be_bytes());
    bytes.extend_from_slice(&(side as u32).to_be_bytes());
    bytes.extend_from_slice(&sequence.to_be_bytes());
    bytes.resize(HEAD + filler, sequence as u8);
    bytes
}

const _: fn() = || {
    fn is_send<T: Send>() {}
    is_send::<Connection>();
};
