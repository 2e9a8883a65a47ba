//! Threads for work that would block a worker: name resolution, files, long computations.

use std::any::Any;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The limits of a [`BlockingPool`].
#[derive(Clone, Debug)]
pub struct BlockingLimits {
    /// The most threads, and so the most jobs that run at once. 0 counts as 1. Default: 64.
    pub max_threads: usize,
    /// The most jobs that wait for a thread. Default: 4,096.
    pub queue_max: usize,
    /// How long a thread without a job stays. Default: 10 s.
    pub idle_timeout: Duration,
}

impl Default for BlockingLimits {
    fn default() -> Self {
        Self { max_threads: 64, queue_max: 4_096, idle_timeout: Duration::from_secs(10) }
    }
}

impl BlockingLimits {
    /// For threads that wait for the system's resolver: few, since a look-up that hangs is soon followed by others.
    pub(crate) const fn for_lookups() -> Self {
        Self { max_threads: 16, queue_max: 4_096, idle_timeout: Duration::from_secs(10) }
    }
}

/// The threads of a runtime beside its workers.
#[derive(Debug)]
pub(crate) struct Pools {
    pub(crate) work: BlockingPool,
    /// Apart, so that a DNS server that does not answer takes no thread from other work.
    pub(crate) lookups: BlockingPool,
}

impl Pools {
    pub(crate) fn new(work: BlockingLimits, lookups: BlockingLimits) -> Self {
        Self { work: BlockingPool::new(work), lookups: BlockingPool::new(lookups) }
    }

    /// As [`BlockingPool::shutdown`] of the work; look-ups are not waited for.
    pub(crate) fn shutdown(&self, timeout: Duration) -> BlockingShutdown {
        self.lookups.shutdown(Duration::ZERO);
        self.work.shutdown(timeout)
    }
}

/// Why a [`BlockingPool`] did not take a job. Neither the job nor its callback has run; both are dropped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnBlockingError {
    /// All threads are busy and as many jobs wait as may.
    #[error(
        "the blocking pool is full: {max_threads} jobs run and {queue_max} wait; \
         try again later, or raise max_threads or queue_max"
    )]
    QueueFull {
        /// [`BlockingLimits::max_threads`].
        max_threads: usize,
        /// [`BlockingLimits::queue_max`].
        queue_max: usize,
    },
    /// The pool was shut down.
    #[error("the blocking pool is shut down and takes no more jobs")]
    ShutDown,
    /// The pool has no thread and the system refuses to start one.
    #[error("cannot start a thread for the blocking pool: {0}; check the limits on threads and memory")]
    Thread(#[source] io::Error),
}

/// What [`BlockingPool::shutdown`] had to leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BlockingShutdown {
    /// Jobs that still ran at the deadline. Their threads go on and end with them.
    pub unfinished: usize,
    /// Jobs that still waited at the deadline. They and their callbacks were dropped and will not run.
    pub discarded: usize,
}

/// A pool of threads for jobs that block.
///
/// Threads start when jobs need them and end when idle. Jobs start in the order in which they were spawned.
/// Dropping the pool without [`shutdown`](Self::shutdown) waits for nothing: jobs that were taken still run, then
/// the threads end.
///
/// ```
/// use corewire_runtime::blocking::{BlockingLimits, BlockingPool};
/// use std::sync::mpsc;
/// use std::time::Duration;
///
/// let pool = BlockingPool::new(BlockingLimits::default());
/// let (sender, receiver) = mpsc::channel();
/// pool.spawn(|| 6 * 7, move |result| sender.send(result.unwrap()).unwrap())?;
/// assert_eq!(receiver.recv(), Ok(42));
///
/// let left = pool.shutdown(Duration::from_secs(5));
/// assert_eq!((left.unfinished, left.discarded), (0, 0));
/// # Ok::<(), corewire_runtime::blocking::SpawnBlockingError>(())
/// ```
#[derive(Debug)]
pub struct BlockingPool {
    shared: Arc<Shared>,
}

impl BlockingPool {
    /// A pool without threads yet.
    pub fn new(limits: BlockingLimits) -> Self {
        let limits = BlockingLimits { max_threads: limits.max_threads.max(1), ..limits };
        Self {
            shared: Arc::new(Shared {
                limits,
                state: Mutex::default(),
                work: Condvar::new(),
                ended: Condvar::new(),
            }),
        }
    }

    /// Runs `job` on a thread of the pool, then `done` with its result, or with what it panicked with, on the same
    /// thread. A panic in `done` is logged.
    ///
    /// # Errors
    ///
    /// [`SpawnBlockingError`] when the queue is full, the pool is shut down, or no thread can be started.
    pub fn spawn<R, J, D>(&self, job: J, done: D) -> Result<(), SpawnBlockingError>
    where
        J: FnOnce() -> R + Send + 'static,
        D: FnOnce(thread::Result<R>) + Send + 'static,
    {
        self.shared.enqueue(Box::new(move || done(catch_unwind(AssertUnwindSafe(job)))))
    }

