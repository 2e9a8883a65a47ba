//! Timers of a worker: a hierarchical wheel of 1 ms, without a clock of its own.

use std::fmt;
use std::num::NonZeroU64;

const SLOT_BITS: u32 = 6;
const SLOTS: usize = 1 << SLOT_BITS;
/// Six bits each: all 64 bits of a deadline, so no deadline is too far.
const LEVELS: usize = u64::BITS.div_ceil(SLOT_BITS) as usize;
/// The list of those whose time has come, behind the lists of the slots.
const DUE: usize = LEVELS * SLOTS;
/// The end of a list.
const NIL: u32 = u32::MAX;
/// How many timers [`TimerWheel::next_expiry`] looks at to tell the millisecond and not only the slot.
const PEEK_MAX: usize = 8;

/// A set of timers, ordered by deadline, for times in milliseconds that the caller gives.
///
/// The wheel reads no clock: times are `u64` milliseconds since a moment that the caller chooses. Time is what
/// the greatest `now_ms` so far says; an earlier one does not turn it back.
///
/// [`insert`](Self::insert) and [`cancel`](Self::cancel) take constant time, and a timer moves at most eleven
/// times before it fires. A cancelled timer leaves nothing behind, so memory follows the greatest number of timers that
/// were alive at once, and nothing is allocated after that has been reached.
///
/// ```
/// use corewire_runtime::timer_wheel::TimerWheel;
///
/// let mut wheel = TimerWheel::new(1_000);
/// wheel.insert(1_250, "call 1 timed out");
/// let call_2 = wheel.insert(1_100, "call 2 timed out");
/// assert_eq!(wheel.cancel(call_2), Some("call 2 timed out"));
///
/// assert_eq!(wheel.next_expiry(), Some(1_250));
/// assert_eq!(wheel.expire(1_249), None);
/// assert_eq!(wheel.expire(1_300), Some("call 1 timed out"));
/// assert_eq!(wheel.expire(1_300), None);
/// assert!(wheel.is_empty());
/// ```
pub struct TimerWheel<T> {
    /// The wheel's time. Every timer outside the due list is later than this, and is on the level of the highest
    /// digit (to the base 64) in which its deadline differs from this, in the slot of that digit.
    elapsed_ms: u64,
    /// Per level, one bit per slot that holds timers.
    occupied: [u64; LEVELS],
    lists: Box<[List]>,
    timers: Vec<Timer<T>>,
    free: u32,
    len: usize,
    next_id: NonZeroU64,
    /// At or before the earliest deadline in the due list; `u64::MAX` while that is empty.
    due_floor_ms: u64,
}

/// Names one timer of one [`TimerWheel`]. It stays harmless after that timer has fired or was cancelled: no later
/// timer gets the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TimerKey {
    index: u32,
    id: NonZeroU64,
}

/// Doubly linked through the timers, so that any of them can leave at once.
#[derive(Clone, Copy)]
struct List {
    head: u32,
    tail: u32,
}

const EMPTY: List = List { head: NIL, tail: NIL };

struct Timer<T> {
    deadline_ms: u64,
    id: NonZeroU64,
    /// The list it is in.
    list: u16,
    prev: u32,
    /// In a vacant place: the next vacant one.
    next: u32,
    /// `None` in a vacant place.
    value: Option<T>,
}

impl<T> TimerWheel<T> {
    /// The most timers that can be alive at once: 4,294,967,295.
    pub const TIMERS_MAX: usize = NIL as usize;

    /// A wheel without timers, whose time is `now_ms`.
    pub fn new(now_ms: u64) -> Self {
        Self {
            elapsed_ms: now_ms,
            occupied: [0; LEVELS],
            lists: vec![EMPTY; DUE + 1].into_boxed_slice(),
            timers: Vec::new(),
            free: NIL,
            len: 0,
            next_id: NonZeroU64::MIN,
            due_floor_ms: u64::MAX,
        }
    }

    /// Adds a timer that fires at `deadline_ms`, or at the next [`expire`](Self::expire) if that has passed.
    ///
    /// # Panics
    ///
    /// When [`TIMERS_MAX`](Self::TIMERS_MAX) timers are alive, which take more than 128 GiB.
    pub fn insert(&mut self, deadline_ms: u64, value: T) -> TimerKey {
        let id = self.next_id;
        self.next_id = id.saturating_add(1);
        let timer = Timer { deadline_ms, id, list: 0, prev: NIL, next: NIL, value: Some(value) };
        let index = if self.free == NIL {
            assert!(self.timers.len() < Self::TIMERS_MAX, "a timer wheel holds {} timers", Self::TIMERS_MAX);
            self.timers.push(timer);
            (self.timers.len() - 1) as u32
        } else {
            let index = self.free;
            let place = &mut self.timers[index as usize];
            self.free = place.next;
            *place = timer;
            index
        };
        self.len += 1;
        self.schedule(index);
        TimerKey { index, id }
    }

    /// Removes a timer that has not fired and hands out its value; `None` if it has fired or was cancelled.
    pub fn cancel(&mut self, key: TimerKey) -> Option<T> {
        let timer = self.timers.get(key.index as usize)?;
        if timer.id != key.id || timer.value.is_none() {
            return None;
        }
        self.remove(key.index)
    }

