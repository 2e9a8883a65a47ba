//! The calls of one client that are in flight or wait to begin.

use std::collections::VecDeque;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::codec::{FrameHead, FrameKind, Matching};
use corewire_proto::matching::{CallKey, CallTable, Matched};
use slab::Slab;

use super::error::CallError;
use super::wakers::Wakers;

#[derive(Debug)]
pub(super) struct Calls {
    table: CallTable<usize>,
    /// Replies are matched in order: each request must be answered in its time, or no later reply can be told.
    is_in_order: bool,
    slots: Slab<Slot>,
    wakers: Wakers,
    /// Who waits for a free number, in order.
    waiting: VecDeque<(u64, Waker)>,
    /// Whose turn has come: a free number is kept for each until it begins or leaves.
    called: Vec<u64>,
    next_ticket: u64,
    /// When numbers that were given up were freed last.
    aged_at_ms: u64,
    /// When calls are looked through for those whose time is over; `u64::MAX`: not planned.
    pub(super) timer_at: u64,
}

#[derive(Debug)]
struct Slot {
    key: Option<CallKey>,
    deadline_ms: u64,
    timeout: Duration,
    state: State,
}

#[derive(Debug)]
enum State {
    /// Whom to wake, by the number in [`Wakers`].
    Waiting(usize),
    /// Nobody waits any more, but in order its reply is still due.
    GivenUp,
    Done(Result<Bytes, CallError>),
}

/// What a look at the deadlines found.
#[derive(Debug)]
pub(super) struct Expired {
    /// The earliest deadline of the calls that are left.
    pub(super) next: Option<u64>,
    /// A reply that was due in order did not come: what comes next belongs to nobody knows which call.
    pub(super) is_out_of_step: bool,
}

impl Calls {
    pub(super) fn new(matching: Matching, limit: Option<usize>) -> Self {
        let limit = limit.unwrap_or(CallTable::<usize>::DEFAULT_FIFO_LIMIT);
        Self {
            table: CallTable::new(matching, limit),
            is_in_order: matching == Matching::Fifo,
            slots: Slab::new(),
            wakers: Wakers::default(),
            waiting: VecDeque::new(),
            called: Vec::new(),
            next_ticket: 0,
            aged_at_ms: 0,
            timer_at: u64::MAX,
        }
    }

    /// Whether a call may begin now: a number is free and nobody waits for it, or was called to it, who came before.
    fn can_begin(&self, ticket: Option<u64>) -> bool {
        if !self.table.can_begin() {
            return false;
        }
        if self.waiting.is_empty() && self.called.is_empty() {
            return true;
        }
        if ticket.is_some_and(|ticket| self.called.contains(&ticket)) {
            return true;
        }
        let kept = self.table.in_flight() + self.table.abandoned() + self.called.len();
        self.waiting.is_empty() && kept < self.table.capacity()
    }

    /// On datagrams a lost reply must not cost its number for ever: one that was given up is free again after this
    /// time, and before twice of it, when no reply can be on its way any more.
    const LATE_REPLY_MAX_MS: u64 = 30_000;

    /// Frees the numbers that were given up long ago.
    #[cold]
    pub(super) fn free_given_up(&mut self, now_ms: u64) {
        if now_ms.saturating_sub(self.aged_at_ms) >= Self::LATE_REPLY_MAX_MS {
            self.aged_at_ms = now_ms;
            (0..self.table.age()).for_each(|_| self.wake_next());
        }
    }

    /// A call that was called to its number has begun.
    pub(super) fn begun(&mut self, ticket: u64) {
        self.called.retain(|other| *other != ticket);
    }

    /// Every number is held by a call that was given up: no reply, no new call.
    pub(super) fn is_exhausted(&self) -> bool {
        self.table.is_exhausted()
    }

    /// Begins a call, if it may; gives its slot and its sequence.
    #[inline]
    pub(super) fn begin(
        &mut self,
        ticket: Option<u64>,
        waker: &Waker,
        deadline_ms: u64,
        timeout: Duration,
    ) -> Option<(usize, u32)> {
        let is_contended = !self.waiting.is_empty() || !self.called.is_empty();
        if is_contended && !self.can_begin(ticket) {
            return None;
        }
        let entry = self.slots.vacant_entry();
        let slot = entry.key();
        let key = self.table.begin(slot).ok()?;
        let waker = self.wakers.keep(waker);
        entry.insert(Slot { key: Some(key), deadline_ms, timeout, state: State::Waiting(waker) });
        Some((slot, self.table.sequence_of(key)))
    }

