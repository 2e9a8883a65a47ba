//! Tasks that wait for one thing.

use std::task::Waker;

/// The wakers of any number of tasks, of which each may wait several times.
///
/// To look for a task each time it waits would take a time that grows with the square of their number. So each wait adds
/// a waker, and those that are there twice are taken out whenever the list has doubled.
#[derive(Debug, Default)]
pub(crate) struct Wakers {
    all: Vec<Waker>,
    /// As many were different when they were last looked at.
    distinct: usize,
}

impl Wakers {
    /// Up to this many are never looked at.
    const FEW: usize = 32;

    /// The task is woken when the others are.
    #[inline]
    pub(crate) fn add(&mut self, waker: &Waker) {
        // Most often it is the one that waited last.
        if self.all.last().is_some_and(|last| last.will_wake(waker)) {
            return;
        }
        if self.all.len() >= 2 * self.distinct.max(Self::FEW) {
            self.remove_doubles();
        }
        self.all.push(waker.clone());
    }

    /// Those that waited until now.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = Waker> + use<> {
        self.distinct = 0;
        std::mem::take(&mut self.all).into_iter()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    #[cold]
    fn remove_doubles(&mut self) {
        self.all
            .sort_unstable_by_key(|waker| (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr()));
        self.all.dedup_by(|one, other| one.will_wake(other));
        self.distinct = self.all.len();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn ten_thousand_tasks_that_wait_again_and_again_take_a_bounded_list() {
        let tasks: Vec<_> = (0..10_000).map(|_| Arc::new(Count(AtomicUsize::new(0)))).collect();
        let wakers: Vec<Waker> = tasks.iter().map(|task| task.clone().into()).collect();
        let mut waiting = Wakers::default();
        for _ in 0..20 {
            wakers.iter().for_each(|waker| waiting.add(waker));
        }
        assert!(waiting.all.len() <= 20_000, "{} wakers", waiting.all.len());
        waiting.take().for_each(Waker::wake);
        assert!(tasks.iter().all(|task| (1..=2).contains(&task.0.load(Ordering::Relaxed))));
        assert!(waiting.is_empty());
    }
}
