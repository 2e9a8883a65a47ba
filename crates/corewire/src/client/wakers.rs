//! Wakers shared by the calls of one task.

use std::task::Waker;

use slab::Slab;

/// A task that has many calls in flight gives the same waker to each: it is kept once, and woken once for all replies
/// of a round of tasks. Cloning and waking are atomic operations; a reply does none of them in the common case.
#[derive(Debug, Default)]
pub(super) struct Wakers {
    kept: Slab<Kept>,
    /// The one kept last is likely to be given next.
    last: Option<usize>,
}

#[derive(Debug)]
struct Kept {
    waker: Waker,
    calls: usize,
    /// The round in which it was woken last. No task runs within a round, so waking it again in the same one
    /// would tell it nothing.
    woken_in: Option<u64>,
}

impl Wakers {
    /// Keeps a waker for one call.
    #[inline]
    pub(super) fn keep(&mut self, waker: &Waker) -> usize {
        if let Some(last) = self.last {
            let kept = &mut self.kept[last];
            if kept.waker.will_wake(waker) {
                kept.calls += 1;
                return last;
            }
            if kept.calls == 0 {
                self.kept.remove(last);
            }
        }
        let key = self.kept.insert(Kept { waker: waker.clone(), calls: 1, woken_in: None });
        self.last = Some(key);
        key
    }

    /// Whether this is the waker kept under the key.
    #[inline]
    pub(super) fn is(&self, key: usize, waker: &Waker) -> bool {
        self.kept[key].waker.will_wake(waker)
    }

    /// Wakes; once a round of tasks, if one is given.
    #[inline]
    pub(super) fn wake(&mut self, key: usize, round: Option<u64>) {
        let kept = &mut self.kept[key];
        if round.is_none() || kept.woken_in != round {
            kept.woken_in = round;
            kept.waker.wake_by_ref();
        }
    }

    /// A call needs its waker no more.
    #[inline]
    pub(super) fn release(&mut self, key: usize) {
        let kept = &mut self.kept[key];
        kept.calls -= 1;
        if kept.calls == 0 && self.last != Some(key) {
            self.kept.remove(key);
        }
    }

    /// Forgets the waker that no call needs and that is kept only because it is likely to come again.
    pub(super) fn forget_idle(&mut self) {
        if let Some(last) = self.last
            && self.kept[last].calls == 0
        {
            self.kept.remove(last);
            self.last = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Counting(AtomicUsize);

    impl Wake for Counting {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn calls_of_one_task_share_its_waker_and_wake_it_once_a_round() {
        let count = Arc::new(Counting::default());
        let (waker, mut wakers) = (Waker::from(count.clone()), Wakers::default());
        let keys: Vec<_> = (0..10).map(|_| wakers.keep(&waker)).collect();
        assert_eq!(wakers.kept.len(), 1);
        for round in 0..3 {
            for key in &keys {
                wakers.wake(*key, Some(round));
            }
        }
        assert_eq!(count.0.load(Ordering::Relaxed), 3);
        keys.into_iter().for_each(|key| wakers.release(key));
        wakers.forget_idle();
        drop(waker);
        assert_eq!(Arc::strong_count(&count), 1, "no waker is left");
    }

    #[test]
    fn wakers_of_different_tasks_are_kept_apart() {
        let counts: Vec<_> = (0..3).map(|_| Arc::new(Counting::default())).collect();
        let mut wakers = Wakers::default();
        let keys: Vec<_> = counts.iter().map(|count| wakers.keep(&Waker::from(count.clone()))).collect();
        for (at, key) in keys.iter().enumerate() {
            wakers.wake(*key, Some(1));
            assert_eq!(counts[at].0.load(Ordering::Relaxed), 1);
            wakers.release(*key);
        }
        wakers.forget_idle();
        assert!(counts.iter().all(|count| Arc::strong_count(count) == 1));
    }
}