    /// Takes back the call that has just begun: its request was not sent. A number that it was called to is still kept
    /// for it.
    pub(super) fn take_back(&mut self, slot: usize) {
        if let Some(key) = self.remove(slot) {
            let _ = self.table.withdraw(key);
        }
    }

    /// The result of a call, if it has one; otherwise remembers whom to wake.
    #[inline(always)]
    pub(super) fn poll(&mut self, slot: usize, waker: &Waker) -> Option<Result<Bytes, CallError>> {
        let Some(call) = self.slots.get_mut(slot) else { return Some(Err(CallError::Closed)) };
        if let State::Waiting(kept) = &mut call.state {
            if !self.wakers.is(*kept, waker) {
                self.wakers.release(*kept);
                *kept = self.wakers.keep(waker);
            }
            return None;
        }
        match self.slots.remove(slot).state {
            State::Done(result) => Some(result),
            State::Waiting(_) | State::GivenUp => None,
        }
    }

    /// Gives a call up. A reply that still comes goes nowhere; in order it must still come, within the call's time.
    pub(super) fn give_up(&mut self, slot: usize) {
        if self.is_in_order
            && let Some(call) = self.slots.get_mut(slot)
            && call.key.is_some()
        {
            if let State::Waiting(waker) = std::mem::replace(&mut call.state, State::GivenUp) {
                self.wakers.release(waker);
            }
            return;
        }
        if let Some(key) = self.remove(slot) {
            let _ = self.table.abandon(key);
            self.note_exhausted();
        }
    }

    /// Removes a slot; gives its call's key if it is still in flight.
    fn remove(&mut self, slot: usize) -> Option<CallKey> {
        let slot = self.slots.try_remove(slot)?;
        if let State::Waiting(waker) = slot.state {
            self.wakers.release(waker);
        }
        slot.key
    }

    /// A frame arrived: ends the call whose reply it is. `false`: it is no reply.
    #[inline]
    pub(super) fn complete(&mut self, head: &FrameHead, round: u64, payload: impl FnOnce() -> Bytes) -> bool {
        match self.table.complete(head) {
            Matched::Call(slot) => {
                let result = match head.kind {
                    FrameKind::ErrorReply => Err(CallError::Remote(payload())),
                    _ => Ok(payload()),
                };
                self.finish(slot, result, Some(round));
                self.wake_next();
                true
            }
            Matched::Late => {
                self.wake_next();
                true
            }
            Matched::Unknown => false,
        }
    }

    #[inline]
    fn finish(&mut self, slot: usize, result: Result<Bytes, CallError>, round: Option<u64>) {
        let Some(call) = self.slots.get_mut(slot) else { return };
        call.key = None;
        let waker = match call.state {
            State::Waiting(waker) => waker,
            State::GivenUp => return drop(self.slots.remove(slot)),
            State::Done(_) => return,
        };
        call.state = State::Done(result);
        self.wakers.wake(waker, round);
        self.wakers.release(waker);
    }

    /// Ends the calls whose time is over.
    pub(super) fn expire(&mut self, now_ms: u64) -> Expired {
        let Self { table, slots, .. } = self;
        let mut expired = Vec::new();
        table.abandon_if(
            |slot| slots.get(*slot).is_none_or(|call| call.deadline_ms <= now_ms),
            |slot| expired.push(slot),
        );
        let is_out_of_step = self.is_in_order && !expired.is_empty();
        for slot in expired {
            if let Some(timeout) = self.slots.get(slot).map(|call| call.timeout) {
                self.finish(slot, Err(CallError::TimedOut(timeout)), None);
            }
        }
        self.note_exhausted();
        let waiting = self.slots.iter().filter(|(_, call)| call.key.is_some());
        Expired { next: waiting.map(|(_, call)| call.deadline_ms).min(), is_out_of_step }
    }

