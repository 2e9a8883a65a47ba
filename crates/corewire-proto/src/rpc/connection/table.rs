//! The one table of a connection's calls: what the wire knows of each, and what its owner keeps.

use std::num::NonZeroU32;

use super::call::{Call, Kind, Own, Peer};
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
    /// Never 0, so that what may be a key takes no more room than one.
    generation: NonZeroU32,
}

impl CallKey {
    /// That of no call.
    pub const NONE: Self = Self { index: u32::MAX, generation: NonZeroU32::MAX };

    /// Slot in a dense table; below the most calls and streams that were ever in use or kept at once.
    #[inline]
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

#[derive(Debug)]
struct Entry<T> {
    generation: NonZeroU32,
    life: Life,
    call: Call,
    /// What the owner of the connection keeps of the call. The slot is not used again as long as it is here.
    kept: Option<T>,
}

/// What a slot of the table stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    /// Nothing: the next free slot.
    Free { next: u32 },
    /// A call that is in use.
    Live,
    /// A call that this side has given up, and whose end the peer still owes.
    Abandoned,
    /// A call that is over, of which the owner still keeps something.
    Over,
}

const NONE: u32 = u32::MAX;

/// Slots of calls, found by key (slot and generation) or by the id of the wire.
#[derive(Debug)]
pub(super) struct Table<T> {
    slots: Vec<Entry<T>>,
    first_free: u32,
    /// Ids of calls, and those of streams where both are one sequence.
    calls: Ids,
    /// Ids of streams where they are a space of their own.
    streams: Ids,
    are_streams_apart: bool,
    in_use: Counts,
    abandoned: Counts,
    kept: usize,
}

/// How many calls there are of each family.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counts {
    pub(super) calls: u32,
    pub(super) streams: u32,
}

impl Counts {
    #[inline]
    const fn of(&mut self, kind: Kind) -> &mut u32 {
        if kind.is_stream() { &mut self.streams } else { &mut self.calls }
    }