    /// Takes no more jobs and waits up to `timeout` for those that were taken, callbacks included.
    ///
    /// Idle threads end at once. Called from a job of this pool, it waits for that job in vain and counts it as
    /// unfinished.
    pub fn shutdown(&self, timeout: Duration) -> BlockingShutdown {
        self.shared.shutdown(timeout)
    }
}

impl Drop for BlockingPool {
    fn drop(&mut self) {
        self.shared.lock().shut_down = true;
        self.shared.work.notify_all();
    }
}

type Job = Box<dyn FnOnce() + Send>;

#[derive(Debug)]
struct Shared {
    limits: BlockingLimits,
    state: Mutex<State>,
    /// A job was queued, or the pool was shut down.
    work: Condvar,
    /// A thread has ended.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<Job>,
    /// Threads, also those that wait.
    threads: usize,
    /// Threads that wait for a job. Each looks into the queue once more before it ends, so the first `idle` jobs
    /// in the queue have a thread for sure.
    idle: usize,
    /// Of the threads above, and perhaps of some that are just ending.
    handles: Vec<JoinHandle<()>>,
    shut_down: bool,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("queued", &self.queue.len())
            .field("threads", &self.threads)
            .field("idle", &self.idle)
            .field("shut_down", &self.shut_down)
            .finish_non_exhaustive()
    }
}

impl Shared {
    fn enqueue(self: &Arc<Self>, job: Job) -> Result<(), SpawnBlockingError> {
        let BlockingLimits { max_threads, queue_max, .. } = self.limits;
        let mut state = self.lock();
        if state.shut_down {
            return Err(SpawnBlockingError::ShutDown);
        }
        let mut has_thread = state.queue.len() < state.idle;
        if !has_thread && state.threads < max_threads {
            match self.start_thread(&mut state) {
                Ok(()) => has_thread = true,
                Err(error) if state.threads == 0 => return Err(SpawnBlockingError::Thread(error)),
                Err(error) => tracing::warn!(%error, threads = state.threads, "blocking pool cannot grow"),
            }
        }
        if !has_thread && state.queue.len().saturating_sub(state.idle) >= queue_max {
            return Err(SpawnBlockingError::QueueFull { max_threads, queue_max });
        }
        state.queue.push_back(job);
        drop(state);
        self.work.notify_one();
        Ok(())
    }

    /// The new thread counts as idle until it takes its first job.
    fn start_thread(self: &Arc<Self>, state: &mut State) -> io::Result<()> {
        let shared = Arc::clone(self);
        let thread =
            thread::Builder::new().name("corewire-blocking".into()).spawn(move || shared.run_thread())?;
        state.threads += 1;
        state.idle += 1;
        // Handles of threads that ended for lack of work are of no more use.
        state.handles.retain(|handle| !handle.is_finished());
        state.handles.push(thread);
        Ok(())
    }

    fn run_thread(&self) {
        let _guard = UnwindGuard(self);
        while let Some(job) = self.next_job() {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(job)) {
                tracing::error!(message = panic_message(&*panic), "callback of a blocking job panicked");
            }
            self.lock().idle += 1;
        }
    }

    /// Waits as an idle thread. `None`: the thread has to end.
    fn next_job(&self) -> Option<Job> {
        let idle_since = corewire_driver::clock::now();
        let mut state = self.lock();
        loop {
            if let Some(job) = state.queue.pop_front() {
                state.idle -= 1;
                return Some(job);
            }
            let left = self
                .limits
                .idle_timeout
                .saturating_sub(corewire_driver::clock::now().duration_since(idle_since));
            if state.shut_down || left.is_zero() {
                // In one step: a thread that is neither idle nor gone would count as one that runs a job.
                state.idle -= 1;
                state.threads -= 1;
                self.ended.notify_all();
                return None;
            }
            state = self.work.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn shutdown(&self, timeout: Duration) -> BlockingShutdown {
        let start = corewire_driver::clock::now();
        let mut state = self.lock();
        state.shut_down = true;
        self.work.notify_all();
        while state.threads > 0 {
            let left = timeout.saturating_sub(corewire_driver::clock::now().duration_since(start));
            if left.is_zero() {
                break;
            }
            state = self.ended.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let discarded = std::mem::take(&mut state.queue);
        let handles = std::mem::take(&mut state.handles);
        let unfinished = state.threads - state.idle;
        let all_ended = state.threads == 0;
        drop(state);
        for handle in handles {
            // One that runs on must not be waited for.
            if (all_ended || handle.is_finished()) && handle.join().is_err() {
                tracing::error!("thread of the blocking pool panicked");
            }
        }
        BlockingShutdown { unfinished, discarded: discarded.len() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No job runs under the lock, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts out a thread that ends by a panic of its own: of the logging, or of dropping what a callback panicked
/// with.
struct UnwindGuard<'a>(&'a Shared);

impl Drop for UnwindGuard<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.lock().threads -= 1;
            self.0.ended.notify_all();
        }
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("(not a text)")
}

#[cfg(test)]
#[path = "blocking_tests.rs"]
mod tests;
