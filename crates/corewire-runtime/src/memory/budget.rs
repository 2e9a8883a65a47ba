//! The limit of a runtime, and each worker's part of it.

use std::cell::{Cell, RefCell, RefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::MemoryKind;
use super::holders::Holders;
use crate::conn::ConnId;

/// What the workers of a runtime may hold together.
#[derive(Debug)]
pub(crate) struct SharedBudget {
    limit: usize,
    workers: usize,
    /// What the workers have leased, a little more than they hold.
    leased: AtomicUsize,
}

impl SharedBudget {
    /// `limit` in bytes, for this many workers.
    pub(crate) fn new(limit: usize, workers: usize) -> Arc<Self> {
        Arc::new(Self { limit, workers: workers.max(1), leased: AtomicUsize::new(0) })
    }

    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn leased(&self) -> usize {
        self.leased.load(Ordering::Relaxed)
    }

    pub(crate) fn is_short(&self) -> bool {
        Budget::level(self.leased(), self.limit) >= Pressure::High
    }
}

/// What one worker holds, by kind. Nothing is refused here: what is charged is held already. At the limit the worker
/// makes room (see `policy`).
#[derive(Debug)]
pub(crate) struct Budget {
    shared: Arc<SharedBudget>,
    leased: Cell<usize>,
    held: Cell<usize>,
    kinds: [Cell<usize>; MemoryKind::COUNT],
    /// The connections that hold it.
    holders: RefCell<Holders<ConnId>>,
}

/// How near to its limit a worker is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Pressure {
    /// Below three quarters: what is paused goes on.
    Low,
    /// Between the marks: all stays as it is.
    Kept,
    /// Over seven eighths: the largest are paused and new connections refused.
    High,
    /// Over the limit: the largest is closed.
    Over,
}

/// Bytes held that are too much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Excess {
    /// Over the low mark.
    pub(crate) over_low: usize,
    /// Over the limit.
    pub(crate) over_limit: usize,
}

impl Budget {
    /// Bytes leased at once: the atomic is touched once for so many bytes.
    const LEASE: usize = 64 * 1024;

    pub(crate) fn new(shared: Arc<SharedBudget>) -> Self {
        Self {
            shared,
            leased: Cell::new(0),
            held: Cell::new(0),
            kinds: std::array::from_fn(|_| Cell::new(0)),
            holders: RefCell::new(Holders::new()),
        }
    }

