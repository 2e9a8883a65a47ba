//! Acknowledgements that wait for the next datagram.

use std::collections::VecDeque;

/// One acknowledgement: the segment's number, and the time-stamp to echo.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Ack {
    pub(super) number: u32,
    pub(super) timestamp: u32,
}

#[derive(Debug)]
pub(super) struct Acks {
    /// Segments that came ahead of their turn: the cumulative number does not say that they are here.
    ahead: Vec<Ack>,
    /// The newest of the others. The cumulative number says all of them; this one carries the time-stamp.
    newest: Option<Ack>,
    /// The one of a challenge. It leaves alone and before any data, which a peer that waits for it may not take.
    echo: Option<Ack>,
    /// When they have to leave at the latest; meaningless while there are none.
    due_at: u64,
    ahead_max: usize,
    delay_ms: u64,
    /// Those of segments ahead of their turn that were sent lately, with the time of the first sending.
    repeats: VecDeque<(u64, Ack)>,
}

/// Beyond as many as there are new ones in a datagram, so many are repeated.
const REPEATS: usize = 3;
/// How many may be kept for that, and for how long in ms: later their time-stamp would make a round trip look longer.
const REPEATS_MAX: usize = 64;
const REPEAT_WITHIN_MS: u64 = 10;

impl Acks {
    pub(super) fn new(ahead_max: usize, delay_ms: u32) -> Self {
        Self {
            ahead: Vec::new(),
            newest: None,
            echo: None,
            due_at: 0,
            ahead_max,
            delay_ms: delay_ms.into(),
            repeats: VecDeque::new(),
        }
    }

    /// A segment that the cumulative number covers: in its turn, or seen before.
    #[inline]
    pub(super) fn push_covered(&mut self, ack: Ack, now: u64) {
        if self.is_empty() {
            self.due_at = now + self.delay_ms;
        }
        self.newest = Some(ack);
    }

    /// A challenge.
    pub(super) const fn push_echo(&mut self, ack: Ack) {
        self.echo = Some(ack);
    }

    #[inline]
    pub(super) const fn has_echo(&self) -> bool {
        self.echo.is_some()
    }

    #[inline]
    pub(super) const fn pop_echo(&mut self) -> Option<Ack> {
        self.echo.take()
    }

    /// A segment ahead of its turn. Returns false when there is no room: the peer will send it again.
    #[inline]
    pub(super) fn push_ahead(&mut self, ack: Ack, now: u64) -> bool {
        self.due_at = now;
        let has_room = self.ahead.len() < self.ahead_max;
        if has_room {
            self.ahead.push(ack);
        }
        has_room
    }

    /// When to send at the latest; `None` when nothing waits.
    #[inline]
    pub(super) fn due_at(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.due_at)
    }

    /// The next one to write; `covered_before` is the cumulative number that goes out with it.
    #[inline]
    pub(super) fn pop(&mut self, is_covered: impl Fn(u32) -> bool) -> Option<Ack> {
        while let Some(ack) = self.ahead.pop() {
            if !is_covered(ack.number) {
                return Some(ack);
            }
            // Its turn has come meanwhile. Something has to carry the cumulative number to the peer.
            self.newest.get_or_insert(ack);
        }
        self.newest.take()
    }

    /// The acknowledgement of a segment ahead of its turn has been written for the first time.
    pub(super) fn repeat_later(&mut self, ack: Ack, now: u64) {
        if self.repeats.len() == REPEATS_MAX {
            self.repeats.pop_front();
        }
        self.repeats.push_back((now, ack));
    }

    /// Acknowledgements to write again in a datagram that has `new` ones: a lost one must not have the peer send
    /// data again. The last `new` are those of the datagram itself.
    pub(super) fn repeats(
        &mut self,
        now: u64,
        new: usize,
        is_covered: impl Fn(u32) -> bool,
    ) -> impl Iterator<Item = Ack> {
        self.repeats.retain(|(at, ack)| now <= at + REPEAT_WITHIN_MS && !is_covered(ack.number));
        self.repeats.iter().rev().skip(new).take(new + REPEATS).map(|(_, ack)| *ack)
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none() && self.ahead.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ahead = Vec::new();
        self.newest = None;
        self.echo = None;
        self.repeats = VecDeque::new();
    }

    pub(super) fn memory(&self) -> usize {
        self.ahead.capacity() * size_of::<Ack>() + self.repeats.capacity() * size_of::<(u64, Ack)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ack(number: u32) -> Ack {
        Ack { number, timestamp: number + 100 }
    }

    #[test]
    fn covered_ones_collapse_into_the_newest() {
        let mut acks = Acks::new(8, 0);
        (0..5).for_each(|number| acks.push_covered(ack(number), 0));
        assert_eq!(acks.pop(|number| number < 5), Some(ack(4)));
        assert_eq!(acks.pop(|number| number < 5), None);
    }

    #[test]
    fn those_ahead_are_told_one_by_one_until_their_turn_has_come() {
        let mut acks = Acks::new(8, 20);
        acks.push_covered(ack(0), 5);
        assert_eq!(acks.due_at(), Some(25));
        acks.push_ahead(ack(2), 6);
        acks.push_ahead(ack(4), 6);
        assert_eq!(acks.due_at(), Some(6), "a gap is told without delay");
        let covered = |number| number < 4;
        assert_eq!(acks.pop(covered), Some(ack(4)));
        assert_eq!(acks.pop(covered), Some(ack(0)));
        assert_eq!(acks.pop(covered), None);
        assert_eq!(acks.due_at(), None);
    }

    #[test]
    fn those_of_the_datagrams_before_are_repeated_for_a_while() {
        let mut acks = Acks::new(8, 0);
        (1..=6).for_each(|number| acks.repeat_later(ack(number), 0));
        let numbers = |acks: &mut Acks, now, new| -> Vec<u32> {
            acks.repeats(now, new, |number| number < 2).map(|ack| ack.number).collect()
        };
        assert_eq!(numbers(&mut acks, 10, 1), [5, 4, 3, 2]);
        assert!(numbers(&mut acks, 11, 1).is_empty());
    }

    #[test]
    fn there_are_never_more_than_the_limit() {
        let mut acks = Acks::new(2, 0);
        assert!(acks.push_ahead(ack(5), 0) && acks.push_ahead(ack(6), 0) && !acks.push_ahead(ack(7), 0));
    }
}
