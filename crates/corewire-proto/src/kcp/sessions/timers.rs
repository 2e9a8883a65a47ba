//! One timer for each of many sessions, in a heap whose outdated entries are thrown away when they come up.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

#[derive(Debug)]
pub(super) struct Timers<T> {
    heap: BinaryHeap<Reverse<(u64, u32, T)>>,
    /// The entry that counts, by index; the others of that index are outdated.
    current: Vec<Option<(u64, T)>>,
}

/// Outdated entries are swept when there are more than this many per index.
const OUTDATED_SHARE: usize = 4;

impl<T> Default for Timers<T>
where
    T: Ord,
{
    fn default() -> Self {
        Self { heap: BinaryHeap::new(), current: Vec::new() }
    }
}

impl<T: Copy + Ord> Timers<T> {
    /// Has `value` come up at `at`, in place of what was set for `index` before.
    pub(super) fn set(&mut self, index: u32, at: u64, value: T) {
        let slot = index as usize;
        if slot >= self.current.len() {
            self.current.resize(slot + 1, None);
        }
        if self.current[slot] == Some((at, value)) {
            return;
        }
        self.current[slot] = Some((at, value));
        self.heap.push(Reverse((at, index, value)));
        if self.heap.len() > OUTDATED_SHARE * self.current.len() + 64 {
            let current = &self.current;
            self.heap.retain(|Reverse((at, index, value))| current[*index as usize] == Some((*at, *value)));
        }
    }

    pub(super) fn clear(&mut self, index: u32) {
        if let Some(current) = self.current.get_mut(index as usize) {
            *current = None;
        }
    }

    /// Throws away outdated entries at the top, so that [`next_at`](Self::next_at) is exact.
    pub(super) fn sweep_top(&mut self) {
        while let Some(Reverse((at, index, value))) = self.heap.peek()
            && self.current[*index as usize] != Some((*at, *value))
        {
            self.heap.pop();
        }
    }

    /// The earliest time at which something may come up.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, ..))| *at)
    }

    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        while self.next_at()? <= now {
            let Reverse((at, index, value)) = self.heap.pop()?;
            let current = &mut self.current[index as usize];
            if *current == Some((at, value)) {
                *current = None;
                return Some(value);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_setting_counts() {
        let mut timers = Timers::default();
        timers.set(0, 100, 'a');
        timers.set(1, 50, 'b');
        timers.set(0, 20, 'a');
        timers.set(1, 70, 'b');
        timers.clear(2);
        timers.sweep_top();
        assert_eq!((timers.next_at(), timers.pop_due(19)), (Some(20), None));
        assert_eq!(timers.pop_due(100), Some('a'));
        assert_eq!(timers.pop_due(100), Some('b'));
        assert_eq!(timers.pop_due(1000), None);
    }

    #[test]
    fn the_timer_of_a_new_owner_is_not_taken_for_that_of_the_old_one() {
        let mut timers = Timers::default();
        timers.set(0, 100, 'a');
        timers.clear(0);
        timers.set(0, 100, 'b');
        assert_eq!(timers.pop_due(100), Some('b'));
        assert_eq!(timers.pop_due(100), None);
    }

    #[test]
    fn outdated_entries_do_not_pile_up() {
        let mut timers = Timers::default();
        (0..100_000).for_each(|at| timers.set(0, 1_000_000 - at, 'a'));
        assert!(timers.heap.len() <= 70);
        assert_eq!(timers.pop_due(2_000_000), Some('a'));
        assert_eq!(timers.pop_due(2_000_000), None);
    }
}
