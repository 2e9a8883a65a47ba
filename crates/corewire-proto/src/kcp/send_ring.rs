//! Segments from the oldest unacknowledged one to the last one queued, in one ring indexed by number.

use bytes::Bytes;

use super::congestion::{Delivered, Stamp};
use super::pool::Pool;
use super::wire::distance;

#[derive(Debug, Default)]
pub(super) enum Payload {
    #[default]
    Empty,
    Pooled(Vec<u8>),
    Shared(Bytes),
}

impl Payload {
    #[inline]
    pub(super) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Empty => &[],
            Self::Pooled(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) payload: Payload,
    pub(super) fragment: u8,
    pub(super) acknowledged: bool,
    /// How many later segments have been acknowledged since this one was last sent.
    pub(super) overtaken: u32,
    /// How often it was sent.
    pub(super) transmissions: u32,
    /// How often it was sent since the peer has acknowledged anything.
    pub(super) in_vain: u32,
    pub(super) rto_ms: u32,
    pub(super) sent_at: u64,
    pub(super) resend_at: u64,
    /// How many transmissions of any segment there were before its last one.
    pub(super) order: u64,
    pub(super) stamp: Stamp,
    /// The datagram (by count) whose acknowledgement took it.
    acknowledged_by: u64,
}

/// A segment was acknowledged by name.
#[derive(Debug, Clone, Copy)]
pub(super) struct Acknowledged {
    pub(super) order: Option<u64>,
}

/// Numbers: `first` ≤ `next` ≤ `end`; in flight are `first..next`, waiting are `next..end`.
#[derive(Debug)]
pub(super) struct SendRing {
    slots: Vec<Outgoing>,
    mask: usize,
    first: u32,
    next: u32,
    end: u32,
    queue_max: usize,
}

const LEAST_SLOTS: usize = 8;

impl SendRing {
    pub(super) const fn new(queue_max: usize, first: u32) -> Self {
        Self { slots: Vec::new(), mask: 0, first, next: first, end: first, queue_max }
    }

    /// The oldest number that is not acknowledged.
    #[inline]
    pub(super) const fn first(&self) -> u32 {
        self.first
    }

    /// The first number that was never sent.
    #[inline]
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    pub(super) const fn in_flight(&self) -> u32 {
        self.next.wrapping_sub(self.first)
    }

    #[inline]
    pub(super) const fn len(&self) -> usize {
        self.end.wrapping_sub(self.first) as usize
    }

    #[inline]
    pub(super) const fn has_unsent(&self) -> bool {
        self.next != self.end
    }

    #[inline]
    pub(super) const fn free(&self) -> usize {
        self.queue_max.saturating_sub(self.len())
    }

    /// A number that is in flight or was, and so may be acknowledged.
    #[inline]
    pub(super) const fn is_sent(&self, number: u32) -> bool {
        distance(number, self.next) < 0
    }

    #[inline]
    pub(super) fn slot(&mut self, number: u32) -> &mut Outgoing {
        &mut self.slots[number as usize & self.mask]
    }

    /// Queues a segment; the caller has made sure that there is room.
    #[inline]
    pub(super) fn push(&mut self, payload: Payload, fragment: u8) {
        if self.len() == self.slots.len() {
            self.grow();
        }
        let number = self.end;
        // Field by field: assembling a whole slot first and moving it costs more than all the rest of a send.
        let slot = self.slot(number);
        slot.payload = payload;
        slot.fragment = fragment;
        slot.acknowledged = false;
        slot.overtaken = 0;
        slot.transmissions = 0;
        slot.in_vain = 0;
        self.end = self.end.wrapping_add(1);
    }

