//! Segments from the oldest unread one to the farthest that came ahead of its turn, in one ring indexed by number.

use super::pool::Pool;

#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) data: Vec<u8>,
    pub(super) fragment: u8,
    present: bool,
}

/// What became of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Inserted {
    /// It came in its turn: everything up to it is here.
    InTurn,
    /// It came ahead of its turn and is kept.
    Ahead,
    /// It is here already.
    Duplicate,
    /// Its number lies outside of the window.
    Outside,
}

/// Numbers: `head..next` are here without a gap and wait to be read (at most `window` of them); up to `window`
/// more may be kept ahead of their turn.
#[derive(Debug)]
pub(super) struct ReceiveRing {
    slots: Vec<Incoming>,
    mask: usize,
    head: u32,
    next: u32,
    window: u32,
    window_max: u32,
    /// Segments received since the window grew, while nothing was left unread.
    read_since_growth: u32,
    /// Whole messages in `head..next`.
    complete: usize,
    /// Fragments at the end of `head..next` that belong to a message that is not whole.
    partial: usize,
    /// Bytes of the buffers of all segments that are here.
    held: usize,
}

const LEAST_SLOTS: usize = 8;
/// A duplicate this far back is answered (the acknowledgement was lost); one before that is nonsense.
const DUPLICATES_BACK: u32 = 65_536;

impl ReceiveRing {
    pub(super) const fn new(window: u16, window_max: u16, first: u32) -> Self {
        Self {
            slots: Vec::new(),
            mask: 0,
            head: first,
            next: first,
            window: window as u32,
            window_max: window_max as u32,
            read_since_growth: 0,
            complete: 0,
            partial: 0,
            held: 0,
        }
    }

    /// The first number that is missing.
    #[inline]
    pub(super) const fn next(&self) -> u32 {
        self.next
    }

    #[inline]
    pub(super) const fn unread(&self) -> u32 {
        self.next.wrapping_sub(self.head)
    }

    /// How many more segments can be taken: what every header tells the peer.
    #[inline]
    pub(super) const fn free_window(&self) -> u16 {
        self.window.saturating_sub(self.unread()) as u16
    }

    #[inline]
    pub(super) const fn has_message(&self) -> bool {
        self.complete > 0
    }

    /// Fragments of the message at the end that is not whole yet.
    #[inline]
    pub(super) const fn partial(&self) -> usize {
        self.partial
    }

    /// The window is full of one message that cannot become whole.
    #[inline]
    pub(super) const fn is_stuck(&self) -> bool {
        self.complete == 0 && self.unread() >= self.window
    }

    /// Bytes held once segment `number` with `len` bytes of data is kept too; nothing more if it is not new.
    pub(super) fn held_with(&self, number: u32, len: usize) -> usize {
        let slots = number.wrapping_sub(self.head) as usize + 1;
        if number.wrapping_sub(self.next) >= self.window {
            return 0;
        }
        self.held + len + slots.max(self.slots.len()) * size_of::<Incoming>()
    }

    #[inline]
    pub(super) fn insert(&mut self, number: u32, fragment: u8, data: &[u8], pool: &mut Pool) -> Inserted {
        let ahead = number.wrapping_sub(self.next);
        if ahead >= self.window {
            let behind = self.next.wrapping_sub(number);
            return if behind <= DUPLICATES_BACK { Inserted::Duplicate } else { Inserted::Outside };
        }
        self.grow_window(ahead);
        let needed = number.wrapping_sub(self.head) as usize + 1;
        if needed > self.slots.len() {
            self.grow(needed);
        }
        let slot = &mut self.slots[number as usize & self.mask];
        if slot.present {
            return Inserted::Duplicate;
        }
        let mut buffer = pool.take(data.len());
        buffer.extend_from_slice(data);
        self.held += buffer.capacity();
        *slot = Incoming { data: buffer, fragment, present: true };
        if ahead > 0 {
            return Inserted::Ahead;
        }
        self.advance();
        Inserted::InTurn
    }

    /// Doubles the window when the peer has come near its end, and a whole window was read since it grew last.
    #[inline]
    fn grow_window(&mut self, ahead: u32) {
        if ahead >= self.window / 2 && self.read_since_growth >= self.window && self.window < self.window_max
        {
            self.window = (self.window * 2).min(self.window_max);
            self.read_since_growth = 0;
        }
    }

    /// Segment `number` comes in its turn, and nothing that came before it waits to be read.
    #[inline]
    pub(super) const fn is_awaited(&self, number: u32) -> bool {
        number == self.next && self.head == self.next
    }

    /// Counts the awaited segment as received and read.
    #[inline]
    pub(super) fn pass_over(&mut self) {
        self.head = self.head.wrapping_add(1);
        self.next = self.head;
        self.read_since_growth = self.read_since_growth.saturating_add(1);
        self.advance();
    }

    /// The oldest unread segment, if it is here.
    #[inline]
    pub(super) fn front(&self) -> Option<&Incoming> {
        (self.head != self.next).then(|| &self.slots[self.head as usize & self.mask])
    }

    /// The unread segments of the first whole message, in order; `None` when no message is whole.
    pub(super) fn message(&self) -> Option<impl Iterator<Item = &Incoming>> {
        if self.complete == 0 {
            return None;
        }
        let mut number = self.head;
        let mut is_last = false;
        Some(std::iter::from_fn(move || {
            if is_last {
                return None;
            }
            let slot = &self.slots[number as usize & self.mask];
            number = number.wrapping_add(1);
            is_last = slot.fragment == 0;
            Some(slot)
        }))
    }

    /// Takes the oldest unread segment.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<Incoming> {
        if self.head == self.next {
            return None;
        }
        let segment = std::mem::take(&mut self.slots[self.head as usize & self.mask]);
        self.held -= segment.data.capacity();
        self.head = self.head.wrapping_add(1);
        self.read_since_growth = self.read_since_growth.saturating_add(1);
        if segment.fragment == 0 {
            self.complete -= 1;
        } else if self.complete == 0 {
            self.partial -= 1;
        }
        self.advance();
        Some(segment)
    }

    /// Gives back the memory of a ring that holds nothing.
    pub(super) fn release(&mut self) {
        if self.slots.iter().all(|slot| !slot.present) {
            self.slots = Vec::new();
            self.mask = 0;
        }
    }

    pub(super) fn memory(&self) -> usize {
        let data: usize = self.slots.iter().map(|slot| slot.data.capacity()).sum();
        self.slots.capacity() * size_of::<Incoming>() + data
    }

    /// Steps over what is here without a gap, as far as the window of unread segments allows.
    #[inline]
    fn advance(&mut self) {
        while self.unread() < self.window && (self.unread() as usize) < self.slots.len() {
            let slot = &self.slots[self.next as usize & self.mask];
            if !slot.present {
                break;
            }
            if slot.fragment == 0 {
                self.complete += 1;
                self.partial = 0;
            } else {
                self.partial += 1;
            }
            self.next = self.next.wrapping_add(1);
        }
    }

    fn grow(&mut self, needed: usize) {
        let slots = needed.next_power_of_two().max(LEAST_SLOTS);
        let old_len = self.slots.len();
        let old_mask = self.mask;
        let mut old = std::mem::replace(&mut self.slots, Vec::with_capacity(slots));
        self.slots.resize_with(slots, Incoming::default);
        self.mask = slots - 1;
        for offset in 0..old_len as u32 {
            let number = self.head.wrapping_add(offset);
            self.slots[number as usize & self.mask] = std::mem::take(&mut old[number as usize & old_mask]);
        }
    }
}
