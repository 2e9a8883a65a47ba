//! Local tasks.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll};

use async_task::{FallibleTask, Runnable};
use pin_project_lite::pin_project;

use crate::blocking::BlockingPool;
use crate::error::{BlockingError, JoinError};
use crate::panic::guarded;
use crate::worker::{Command, Core, WorkerId, WorkerShared, current_worker};

/// Starts a task on the current worker. It runs even if the handle is dropped.
///
/// # Panics
/// Outside a worker.
pub fn spawn_local<F>(future: F) -> JoinHandle<F::Output>
where
    F: Future + 'static,
    F::Output: 'static,
{
    let core = Core::current_or_panic("spawn_local");
    core.spawn(future)
}

/// Runs blocking code on the pool of the current worker's runtime and waits for its result without blocking the
/// worker.
///
/// # Errors
/// The closure panicked, or was not accepted: the pool is full or shut down.
///
/// # Panics
/// Outside a worker.
pub async fn spawn_blocking<R: Send + 'static>(
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, BlockingError> {
    let pools = Core::current_or_panic("spawn_blocking").pools.clone();
    run_on_pool(&pools.work, work).await
}

/// Waits for the result of work on a pool; dropped, it lets the work go on.
pub(crate) async fn run_on_pool<R: Send + 'static>(
    pool: &BlockingPool,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R, BlockingError> {
    let (sender, receiver) = futures_channel::oneshot::channel();
    let accepted = pool.spawn(work, move |result| {
        // The receiver is gone when the waiting task was dropped.
        let _ = sender.send(result.map_err(|payload| crate::panic::message(&*payload)));
    });
    accepted?;
    match receiver.await {
        Ok(result) => result.map_err(BlockingError::Panicked),
        Err(_) => Err(BlockingError::Discarded),
    }
}

/// Lets the other tasks of this worker have a turn.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// Waits for a task's result. Dropping it lets the task go on; [`abort`](Self::abort) ends the task.
#[derive(Debug)]
#[must_use = "await it for the result, or let it go with `drop` to let the task run on its own"]
pub struct JoinHandle<T> {
    task: Option<FallibleTask<Result<T, String>, TaskKey>>,
    worker: WorkerId,
    key: TaskKey,
}

/// The place of a task in its worker's list.
pub(crate) type TaskKey = usize;

/// A task that lives.
pub(crate) struct TaskEntry {
    pub(crate) waker: std::task::Waker,
    /// It was aborted: its future is dropped as soon as no handler runs.
    is_aborted: bool,
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next await; what it holds is dropped.
    pub fn abort(mut self) {
        self.abort_by_ref();
    }

    /// The same for an owner that keeps the handle, which gives [`JoinError::Cancelled`] from now on.
    pub(crate) fn abort_by_ref(&mut self) {
        let Some(task) = self.task.take().filter(|task| !task.is_finished()) else { return };
        Core::with_current(|core| {
            if let Some(core) = core.filter(|core| core.id() == self.worker) {
                core.note_aborted(self.key);
            }
        });
        drop(task);
    }

    /// The task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(task) = self.task.as_mut() else { return Poll::Ready(Err(JoinError::Cancelled)) };
        Pin::new(task).poll(context).map(|ended| match ended {
            Some(Ok(output)) => Ok(output),
            Some(Err(message)) => Err(JoinError::Panicked(message)),
            None => Err(JoinError::Cancelled),
        })
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl Core {
    pub(crate) fn spawn<F>(self: &Rc<Self>, future: F) -> JoinHandle<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let entry = TaskEntry { waker: std::task::Waker::noop().clone(), is_aborted: false };
        let key = self.tasks.live.borrow_mut().insert(entry);
        let task = Task { future: Some(future), entry: Entry { core: Rc::downgrade(self), key } };
        let shared = self.shared.clone();
        let (runnable, task) = async_task::Builder::new()
            .metadata(key)
            .spawn_local(move |_| task, move |runnable| schedule(&shared, runnable));
        self.tasks.live.borrow_mut()[key].waker = runnable.waker();
        runnable.schedule();
        JoinHandle { task: Some(task.fallible()), worker: self.id(), key }
    }

    fn note_aborted(&self, key: TaskKey) {
        if let Some(entry) = self.tasks.live.borrow_mut().get_mut(key)
            && !std::mem::replace(&mut entry.is_aborted, true)
        {
            self.tasks.aborted.set(self.tasks.aborted.get() + 1);
        }
    }

    /// Drops the futures of tasks that were aborted, which wait for their turn to be dropped: behind those that are to
    /// run they would pile up as fast as a peer can have them aborted.
    #[cold]
    pub(crate) fn reap_aborted(&self) {
        self.tasks.aborted.set(0);
        let mut aborted = Vec::new();
        {
            let (mut ready, tasks) = (self.tasks.ready.borrow_mut(), self.tasks.live.borrow());
            for _ in 0..ready.len() {
                let Some(runnable) = ready.pop_front() else { break };
                if tasks.get(*runnable.metadata()).is_some_and(|entry| entry.is_aborted) {
                    aborted.push(runnable);
                } else {
                    ready.push_back(runnable);
                }
            }
        }
        for runnable in aborted {
            self.guard(|| {
                runnable.run();
            });
        }
    }
}

/// Puts a woken task where its worker finds it.
fn schedule(shared: &Arc<WorkerShared>, runnable: Runnable<TaskKey>) {
    if current_worker() == Some(shared.id) {
        Core::with_current(|core| {
            if let Some(core) = core {
                core.tasks.ready.borrow_mut().push_back(runnable);
            }
        });
    } else if let Err(Command::Run(runnable)) = shared.mailbox.push(Command::Run(runnable)) {
        // The worker ended without this task (see `Core::shutdown`). Its future must not be dropped elsewhere.
        std::mem::forget(runnable);
    }
}

pin_project! {
    /// A future that turns its panic into a value and leaves its worker's list when it ends.
    struct Task<F> {
        #[pin]
        future: Option<F>,
        entry: Entry,
    }

    impl<F> PinnedDrop for Task<F> {
        fn drop(this: Pin<&mut Self>) {
            // Of a task that is cancelled. A panic here would end the process, by way of async-task.
            let mut this = this.project();
            if let Err(message) = guarded(|| this.future.set(None)) {
                this.entry.note_panic(&message);
            }
        }
    }
}

struct Entry {
    core: Weak<Core>,
    key: TaskKey,
}

impl Entry {
    fn note_panic(&self, message: &str) {
        if let Some(core) = self.core.upgrade() {
            core.note_panic(message);
        }
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(core) = self.core.upgrade() {
            let entry = core.tasks.live.borrow_mut().try_remove(self.key);
            drop(entry);
        }
    }
}

impl<F: Future> Future for Task<F> {
    type Output = Result<F::Output, String>;

    #[inline]
    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        let Some(future) = this.future.as_mut().as_pin_mut() else { return Poll::Pending };
        match guarded(|| future.poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(message) => {
                this.entry.note_panic(&message);
                Poll::Ready(Err(message))
            }
        }
    }
}
