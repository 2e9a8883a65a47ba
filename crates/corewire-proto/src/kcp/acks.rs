//! Acknowledgements that wait for the next datagram.

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
    /// When they have to leave at the latest; meaningless while there are none.
    due_at: u64,
    ahead_max: usize,
    delay_ms: u64,
}

impl Acks {
    pub(super) fn new(ahead_max: usize, delay_ms: u32) -> Self {
        Self { ahead: Vec::new(), newest: None, due_at: 0, ahead_max, delay_ms: delay_ms.into() }
    }

    /// A segment that the cumulative number covers: in its turn, or seen before.
    #[inline]
    pub(super) fn push_covered(&mut self, ack: Ack, now: u64) {
        if self.is_empty() {
            self.due_at = now + self.delay_ms;
        }
        self.newest = Some(ack);
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

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_none() && self.ahead.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.ahead = Vec::new();
        self.newest = None;
    }

    pub(super) fn memory(&self) -> usize {
        self.ahead.capacity() * size_of::<Ack>()
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
    fn there_are_never_more_than_the_limit() {
        let mut acks = Acks::new(2, 0);
        assert!(acks.push_ahead(ack(5), 0) && acks.push_ahead(ack(6), 0) && !acks.push_ahead(ack(7), 0));
    }
}
