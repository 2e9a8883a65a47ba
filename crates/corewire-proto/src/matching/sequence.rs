use super::{CallKey, Matched};

/// The most numbers that can be held at once; slots are counted in 16 bits.
pub(super) const MAX_SLOTS: usize = 32_768;

/// Calls whose replies carry the request's number.
///
/// Each number has a slot of its own, as long as there are no more than [`MAX_SLOTS`] numbers; of more, those
/// that are equal in their low bits share one, and it holds one of them at a time. A slot is only an index into
/// `entries`, which is as long as the most calls that were ever held together: with one call at a time, one
/// entry stays hot whatever the number is.
#[derive(Debug)]
pub(super) struct SequenceTable<T> {
    /// For each slot, the entry that holds it, or [`FREE`]. Empty until the first call.
    slots: Box<[u16]>,
    /// A bit per slot, set while it is held: finds the next free one when many are held.
    held_bits: Box<[u64]>,
    entries: Vec<Entry<T>>,
    /// The first of the entries that are not in use; they are chained by `next_unused`.
    unused: u16,
    held: usize,
    abandoned: usize,
    limit: usize,
    slot_count: u32,
    /// The bits of a number that tell its slot.
    slot_mask: u32,
    /// How many numbers are used: the largest multiple of `slot_count` that the modulus allows.
    numbers: u32,
    /// The number tried first for the next call.
    next_number: u32,
    next_ticket: u64,
}

#[derive(Debug)]
struct Entry<T> {
    ticket: u64,
    number: u32,
    next_unused: u16,
    /// Abandoned before the last [`SequenceTable::age`].
    is_old: bool,
    /// `None`: abandoned (or not in use).
    value: Option<T>,
}

/// No entry.
const FREE: u16 = u16::MAX;

impl<T> SequenceTable<T> {
    pub(super) fn new(modulus: u32, limit: usize) -> Self {
        let wanted = limit.min(MAX_SLOTS).next_power_of_two() as u32;
        let slot_count = if modulus as usize <= MAX_SLOTS { modulus } else { wanted };
        Self {
            slots: Box::default(),
            held_bits: Box::default(),
            entries: Vec::new(),
            unused: FREE,
            held: 0,
            abandoned: 0,
            limit: limit.min(slot_count as usize),
            slot_count,
            slot_mask: slot_count.next_power_of_two() - 1,
            numbers: if slot_count == 0 { 0 } else { modulus - modulus % slot_count },
            next_number: FIRST_NUMBER,
            next_ticket: 0,
        }
    }

    #[inline]
    pub(super) fn begin(&mut self, value: T) -> Result<CallKey, T> {
        if self.held >= self.limit {
            return Err(value);
        }
        if self.slots.is_empty() {
            self.allocate();
        }
        let number = self.free_number();
        let key = CallKey { ticket: self.next_ticket, number };
        self.next_ticket += 1;
        self.next_number = number.wrapping_add(1);
        let slot = self.slot(number);
        self.slots[slot] = self.take_entry(key, value);
        self.held_bits[slot / 64] |= 1 << (slot % 64);
        self.held += 1;
        Ok(key)
    }

    #[inline]
    pub(super) fn complete(&mut self, number: u32) -> Matched<T> {
        let Some(entry) = self.entry_of(number) else { return Matched::Unknown };
        match self.release(entry) {
            Some(value) => Matched::Call(value),
            None => {
                self.abandoned -= 1;
                Matched::Late
            }
        }
    }

    #[inline]
    pub(super) fn abandon(&mut self, key: CallKey) -> Option<T> {
        let entry = self.entry_under(key)?;
        let value = self.entries[entry].value.take()?;
        self.abandoned += 1;
        Some(value)
    }

    pub(super) fn abandon_if(&mut self, mut over: impl FnMut(&T) -> bool, mut ended: impl FnMut(T)) {
        for entry in &mut self.entries {
            if let Some(value) = entry.value.take_if(|value| over(value)) {
                self.abandoned += 1;
                ended(value);
            }
        }
    }

    pub(super) fn age(&mut self) -> usize {
        let held = |entry: &u16| *entry != FREE;
        let abandoned: Vec<usize> = self.slots.iter().copied().filter(held).map(usize::from).collect();
        let mut freed = 0;
        for entry in abandoned {
            if self.entries[entry].value.is_some() {
                continue;
            }
            if !std::mem::replace(&mut self.entries[entry].is_old, true) {
                continue;
            }
            self.release(entry);
            self.abandoned -= 1;
            freed += 1;
        }
        freed
    }

