//! The tasks that wait for calls of a link.

use std::task::Waker;

use slab::Slab;

/// Whoever waits, once for all calls that it waits for: a call keeps a number in place of a waker.
#[derive(Debug, Default)]
pub(crate) struct Tasks {
    all: Slab<Task>,
    /// The one that waited last: most often the next that waits is the same.
    last: Option<usize>,
    /// Counts the batches of frames.
    batch: u32,
}

#[derive(Debug)]
struct Task {
    waker: Waker,
    /// Calls that it waits for.
    waits: u32,
    /// The batch in which it was woken: tasks run after that, and waking again would tell them nothing.
    woken_in: u32,
}

/// A task that waits for a call. It is given back by [`Tasks::wake`] or [`Tasks::release`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TaskId(u32);

impl Tasks {
    /// A task waits for one call more.
    #[inline]
    pub(super) fn add(&mut self, waker: &Waker) -> TaskId {
        if let Some(last) = self.last
            && let Some(task) = self.all.get_mut(last)
            && task.waker.will_wake(waker)
        {
            task.waits += 1;
            return TaskId(last as u32);
        }
        self.add_other(waker)
    }

    fn add_other(&mut self, waker: &Waker) -> TaskId {
        self.forget_last();
        let woken_in = self.batch.wrapping_sub(1);
        let task = self.all.insert(Task { waker: waker.clone(), waits: 1, woken_in });
        self.last = Some(task);
        // As many as there are calls, which are limited to far less.
        TaskId(task as u32)
    }

    /// Has `task` be that of this waker.
    #[inline]
    pub(super) fn update(&mut self, task: &mut Option<TaskId>, waker: &Waker) {
        if let Some(before) = *task {
            if self.all.get(before.0 as usize).is_some_and(|task| task.waker.will_wake(waker)) {
                return;
            }
            self.release(before);
        }
        *task = Some(self.add(waker));
    }

    /// The call has something for its task.
    #[inline]
    pub(super) fn wake(&mut self, TaskId(task): TaskId) {
        let batch = self.batch;
        if let Some(waiting) = self.all.get_mut(task as usize)
            && waiting.woken_in != batch
        {
            waiting.woken_in = batch;
            waiting.waker.wake_by_ref();
        }
        self.release(TaskId(task));
    }

    /// The task waits for the call no more.
    #[inline]
    pub(super) fn release(&mut self, TaskId(task): TaskId) {
        if let Some(waiting) = self.all.get_mut(task as usize) {
            waiting.waits -= 1;
            if waiting.waits == 0 && self.last != Some(task as usize) {
                self.all.remove(task as usize);
            }
        }
    }

    /// Tasks may have run since the last frame.
    #[inline]
    pub(super) fn next_batch(&mut self) {
        self.batch = self.batch.wrapping_add(1);
    }

    /// Keeps nobody who does not wait.
    #[inline]
    pub(super) fn forget_last(&mut self) {
        if let Some(last) = self.last.take()
            && self.all.get(last).is_some_and(|task| task.waits == 0)
        {
            self.all.remove(last);
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
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_task_that_waits_for_many_calls_is_kept_once_and_woken_once_a_batch() {
        let count = Arc::new(Count::default());
        let (waker, other) = (Waker::from(count.clone()), Waker::from(Arc::new(Count::default())));
        let mut tasks = Tasks::default();
        let mut waits: Vec<_> = (0..10).map(|_| tasks.add(&waker)).collect();
        assert_eq!((tasks.all.len(), Arc::strong_count(&count)), (1, 3));
        waits.drain(..5).for_each(|wait| tasks.wake(wait));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        tasks.next_batch();
        waits.drain(..).for_each(|wait| tasks.wake(wait));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);

        let mut wait = Some(tasks.add(&other));
        assert_eq!((tasks.all.len(), Arc::strong_count(&count)), (1, 2), "the first waits no more");
        tasks.update(&mut wait, &other);
        tasks.update(&mut wait, &waker);
        tasks.forget_last();
        assert_eq!(tasks.all.len(), 1, "who waits is kept");
        tasks.release(wait.unwrap());
        assert!(tasks.all.is_empty());
    }
}