    pub(crate) fn holders(&self) -> RefMut<'_, Holders<ConnId>> {
        self.holders.borrow_mut()
    }

    pub(crate) fn is_of(&self, shared: &Arc<SharedBudget>) -> bool {
        Arc::ptr_eq(&self.shared, shared)
    }

    /// Bytes that this worker holds.
    pub(crate) fn held(&self) -> usize {
        self.held.get()
    }

    /// Bytes that this worker holds of a kind.
    pub(crate) fn held_of(&self, kind: MemoryKind) -> usize {
        self.kinds[kind as usize].get()
    }

    /// The runtime's limit in bytes.
    pub(crate) fn limit(&self) -> usize {
        self.shared.limit
    }

    /// This worker's part of the limit: one that holds no more closes none of its connections.
    pub(crate) fn part(&self) -> usize {
        self.shared.limit / self.shared.workers
    }

    #[inline]
    pub(crate) fn charge(&self, kind: MemoryKind, bytes: usize) {
        let of_kind = &self.kinds[kind as usize];
        of_kind.set(of_kind.get() + bytes);
        self.held.set(self.held.get() + bytes);
        if self.held.get() > self.leased.get() {
            self.lease();
        }
    }

    #[inline]
    pub(crate) fn release(&self, kind: MemoryKind, bytes: usize) {
        let of_kind = &self.kinds[kind as usize];
        debug_assert!(of_kind.get() >= bytes, "{bytes} bytes of {kind:?} released, {} held", of_kind.get());
        of_kind.set(of_kind.get() - bytes);
        self.held.set(self.held.get() - bytes);
        if self.leased.get() - self.held.get() > 2 * Self::LEASE {
            self.lease();
        }
    }

    /// For a kind that is counted elsewhere: it holds so many bytes now.
    #[inline]
    pub(crate) fn set(&self, kind: MemoryKind, bytes: usize) {
        let before = self.held_of(kind);
        if bytes > before {
            self.charge(kind, bytes - before);
        } else if bytes < before {
            self.release(kind, before - bytes);
        }
    }

    /// Leases what is held, rounded up, and returns what is too much.
    #[cold]
    fn lease(&self) {
        let wanted = self.held.get().next_multiple_of(Self::LEASE);
        let leased = self.leased.replace(wanted);
        if wanted > leased {
            self.shared.leased.fetch_add(wanted - leased, Ordering::Relaxed);
        } else {
            self.shared.leased.fetch_sub(leased - wanted, Ordering::Relaxed);
        }
    }

    /// How near the limit is. All workers together have it, but only those that hold more than their part make room:
    /// one that holds little does not close its connections because another holds much.
    pub(crate) fn pressure(&self) -> Pressure {
        let together = self.shared.leased();
        let of_workers = Self::level(together, self.shared.limit);
        let own = Self::level(self.held.get(), self.part());
        own.min(of_workers)
    }

    fn level(held: usize, limit: usize) -> Pressure {
        match held {
            _ if held > limit => Pressure::Over,
            _ if held > limit - limit / 8 => Pressure::High,
            _ if held > Self::low_mark(limit) => Pressure::Kept,
            _ => Pressure::Low,
        }
    }

    const fn low_mark(limit: usize) -> usize {
        limit - limit / 4
    }

    /// Bytes that this worker is to make room for: down to the low mark, and down to the limit.
    pub(crate) fn excess(&self) -> Excess {
        let together = self.shared.leased();
        let (limit, own) = (self.limit(), self.part());
        let beyond = |own_mark, mark| {
            let held = self.held.get().saturating_sub(own_mark);
            held.min(together.saturating_sub(mark))
        };
        Excess {
            over_low: beyond(Self::low_mark(own), Self::low_mark(limit)),
            over_limit: beyond(own, limit),
        }
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        self.shared.leased.fetch_sub(self.leased.get(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: MemoryKind = MemoryKind::Inbox;

    #[test]
    fn what_is_charged_is_counted_by_kind_until_it_is_released() {
        let budget = Budget::new(SharedBudget::new(1 << 20, 1));
        budget.charge(MemoryKind::Inbox, 100);
        budget.charge(MemoryKind::Payload, 7);
        budget.set(MemoryKind::SendQueue, 1000);
        assert_eq!(budget.held(), 1107);
        budget.release(MemoryKind::Inbox, 60);
        budget.set(MemoryKind::SendQueue, 3);
        let by_kind = MemoryKind::ALL.map(|kind| budget.held_of(kind));
        assert_eq!(by_kind, [3, 0, 0, 40, 7, 0]);
        assert_eq!(budget.held(), 50);
    }

    #[test]
    fn the_pressure_rises_with_the_marks() {
        let budget = Budget::new(SharedBudget::new(8 << 20, 1));
        let mut seen = Vec::new();
        for held in [6 << 20, (6 << 20) + 1, 7 << 20, (7 << 20) + 1, 8 << 20, (8 << 20) + 1] {
            budget.set(KIND, held);
            seen.push(budget.pressure());
        }
        use Pressure::{High, Kept, Low, Over};
        assert_eq!(seen, [Low, Kept, Kept, High, High, Over]);
        assert_eq!(budget.excess(), Excess { over_low: (2 << 20) + 1, over_limit: 1 });
    }

    #[test]
    fn a_worker_may_use_what_the_others_leave_and_only_the_greedy_one_makes_room() {
        let shared = SharedBudget::new(16 << 20, 2);
        let (greedy, small) = (Budget::new(shared.clone()), Budget::new(shared));
        greedy.charge(KIND, 11 << 20);
        assert_eq!(greedy.pressure(), Pressure::Low, "the other holds nothing");
        small.charge(KIND, 6 << 20);
        assert_eq!((greedy.pressure(), small.pressure()), (Pressure::Over, Pressure::Low));
        assert_eq!(greedy.excess().over_limit, 1 << 20, "no more than all together are over the limit");
        assert_eq!(small.excess(), Excess { over_low: 0, over_limit: 0 });
        drop(small);
        assert_eq!(greedy.pressure(), Pressure::Low, "a worker that ends gives back what it leased");
    }

    #[test]
    fn the_shared_counter_is_touched_in_steps() {
        let shared = SharedBudget::new(1 << 30, 1);
        let budget = Budget::new(shared.clone());
        let (mut changes, mut last) = (0, 0);
        for _ in 0..64 * 1024 {
            budget.charge(KIND, 16);
            let leased = shared.leased.load(Ordering::Relaxed);
            changes += usize::from(leased != last);
            assert!(leased >= budget.held());
            last = leased;
        }
        assert_eq!(changes, 16, "once for each 64 KiB");
        for _ in 0..1000 {
            budget.charge(KIND, Budget::LEASE);
            budget.release(KIND, Budget::LEASE);
            let leased = shared.leased.load(Ordering::Relaxed);
            changes += usize::from(leased != last);
            last = leased;
        }
        assert_eq!(changes, 17, "not to and fro at the edge of a step");
        budget.release(KIND, 1 << 20);
        assert!(shared.leased.load(Ordering::Relaxed) <= 2 * Budget::LEASE);
    }
}