    pub(super) fn withdraw(&mut self, key: CallKey) -> Option<T> {
        let entry = self.entry_under(key)?;
        // An abandoned call keeps its number: its request was sent.
        self.entries[entry].value.as_ref()?;
        self.release(entry)
    }

    #[inline]
    pub(super) fn get(&self, key: CallKey) -> Option<&T> {
        self.entries[self.entry_under(key)?].value.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: CallKey) -> Option<&mut T> {
        let entry = self.entry_under(key)?;
        self.entries[entry].value.as_mut()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut T)> {
        self.entries.iter_mut().filter_map(|entry| {
            let key = CallKey { ticket: entry.ticket, number: entry.number };
            Some((key, entry.value.as_mut()?))
        })
    }

    pub(super) fn drain(&mut self) -> impl Iterator<Item = T> {
        self.slots.fill(FREE);
        self.held_bits.fill(0);
        self.unused = FREE;
        self.held = 0;
        self.abandoned = 0;
        self.next_number = FIRST_NUMBER;
        self.entries.drain(..).filter_map(|entry| entry.value)
    }

    pub(super) const fn abandoned(&self) -> usize {
        self.abandoned
    }

    pub(super) const fn held(&self) -> usize {
        self.held
    }

    pub(super) const fn capacity(&self) -> usize {
        self.limit
    }
}

const FIRST_NUMBER: u32 = 1;

impl<T> SequenceTable<T> {
    #[cold]
    fn allocate(&mut self) {
        let slots = self.slot_count as usize;
        self.slots = vec![FREE; slots].into_boxed_slice();
        self.held_bits = vec![0; slots.div_ceil(64)].into_boxed_slice();
    }

    #[inline]
    fn slot(&self, number: u32) -> usize {
        (number & self.slot_mask) as usize
    }

    /// The next number whose slot is free; there is one, for fewer slots are held than there are.
    #[inline]
    fn free_number(&self) -> u32 {
        let number = if self.next_number < self.numbers { self.next_number } else { 0 };
        let slot = self.slot(number);
        if self.slots[slot] == FREE { number } else { self.next_free_number(number, slot) }
    }

    #[cold]
    fn next_free_number(&self, number: u32, slot: usize) -> u32 {
        let free = self.first_free_slot(slot).or_else(|| self.first_free_slot(0)).unwrap_or(slot);
        let slots = self.slot_count as usize;
        let step = (free + slots - slot) % slots;
        // Below twice the modulus, which may be near the end of 32 bits.
        ((u64::from(number) + step as u64) % u64::from(self.numbers)) as u32
    }

    fn first_free_slot(&self, from: usize) -> Option<usize> {
        let mut below = (1u64 << (from % 64)) - 1;
        for (word, bits) in self.held_bits.iter().enumerate().skip(from / 64) {
            let taken = bits | below;
            below = 0;
            if taken != u64::MAX {
                let slot = word * 64 + taken.trailing_ones() as usize;
                return (slot < self.slots.len()).then_some(slot);
            }
        }
        None
    }

    #[inline]
    fn take_entry(&mut self, key: CallKey, value: T) -> u16 {
        let CallKey { ticket, number } = key;
        let entry = Entry { ticket, number, next_unused: FREE, is_old: false, value: Some(value) };
        let at = self.unused;
        match self.entries.get_mut(usize::from(at)) {
            Some(unused) => {
                self.unused = unused.next_unused;
                *unused = entry;
                at
            }
            None => {
                self.entries.push(entry);
                (self.entries.len() - 1) as u16
            }
        }
    }

    /// Gives the entry and its slot free.
    #[inline]
    fn release(&mut self, entry: usize) -> Option<T> {
        let slot = self.slot(self.entries[entry].number);
        self.slots[slot] = FREE;
        self.held_bits[slot / 64] &= !(1 << (slot % 64));
        self.held -= 1;
        self.entries[entry].next_unused = self.unused;
        self.unused = entry as u16;
        self.entries[entry].value.take()
    }

    /// The entry that holds this number.
    #[inline]
    fn entry_of(&self, number: u32) -> Option<usize> {
        if number >= self.numbers || self.slots.is_empty() {
            return None;
        }
        let entry = usize::from(self.slots[self.slot(number)]);
        (self.entries.get(entry)?.number == number).then_some(entry)
    }

    /// The entry of this very call, while it holds its number.
    #[inline]
    fn entry_under(&self, key: CallKey) -> Option<usize> {
        let entry = self.entry_of(key.number)?;
        (self.entries[entry].ticket == key.ticket).then_some(entry)
    }
}
