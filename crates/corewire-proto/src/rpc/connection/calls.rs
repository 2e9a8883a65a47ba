//! The table of calls and streams in use.

use super::ids::Ids;
use crate::rpc::header::Mode;

/// A call or stream of one connection, as long as it lives.
///
/// [`index`](Self::index) is small and dense, so that tables of the caller can be plain vectors; it is used again
/// after the call is over, which is why the key also has a generation: a key that is over is told apart and never
/// reaches another call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CallKey {
    index: u32,
    generation: u32,
}

impl CallKey {
    /// Place in a dense table; below the most calls and streams that were ever in use at once.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// State of one call. Halves are named from this side: `sent` is ours, `received` the peer's.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: u32,
    generation: u32,
    pub(super) mode: Mode,
    pub(super) is_stream: bool,
    in_use: bool,
    /// Our half has ended.
    pub(super) sent_end: bool,
    /// The peer's half has ended.
    pub(super) received_end: bool,
    /// A message of our half has been sent (server).
    pub(super) sent_any: bool,
    /// A message of the peer's half has arrived.
    pub(super) received_any: bool,
    /// Nobody here waits for it any more; the slot only keeps the id out of use until the peer has ended its half.
    pub(super) is_abandoned: bool,
    /// The server's STREAM_INIT_ACK has been sent or received.
    pub(super) is_accepted: bool,
    /// A send found no credit, and an event is owed when there is some.
    pub(super) is_blocked: bool,
    /// What we may still send, in bytes (version 2).
    pub(super) send_credit: i64,
    /// What the peer may still send, in bytes (version 2).
    pub(super) receive_credit: i64,
    /// Cost of the messages handed out and not yet released.
    pub(super) unreleased: u64,
    /// `unreleased` came over the window and has not fallen to half of it since (version 1).
    pub(super) is_over_window: bool,
    /// Cost released and not yet granted again.
    pub(super) ungranted: u32,
    /// Hash of the names, to tell a further message of version 1 from another call under the same id.
    pub(super) names_hash: u32,
    next_free: u32,
}

const NONE: u32 = u32::MAX;

/// Slots of calls, found by key (slot and generation) or by the id of the wire.
#[derive(Debug)]
pub(super) struct Calls {
    slots: Vec<Call>,
    first_free: u32,
    /// Ids of calls; in version 2 also those of streams.
    calls: Ids,
    /// Ids of streams in version 1, where they are a space of their own.
    streams: Ids,
    streams_apart: bool,
    pub(super) calls_in_use: u32,
    pub(super) streams_in_use: u32,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            first_free: NONE,
            calls: Ids::default(),
            streams: Ids::default(),
            streams_apart: true,
            calls_in_use: 0,
            streams_in_use: 0,
        }
    }

    /// Version 2 numbers calls and streams from one sequence.
    pub(super) fn join_id_spaces(&mut self) {
        self.streams_apart = false;
    }

    #[inline]
    pub(super) fn find(&self, id: u32, is_stream: bool) -> Option<u32> {
        if is_stream && self.streams_apart { self.streams.find(id) } else { self.calls.find(id) }
    }

    /// A new call under an id that is not in use.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, mode: Mode, is_stream: bool) -> u32 {
        let index = if self.first_free == NONE { self.push() } else { self.first_free };
        let call = &mut self.slots[index as usize];
        self.first_free = call.next_free;
        *call = Call { id, mode, is_stream, in_use: true, ..Call::fresh(call.generation) };
        if is_stream {
            self.streams_in_use += 1;
        } else {
            self.calls_in_use += 1;
        }
        if is_stream && self.streams_apart {
            self.streams.insert(id, index)
        } else {
            self.calls.insert(id, index)
        }
        index
    }

    /// Frees a slot; its keys are over from now on.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let call = &mut self.slots[index as usize];
        debug_assert!(call.in_use);
        call.in_use = false;
        call.generation = call.generation.wrapping_add(1);
        call.next_free = self.first_free;
        self.first_free = index;
        let (id, is_stream) = (call.id, call.is_stream);
        if is_stream {
            self.streams_in_use -= 1;
        } else {
            self.calls_in_use -= 1;
        }
        if is_stream && self.streams_apart { self.streams.remove(id) } else { self.calls.remove(id) }
    }

    #[inline]
    pub(super) fn key(&self, index: u32) -> CallKey {
        CallKey { index, generation: self.slots[index as usize].generation }
    }

    /// The slot of a key that is not over.
    #[inline]
    pub(super) fn resolve(&self, key: CallKey) -> Option<u32> {
        let call = self.slots.get(key.index())?;
        (call.generation == key.generation && call.in_use && !call.is_abandoned).then_some(key.index)
    }

    /// The call in a slot that is in use.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Call {
        &mut self.slots[index as usize]
    }

    pub(super) fn id(&self, index: u32) -> u32 {
        self.slots[index as usize].id
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The call in a slot, if it is in use.
    pub(super) fn get(&mut self, index: u32) -> Option<&mut Call> {
        self.slots.get_mut(index as usize).filter(|call| call.in_use)
    }

    #[cold]
    fn push(&mut self) -> u32 {
        self.slots.push(Call::fresh(0));
        self.slots.len() as u32 - 1
    }
}

impl Call {
    const fn fresh(generation: u32) -> Self {
        Self {
            id: 0,
            generation,
            mode: Mode::Unary,
            is_stream: false,
            in_use: false,
            sent_end: false,
            sent_any: false,
            received_end: false,
            received_any: false,
            is_abandoned: false,
            is_accepted: false,
            is_blocked: false,
            send_credit: 0,
            receive_credit: 0,
            unreleased: 0,
            is_over_window: false,
            ungranted: 0,
            names_hash: 0,
            next_free: NONE,
        }
    }

    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.sent_end && self.received_end
    }
}
