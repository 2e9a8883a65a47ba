//! What a link holds for its peer.

use corewire_runtime::{Charge, Connection, MemoryKind};

/// Bytes that a connection holds, by what they occupy. Reading stops when it is too much and goes on at a low mark, so that
/// a slow consumer does not stop and start it for each message.
#[derive(Debug)]
pub(crate) struct Held {
    limit: usize,
    /// What waits to be taken.
    queued: usize,
    /// What belongs to calls that are at work: requests that were given to handlers, metadata, the handlers themselves.
    lent: usize,
    /// The beginning of a frame, and what is not read yet.
    partial: usize,
    is_over: bool,
    /// What the worker was told.
    payload: Option<Charge>,
    reassembly: Option<Charge>,
}

impl Held {
    pub(super) fn new(limit: u64) -> Self {
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        Self { limit, queued: 0, lent: 0, partial: 0, is_over: false, payload: None, reassembly: None }
    }

    /// Bytes of messages, metadata and calls.
    pub(crate) const fn bytes(&self) -> usize {
        self.queued + self.lent
    }

    /// Read no more.
    #[inline]
    pub(super) const fn is_over(&self) -> bool {
        self.is_over
    }

    #[inline]
    pub(super) fn queue(&mut self, bytes: u32) {
        self.queued += bytes as usize;
        self.grown();
    }

    #[inline]
    pub(super) fn unqueue(&mut self, bytes: u32) {
        self.queued -= bytes as usize;
        self.shrunk();
    }

    #[inline]
    pub(super) fn lend(&mut self, bytes: u32) {
        self.lent += bytes as usize;
        self.grown();
    }

    #[inline]
    pub(super) fn unlend(&mut self, bytes: u32) {
        self.lent -= bytes as usize;
        self.shrunk();
    }

    #[inline]
    fn grown(&mut self) {
        // A partial frame counts, but it alone stops nothing: nobody could take it.
        self.is_over |= self.bytes() + self.partial > self.limit;
    }

    #[inline]
    fn shrunk(&mut self) {
        if self.is_over {
            self.is_over = !self.may_go_on();
        }
    }

    /// Consumers have taken half of what there may be, or all there is.
    fn may_go_on(&self) -> bool {
        let is_low = self.queued <= self.limit / 2 && self.bytes() + self.partial <= self.limit;
        is_low || self.bytes() == 0
    }

    /// Tells the worker. Once for many messages.
    #[inline]
    pub(super) fn settle(&mut self, connection: Option<&Connection>) {
        let bytes = self.bytes();
        match &mut self.payload {
            Some(charge) => charge.set(bytes),
            None if bytes == 0 => {}
            empty => *empty = connection.map(|connection| connection.charge(MemoryKind::Payload, bytes)),
        }
    }

    /// Memory of what has arrived and is not read.
    #[inline]
    pub(super) fn set_partial(&mut self, connection: &Connection, bytes: usize) {
        if bytes == self.partial {
            return;
        }
        self.partial = bytes;
        self.shrunk();
        match &mut self.reassembly {
            Some(charge) => charge.set(bytes),
            empty => *empty = Some(connection.charge(MemoryKind::Reassembly, bytes)),
        }
    }

    /// The connection is gone, and with it what was not read.
    pub(super) fn drop_partial(&mut self) {
        (self.partial, self.reassembly) = (0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_stops_over_the_limit_and_goes_on_at_half_of_it() {
        let mut held = Held::new(100);
        held.queue(60);
        held.queue(40);
        assert!(!held.is_over());
        held.queue(1);
        assert!(held.is_over());
        held.unqueue(50);
        assert!(held.is_over(), "51 is not half of it");
        held.unqueue(1);
        assert!(!held.is_over());
    }

    #[test]
    fn what_handlers_hold_counts_and_does_not_stop_reading_for_good() {
        let mut held = Held::new(100);
        held.lend(80);
        held.queue(30);
        assert!(held.is_over());
        held.unqueue(30);
        assert!(!held.is_over(), "80 may stay for long");
        held.lend(21);
        assert!(held.is_over());
        held.unlend(1);
        assert!(!held.is_over());
    }

    #[test]
    fn a_frame_that_is_longer_than_the_limit_stops_nothing_by_itself() {
        let mut held = Held::new(100);
        held.partial = 1_000;
        held.queue(1);
        assert!(held.is_over(), "with something that can be taken it does");
        held.unqueue(1);
        assert!(!held.is_over());
    }
}