    #[inline]
    pub(super) const fn all(self) -> usize {
        self.calls as usize + self.streams as usize
    }
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Self {
            slots: Vec::new(),
            first_free: NONE,
            calls: Ids::default(),
            streams: Ids::default(),
            are_streams_apart: false,
            in_use: Counts::default(),
            abandoned: Counts::default(),
            kept: 0,
        }
    }

    /// Streams have ids of their own, apart from those of calls.
    pub(super) fn set_streams_apart(&mut self) {
        self.are_streams_apart = true;
    }

    /// Calls of which a half is open, abandoned ones included.
    #[inline]
    pub(super) const fn in_use(&self) -> Counts {
        self.in_use
    }

    pub(super) const fn abandoned(&self) -> Counts {
        self.abandoned
    }

    /// Calls of which the owner keeps something.
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }

    #[inline]
    pub(super) fn find(&self, id: u32, is_stream: bool) -> Option<u32> {
        if is_stream && self.are_streams_apart { self.streams.find(id) } else { self.calls.find(id) }
    }

    /// A new call under an id that is not in use.
    #[inline]
    pub(super) fn insert(&mut self, call: Call) -> u32 {
        let (id, kind) = (call.id, call.kind);
        let index = self.occupy(call, Life::Live);
        *self.in_use.of(kind) += 1;
        let ids =
            if kind.is_stream() && self.are_streams_apart { &mut self.streams } else { &mut self.calls };
        ids.insert(id, index);
        index
    }

    #[inline]
    fn occupy(&mut self, call: Call, life: Life) -> u32 {
        if self.first_free == NONE {
            return self.push(call, life);
        }
        let index = self.first_free;
        let entry = &mut self.slots[index as usize];
        if let Life::Free { next } = entry.life {
            self.first_free = next;
        }
        (entry.life, entry.call) = (life, call);
        index
    }

    #[cold]
    fn push(&mut self, call: Call, life: Life) -> u32 {
        self.slots.push(Entry { generation: NonZeroU32::MIN, life, call, kept: None });
        self.slots.len() as u32 - 1
    }

    /// The call is over; its slot is free unless the owner keeps something of it.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) {
        let entry = &mut self.slots[index as usize];
        debug_assert!(matches!(entry.life, Life::Live | Life::Abandoned));
        let (id, kind) = (entry.call.id, entry.call.kind);
        if entry.life == Life::Abandoned {
            *self.abandoned.of(kind) -= 1;
        }
        if entry.kept.is_some() {
            entry.life = Life::Over;
        } else {
            self.vacate(index);
        }
        *self.in_use.of(kind) -= 1;
        let ids =
            if kind.is_stream() && self.are_streams_apart { &mut self.streams } else { &mut self.calls };
        ids.remove(id);
    }

    /// Frees a slot; its keys are over from now on.
    #[inline]
    fn vacate(&mut self, index: u32) {
        let entry = &mut self.slots[index as usize];
        entry.generation = entry.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        entry.life = Life::Free { next: self.first_free };
        self.first_free = index;
    }

    /// Nobody here waits for the call any more: its key is over for the wire, and its id in use.
    pub(super) fn abandon(&mut self, index: u32) {
        let entry = &mut self.slots[index as usize];
        debug_assert_eq!(entry.life, Life::Live);
        entry.life = Life::Abandoned;
        *self.abandoned.of(entry.call.kind) += 1;
    }

    #[inline]
    pub(super) fn is_abandoned(&self, index: u32) -> bool {
        self.slots[index as usize].life == Life::Abandoned
    }

    #[inline]
    pub(super) fn key(&self, index: u32) -> CallKey {
        CallKey { index, generation: self.slots[index as usize].generation }
    }

    /// The slot of a key whose call is in use and not abandoned.
    #[inline]
    pub(super) fn resolve(&self, key: CallKey) -> Option<u32> {
        let entry = self.slots.get(key.index())?;
        (entry.generation == key.generation && entry.life == Life::Live).then_some(key.index)
    }

    /// The slot and the id of a unary call of which only the response is missing (server).
    #[inline]
    pub(super) fn unanswered(&self, key: CallKey) -> Option<(u32, u32)> {
        let entry = self.slots.get(key.index())?;
        let Call { id, kind, own, peer, .. } = entry.call;
        let is_live = entry.generation == key.generation && entry.life == Life::Live;
        let is_unanswered = kind == Kind::Call(Mode::Unary) && own == Own::Silent && peer == Peer::Ended;
        (is_live && is_unanswered).then_some((key.index, id))
    }

    /// The call in a slot that is in use.
    #[inline]
    pub(super) fn at(&mut self, index: u32) -> &mut Call {
        &mut self.slots[index as usize].call
    }

    #[inline]
    pub(super) fn id(&self, index: u32) -> u32 {
        self.slots[index as usize].call.id
    }

    pub(super) fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The call in a slot, if it is in use.
    pub(super) fn get(&mut self, index: u32) -> Option<&mut Call> {
        let entry = self.slots.get_mut(index as usize)?;
        matches!(entry.life, Life::Live | Life::Abandoned).then_some(&mut entry.call)
    }

    /// Keeps `state` for a call. One that is over already gets a key of its own.
    #[inline]
    pub(super) fn keep(&mut self, key: CallKey, state: T) -> CallKey {
        let index = self.resolve(key).unwrap_or_else(|| self.occupy_over());
        let entry = &mut self.slots[index as usize];
        self.kept += usize::from(entry.kept.is_none());
        // In place: it may be large.
        entry.kept = Some(state);
        CallKey { index, generation: entry.generation }
    }

    #[cold]
    fn occupy_over(&mut self) -> u32 {
        self.occupy(Call::new(0, Kind::Stream), Life::Over)
    }

    #[inline]
    pub(super) fn state(&self, key: CallKey) -> Option<&T> {
        let entry = self.slots.get(key.index())?;
        entry.kept.as_ref().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(super) fn state_mut(&mut self, key: CallKey) -> Option<&mut T> {
        let entry = self.slots.get_mut(key.index())?;
        entry.kept.as_mut().filter(|_| entry.generation == key.generation)
    }

    #[inline]
    pub(super) fn take_state(&mut self, key: CallKey) -> Option<T> {
        let entry = self.slots.get_mut(key.index()).filter(|entry| entry.generation == key.generation)?;
        let state = entry.kept.take()?;
        self.kept -= 1;
        if entry.life == Life::Over {
            self.vacate(key.index);
        }
        Some(state)
    }

    /// Drops what is kept for a call, where it lies.
    #[inline]
    pub(super) fn drop_state(&mut self, key: CallKey) {
        let Some(entry) = self.slots.get_mut(key.index()).filter(|entry| entry.generation == key.generation)
        else {
            return;
        };
        if entry.kept.is_none() {
            return;
        }
        entry.kept = None;
        self.kept -= 1;
        if entry.life == Life::Over {
            self.vacate(key.index);
        }
    }

    pub(super) fn states_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut T)> {
        (0..).zip(&mut self.slots).filter_map(|(index, entry)| {
            let key = CallKey { index, generation: entry.generation };
            Some((key, entry.kept.as_mut()?))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(id: u32) -> Call {
        Call::new(id, Kind::Call(Mode::Unary))
    }

    #[test]
    fn a_slot_is_used_again_when_the_call_is_over_and_nothing_is_kept_of_it() {
        let mut table = Table::new();
        let index = table.insert(call(1));
        let key = table.keep(table.key(index), "kept");
        table.remove(index);
        assert_eq!((table.resolve(key), table.state(key), table.in_use().all()), (None, Some(&"kept"), 0));
        let other = table.insert(call(2));
        assert_ne!(other, index, "it is not free yet");
        assert_eq!(table.take_state(key), Some("kept"));
        assert_eq!(table.take_state(key), None);
        assert_eq!((table.state(key), table.kept()), (None, 0));
        assert_eq!(table.insert(call(3)), index);
        assert_eq!(table.resolve(key), None, "a key never reaches another call");
    }

    #[test]
    fn what_is_kept_is_dropped_where_it_lies_and_frees_the_slot_of_a_call_that_is_over() {
        let mut table = Table::new();
        let index = table.insert(call(1));
        let key = table.keep(table.key(index), "kept");
        table.drop_state(key);
        assert_eq!((table.state(key), table.resolve(key), table.kept()), (None, Some(index), 0));
        let key = table.keep(key, "again");
        table.remove(index);
        table.drop_state(key);
        table.drop_state(key);
        assert_eq!((table.kept(), table.insert(call(2))), (0, index));
    }

    #[test]
    fn a_unary_call_is_unanswered_once_its_request_has_ended_and_until_its_response_has() {
        let mut table = Table::<()>::new();
        let index = table.insert(call(7));
        let key = table.key(index);
        assert_eq!(table.unanswered(key), None);
        table.at(index).peer = Peer::Ended;
        assert_eq!(table.unanswered(key), Some((index, 7)));
        table.at(index).own = Own::Ended;
        assert_eq!(table.unanswered(key), None);
        table.remove(index);
        assert_eq!(table.unanswered(key), None);
    }

    #[test]
    fn what_is_kept_of_an_abandoned_call_is_there_until_it_is_taken() {
        let mut table = Table::new();
        let index = table.insert(call(1));
        let key = table.keep(table.key(index), 7);
        table.abandon(index);
        assert_eq!((table.resolve(key), table.state(key)), (None, Some(&7)));
        assert_eq!(table.take_state(key), Some(7));
        assert!(table.get(index).is_some(), "its id is in use");
        table.remove(index);
        assert_eq!((table.in_use().all(), table.abandoned().all()), (0, 0));
    }

    #[test]
    fn something_can_be_kept_of_a_call_that_is_over() {
        let mut table = Table::new();
        let index = table.insert(call(1));
        let key = table.key(index);
        table.remove(index);
        let kept = table.keep(key, 7);
        assert_ne!(kept, key);
        assert_eq!((table.state(key), table.state(kept)), (None, Some(&7)));
        assert_eq!(table.states_mut().map(|(key, _)| key).collect::<Vec<_>>(), [kept]);
    }
}