    /// The last segment queued, if it was not sent yet and owns its buffer.
    pub(super) fn unsent_tail(&mut self) -> Option<&mut Vec<u8>> {
        if !self.has_unsent() {
            return None;
        }
        let last = self.end.wrapping_sub(1);
        match &mut self.slot(last).payload {
            Payload::Pooled(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Moves the next waiting segment into flight and gives its number.
    #[inline]
    pub(super) const fn launch(&mut self) -> u32 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// The peer has everything before `number`. What that acknowledges for the first time is added to `delivered`;
    /// a number outside of what is in flight acknowledges nothing.
    #[inline]
    pub(super) fn acknowledge_before(&mut self, number: u32, delivered: &mut Delivered, pool: &mut Pool) {
        if number.wrapping_sub(self.first) > self.in_flight() {
            return;
        }
        while self.first != number {
            let first = self.first;
            let slot = self.slot(first);
            if !slot.acknowledged {
                delivered.add(slot);
                reclaim(slot, pool);
            }
            self.first = first.wrapping_add(1);
        }
    }

    /// The peer has segment `number`. When that is news it is added to `delivered`, and the place of its last
    /// transmission in the order of all is returned, if the peer answers that one. `datagram` tells the datagrams of
    /// the peer apart.
    #[inline]
    pub(super) fn acknowledge(
        &mut self,
        number: u32,
        echoed_ms: u32,
        datagram: u64,
        delivered: &mut Delivered,
        pool: &mut Pool,
    ) -> Option<Acknowledged> {
        if number.wrapping_sub(self.first) >= self.in_flight() {
            return None;
        }
        let slot = self.slot(number);
        if slot.acknowledged {
            return None;
        }
        slot.acknowledged = true;
        slot.acknowledged_by = datagram;
        let order = (slot.sent_at as u32 == echoed_ms).then_some(slot.order);
        delivered.add(slot);
        reclaim(slot, pool);
        while self.first != self.next {
            let first = self.first;
            if !self.slot(first).acknowledged {
                break;
            }
            self.first = first.wrapping_add(1);
        }
        Some(Acknowledged { order })
    }

    /// Counts, for each segment still missing, the later ones that this datagram acknowledged. One that was sent after
    /// the last of these (`order`) is not overtaken by them. True when one is overtaken `threshold` times.
    pub(super) fn count_overtaken(&mut self, newest: u32, datagram: u64, order: u64, threshold: u32) -> bool {
        let mut later = 0;
        let mut any_due = false;
        let mut number = newest;
        while distance(number, self.first) >= 0 {
            let slot = self.slot(number);
            if slot.acknowledged {
                later += u32::from(slot.acknowledged_by == datagram);
            } else if slot.order < order {
                slot.overtaken = slot.overtaken.saturating_add(later);
                any_due |= slot.overtaken >= threshold;
            }
            number = number.wrapping_sub(1);
        }
        any_due
    }

    /// Has everything in flight time out.
    pub(super) fn time_out_all(&mut self, now: u64) {
        let mut number = self.first;
        while number != self.next {
            let slot = self.slot(number);
            slot.resend_at = slot.resend_at.min(now);
            number = number.wrapping_add(1);
        }
    }

    /// Gives back the memory of an empty ring.
    pub(super) fn release(&mut self) {
        if self.len() == 0 {
            self.slots = Vec::new();
            self.mask = 0;
        }
    }

    /// Throws away everything that is queued and in flight.
    pub(super) fn clear(&mut self) {
        self.first = self.end;
        self.next = self.end;
        self.release();
    }

    pub(super) fn memory(&self) -> usize {
        let payload = |slot: &Outgoing| match &slot.payload {
            Payload::Empty => 0,
            Payload::Pooled(buffer) => buffer.capacity(),
            Payload::Shared(bytes) => bytes.len(),
        };
        self.slots.capacity() * size_of::<Outgoing>() + self.slots.iter().map(payload).sum::<usize>()
    }

    fn grow(&mut self) {
        let slots = (self.slots.len() * 2).max(LEAST_SLOTS);
        let old_mask = self.mask;
        let mut old = std::mem::replace(&mut self.slots, Vec::with_capacity(slots));
        self.slots.resize_with(slots, Outgoing::default);
        self.mask = slots - 1;
        let mut number = self.first;
        while number != self.end {
            *self.slot(number) = std::mem::take(&mut old[number as usize & old_mask]);
            number = number.wrapping_add(1);
        }
    }
}

#[inline]
fn reclaim(slot: &mut Outgoing, pool: &mut Pool) {
    if let Payload::Pooled(buffer) = std::mem::take(&mut slot.payload) {
        pool.give(buffer);
    }
}
