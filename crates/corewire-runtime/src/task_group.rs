//! Tasks that end together.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use slab::Slab;

use crate::error::JoinError;
use crate::panic::guarded;
use crate::task::{JoinHandle, spawn_local};
use crate::task_quota::poll_with_quota;
use crate::worker::Core;

/// Tasks of the current worker that are joined in the order in which they end, and aborted when the group is dropped.
///
/// ```
/// use corewire_runtime::TaskGroup;
///
/// corewire_runtime::run(async {
///     let mut group = TaskGroup::new();
///     for number in 0..10 {
///         group.spawn(async move { number * number });
///     }
///     let mut sum = 0;
///     while let Some(square) = group.join_next().await {
///         sum += square?;
///     }
///     assert_eq!(sum, 285);
///     Ok::<(), corewire_runtime::JoinError>(())
/// })??;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TaskGroup<T> {
    tasks: Slab<JoinHandle<()>>,
    ended: Rc<RefCell<Ended<T>>>,
}

/// What has ended and was not joined yet.
struct Ended<T> {
    results: VecDeque<(usize, Result<T, JoinError>)>,
    joiner: Option<Waker>,
}

impl<T: 'static> TaskGroup<T> {
    /// A group without tasks.
    pub fn new() -> Self {
        let ended = Ended { results: VecDeque::new(), joiner: None };
        Self { tasks: Slab::new(), ended: Rc::new(RefCell::new(ended)) }
    }

    /// Starts a task on the current worker as one of the group. There is no limit to their number.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn spawn(&mut self, future: impl Future<Output = T> + 'static) {
        let entry = self.tasks.vacant_entry();
        let end = End { group: Some(self.ended.clone()), key: entry.key() };
        entry.insert(spawn_local(Member { future: Some(future), end }));
    }

    /// Tasks that were not joined yet, ended ones included.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// All tasks were joined, or there were none.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Waits for the next task to end and gives its result; `None` when all were joined. Dropping the future loses none.
    ///
    /// # Errors
    /// The task panicked or was aborted. The others go on.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        poll_fn(|context| self.poll_join_next(context)).await
    }

    /// [`join_next`](Self::join_next) for those who poll.
    pub fn poll_join_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, JoinError>>> {
        if self.tasks.is_empty() {
            return Poll::Ready(None);
        }
        poll_with_quota(context, |context| {
            let mut ended = self.ended.borrow_mut();
            let Some((key, result)) = ended.results.pop_front() else {
                ended.joiner = Some(context.waker().clone());
                return Poll::Pending;
            };
            drop(ended);
            drop(self.tasks.remove(key));
            Poll::Ready(Some(result))
        })
    }

    /// Waits for all tasks and gives their results in the order in which they ended. Dropping the future loses the results
    /// that it had, but no task.
    pub async fn join_all(&mut self) -> Vec<Result<T, JoinError>> {
        let mut results = Vec::with_capacity(self.len());
        while let Some(result) = self.join_next().await {
            results.push(result);
        }
        results
    }

    /// Ends all tasks that have not ended, at their next await. They are still to be joined: each gives
    /// [`JoinError::Cancelled`], unless it had ended before.
    pub fn abort_all(&mut self) {
        for (_, task) in &mut self.tasks {
            task.abort_by_ref();
        }
    }

    /// Aborts all tasks and waits until what they held was dropped. Dropping the future leaves them aborted.
    pub async fn shutdown(&mut self) {
        self.abort_all();
        while self.join_next().await.is_some() {}
    }
}

impl<T: 'static> Default for TaskGroup<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Drop for TaskGroup<T> {
    fn drop(&mut self) {
        for (_, task) in &mut self.tasks {
            task.abort_by_ref();
        }
    }
}

impl<T> fmt::Debug for TaskGroup<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskGroup").field("tasks", &self.tasks.len()).finish_non_exhaustive()
    }
}

pin_project! {
    /// A task that tells its group how it ends.
    struct Member<T, F> {
        #[pin]
        future: Option<F>,
        end: End<T>,
    }
}

impl<T, F: Future<Output = T>> Future for Member<T, F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Ready(()) };
        let result = match guarded(|| future.poll(context)) {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(output)) => Ok(output),
            Err(message) => {
                Core::with_current(|core| core.into_iter().for_each(|core| core.note_panic(&message)));
                Err(JoinError::Panicked(message))
            }
        };
        // What it held is gone when it is joined.
        this.future.set(None);
        this.end.tell(result);
        Poll::Ready(())
    }
}

/// Tells the group once; dropped before that, that the task was cancelled.
struct End<T> {
    group: Option<Rc<RefCell<Ended<T>>>>,
    key: usize,
}

impl<T> End<T> {
    fn tell(&mut self, result: Result<T, JoinError>) {
        let Some(group) = self.group.take() else { return };
        let mut ended = group.borrow_mut();
        ended.results.push_back((self.key, result));
        let joiner = ended.joiner.take();
        drop(ended);
        if let Some(joiner) = joiner {
            joiner.wake();
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        self.tell(Err(JoinError::Cancelled));
    }
}
