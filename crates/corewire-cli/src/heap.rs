//! The counting allocator: every byte that the process asks of the heap is counted, so that a benchmark can say
//! how many heap bytes a message costs.
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Adds to the system allocator's work a few relaxed counters.
///
/// Each thread counts in a slot of its own (threads past [`SLOTS`] share), so counting never moves a cache line
/// between cores on the path of a message.
#[derive(Debug)]
pub(crate) struct CountingAllocator;

/// What the heap has been asked for since the process began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct HeapTotals {
    /// Allocations and reallocations.
    pub(crate) calls: u64,
    /// Bytes asked for; a reallocation counts its whole new size.
    pub(crate) bytes: u64,
    /// Bytes asked for and not yet given back.
    pub(crate) live_bytes: u64,
}

/// The sum over all threads.
pub(crate) fn totals() -> HeapTotals {
    let mut sum = HeapTotals::default();
    let mut freed = 0;
    for slot in &SLOT_TABLE {
        sum.calls += slot.calls.load(Ordering::Relaxed);
        sum.bytes += slot.bytes.load(Ordering::Relaxed);
        freed += slot.freed.load(Ordering::Relaxed);
    }
    sum.live_bytes = sum.bytes.saturating_sub(freed);
    sum
}

/// Bytes that this thread has asked for, a reallocation by its whole new size; of a thread past the first [`SLOTS`] also
/// those of others.
pub(crate) fn of_this_thread() -> u64 {
    slot().bytes.load(Ordering::Relaxed)
}

const SLOTS: usize = 64;

#[repr(align(128))]
struct Slot {
    calls: AtomicU64,
    bytes: AtomicU64,
    freed: AtomicU64,
}

static SLOT_TABLE: [Slot; SLOTS] =
    [const { Slot { calls: AtomicU64::new(0), bytes: AtomicU64::new(0), freed: AtomicU64::new(0) } }; SLOTS];
static NEXT_SLOT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    // Const-initialised and without a destructor: reading it never allocates, which an allocator must not do.
    static MY_SLOT: Cell<usize> = const { Cell::new(usize::MAX) };
}

#[inline]
fn slot() -> &'static Slot {
    MY_SLOT.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT_SLOT.fetch_add(1, Ordering::Relaxed) % SLOTS);
        }
        &SLOT_TABLE[mine.get()]
    })
}

#[inline]
fn count_allocated(bytes: usize) {
    let slot = slot();
    slot.calls.fetch_add(1, Ordering::Relaxed);
    slot.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
}

#[inline]
fn count_freed(bytes: usize) {
    slot().freed.fetch_add(bytes as u64, Ordering::Relaxed);
}

// SAFETY: every call is handed to `System` unchanged, which keeps the contract of `GlobalAlloc`; counting neither
// allocates nor unwinds.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: the caller keeps the contract of `alloc`, which is that of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        count_allocated(layout.size());
        // SAFETY: as in `alloc`.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        count_freed(layout.size());
        // SAFETY: `block` came from `System` through this allocator, with this layout.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        count_allocated(new_size);
        count_freed(layout.size());
        // SAFETY: `block` came from `System` through this allocator, with this layout.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_allocation_is_counted_and_its_release_lowers_the_live_bytes() {
        // Other tests allocate at the same time, so the bounds are one-sided and the block is large.
        const BIG: usize = 1 << 30;
        let before = totals();
        let block: Vec<u8> = Vec::with_capacity(BIG);
        let held = totals();
        assert!(held.calls > before.calls);
        assert!(held.bytes - before.bytes >= BIG as u64);
        assert!(held.live_bytes >= BIG as u64);
        drop(block);
        assert!(totals().live_bytes < held.live_bytes);
    }
}