    /// The connection is lost: ends every call, and lets those that wait see it.
    pub(super) fn fail_all(&mut self, error: &CallError) {
        let slots: Vec<usize> = self.table.drain().collect();
        for slot in slots {
            self.finish(slot, Err(error.clone()), None);
        }
        self.timer_at = u64::MAX;
        self.called.clear();
        self.wakers.forget_idle();
        self.waiting.drain(..).for_each(|(_, waker)| waker.wake());
    }

    /// Waits for a free number behind those that wait already; the ticket names the place.
    pub(super) fn wait(&mut self, ticket: Option<u64>, waker: &Waker) -> u64 {
        if let Some(ticket) = ticket
            && let Some((_, kept)) = self.waiting.iter_mut().find(|(other, _)| *other == ticket)
        {
            kept.clone_from(waker);
            return ticket;
        }
        let ticket = self.next_ticket;
        self.next_ticket += 1;
        self.waiting.push_back((ticket, waker.clone()));
        ticket
    }

    /// A waiter goes away; if its turn had come, the next one's has.
    pub(super) fn leave(&mut self, ticket: u64) {
        if let Some(at) = self.called.iter().position(|other| *other == ticket) {
            self.called.swap_remove(at);
            self.wake_next();
        } else {
            self.waiting.retain(|(other, _)| *other != ticket);
        }
    }

    #[inline]
    fn wake_next(&mut self) {
        if let Some((ticket, waker)) = self.waiting.pop_front() {
            self.called.push(ticket);
            waker.wake();
        }
    }

    /// No reply will free a number any more: who waits first must see it, and has the connection replaced.
    fn note_exhausted(&self) {
        if self.is_exhausted()
            && let Some((_, waker)) = self.waiting.front()
        {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn over_datagrams_a_lost_reply_costs_its_number_for_a_time_only() {
        let mut calls = Calls::new(Matching::Sequence { modulus: 256 }, None);
        let waker = Waker::noop();
        let lose = |calls: &mut Calls, now: u64| {
            let (slot, _) = calls.begin(None, waker, now, Duration::ZERO).unwrap();
            calls.give_up(slot);
        };
        // Far more replies are lost than there are numbers, a hundred a minute.
        for minute in 1..20_u64 {
            calls.free_given_up(minute * 60_000);
            (0..100).for_each(|_| lose(&mut calls, minute * 60_000));
            assert!(!calls.is_exhausted());
        }
        // Faster than that it does not help: it is not safe yet.
        let now = 20 * 60_000;
        calls.free_given_up(now);
        while calls.can_begin(None) {
            lose(&mut calls, now);
        }
        calls.free_given_up(now + Calls::LATE_REPLY_MAX_MS - 1);
        assert!(!calls.can_begin(None));
    }

    #[test]
    fn a_call_whose_request_was_not_sent_leaves_no_trace() {
        let waker = Waker::noop();
        for matching in [Matching::Sequence { modulus: 256 }, Matching::Fifo] {
            let mut calls = Calls::new(matching, Some(2));
            let begin = |calls: &mut Calls, ticket| {
                calls.begin(ticket, waker, 0, Duration::ZERO).map(|begun| begun.0)
            };
            let first = begin(&mut calls, None).unwrap();
            for _ in 0..1000 {
                let other = begin(&mut calls, None).unwrap();
                assert_eq!(begin(&mut calls, None), None);
                calls.take_back(other);
            }
            // One that was called to its number keeps it until it has really begun.
            let second = begin(&mut calls, None).unwrap();
            let ticket = calls.wait(None, waker);
            let reply = FrameHead { kind: FrameKind::Reply, sequence: 1, tag: 0 };
            assert!(calls.complete(&reply, 1, || Bytes::from_static(b"to the first")));
            assert_eq!(calls.poll(first, waker), Some(Ok(Bytes::from_static(b"to the first"))));
            let called = begin(&mut calls, Some(ticket)).unwrap();
            calls.take_back(called);
            assert_eq!(begin(&mut calls, None), None, "another takes its place");
            assert!(begin(&mut calls, Some(ticket)).is_some());
            calls.begun(ticket);
            calls.give_up(second);
        }
    }
}