    /// A time at which to call [`expire`](Self::expire) next; `None` without timers.
    ///
    /// It is never later than the earliest deadline. It is that deadline if it is less than 64 ms away or few
    /// timers are near it; otherwise it may be earlier, and `expire` then comes closer without firing one, at
    /// most ten times per timer.
    pub fn next_expiry(&self) -> Option<u64> {
        if self.lists[DUE].head != NIL {
            return Some(self.due_floor_ms);
        }
        let (level, slot) = self.first_slot()?;
        let start_ms = self.slot_start_ms(level, slot);
        if level == 0 {
            return Some(start_ms);
        }
        let mut earliest_ms = u64::MAX;
        let mut index = self.lists[level * SLOTS + slot].head;
        for _ in 0..PEEK_MAX {
            let timer = &self.timers[index as usize];
            earliest_ms = earliest_ms.min(timer.deadline_ms);
            index = timer.next;
            if index == NIL {
                return Some(earliest_ms);
            }
        }
        Some(start_ms)
    }

    /// Moves the wheel's time to `now_ms` and takes out one timer that is due. To be called until it says `None`.
    ///
    /// Timers come out by deadline, those with the same deadline in the order in which they were added. Timers
    /// may be added and cancelled between two calls; one that is added with a deadline not after `now_ms` fires in
    /// the same round, so a caller that always adds such a one never gets to `None`.
    pub fn expire(&mut self, now_ms: u64) -> Option<T> {
        loop {
            let head = self.lists[DUE].head;
            if head != NIL {
                return self.remove(head);
            }
            let first = self.first_slot().map(|(level, slot)| (level, slot, self.slot_start_ms(level, slot)));
            match first {
                Some((level, slot, start_ms)) if start_ms <= now_ms => {
                    self.elapsed_ms = start_ms;
                    self.cascade(level, slot);
                }
                _ => {
                    // No slot begins up to now, so each timer still differs from now in the digit of its level.
                    self.elapsed_ms = self.elapsed_ms.max(now_ms);
                    return None;
                }
            }
        }
    }

    /// How many timers are alive.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether no timer is alive.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The slot with the earliest timers: levels do not overlap, each is later than those below it.
    fn first_slot(&self) -> Option<(usize, usize)> {
        let level = self.occupied.iter().position(|&slots| slots != 0)?;
        Some((level, self.occupied[level].trailing_zeros() as usize))
    }

    fn slot_start_ms(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * SLOT_BITS;
        // The digits above this level are those of the wheel's time. The top level has none.
        let above = u64::MAX.checked_shl(shift + SLOT_BITS).unwrap_or(0);
        (self.elapsed_ms & above) | (slot as u64) << shift
    }

    /// Spreads a slot, whose start is the wheel's time, over the levels below.
    fn cascade(&mut self, level: usize, slot: usize) {
        let list = level * SLOTS + slot;
        let mut index = self.lists[list].head;
        self.lists[list] = EMPTY;
        self.occupied[level] &= !(1 << slot);
        while index != NIL {
            let next = self.timers[index as usize].next;
            self.schedule(index);
            index = next;
        }
    }

    /// Puts a timer that is in no list at the end of the one that its deadline asks for.
    fn schedule(&mut self, index: u32) {
        let deadline_ms = self.timers[index as usize].deadline_ms;
        let list = if deadline_ms <= self.elapsed_ms {
            self.due_floor_ms = self.due_floor_ms.min(deadline_ms);
            DUE
        } else {
            let level = (deadline_ms ^ self.elapsed_ms).ilog2() / SLOT_BITS;
            let slot = (deadline_ms >> (level * SLOT_BITS)) as usize % SLOTS;
            self.occupied[level as usize] |= 1 << slot;
            level as usize * SLOTS + slot
        };
        let tail = std::mem::replace(&mut self.lists[list].tail, index);
        let timer = &mut self.timers[index as usize];
        timer.list = list as u16;
        timer.prev = tail;
        timer.next = NIL;
        match tail {
            NIL => self.lists[list].head = index,
            tail => self.timers[tail as usize].next = index,
        }
    }

    /// Takes a timer out of its list and frees its place.
    fn remove(&mut self, index: u32) -> Option<T> {
        let timer = &mut self.timers[index as usize];
        let (list, prev, next) = (usize::from(timer.list), timer.prev, timer.next);
        let value = timer.value.take();
        timer.next = std::mem::replace(&mut self.free, index);
        self.len -= 1;
        match prev {
            NIL => self.lists[list].head = next,
            prev => self.timers[prev as usize].next = next,
        }
        match next {
            NIL => self.lists[list].tail = prev,
            next => self.timers[next as usize].prev = prev,
        }
        if self.lists[list].head == NIL {
            if list == DUE {
                self.due_floor_ms = u64::MAX;
            } else {
                self.occupied[list / SLOTS] &= !(1 << (list % SLOTS));
            }
        }
        value
    }
}

impl<T> fmt::Debug for TimerWheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerWheel")
            .field("elapsed_ms", &self.elapsed_ms)
            .field("len", &self.len)
            .field("next_expiry", &self.next_expiry())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "timer_wheel_tests.rs"]
mod tests;
