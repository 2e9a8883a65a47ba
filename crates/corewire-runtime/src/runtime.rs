//! Workers on threads of their own, and the calling thread as a worker.

use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};
use std::thread;
use std::time::{Duration, Instant};

use corewire_driver::{DriverConfig, DriverError, DriverKind, available_cpus, pin_current_thread};

use crate::blocking::{BlockingLimits, BlockingShutdown, Pools};
use crate::error::{BuildError, JoinError, SpawnError};
use crate::memory::{SharedBudget, default_limit};
use crate::stats::WorkerStats;
use crate::tokio_context::{Entrance, TokioContext};
use crate::worker::{Command, Core, WorkerHandle, WorkerShared};

/// The least memory limit for each worker: a few full receive blocks.
const MEMORY_LIMIT_MIN: usize = 1 << 20;

/// Settings of a [`Runtime`].
#[derive(Debug, Clone)]
pub struct Builder {
    workers: Option<usize>,
    cpus: Option<Vec<usize>>,
    pin: bool,
    name: String,
    driver: DriverConfig,
    blocking: BlockingLimits,
    lookups: BlockingLimits,
    memory_limit: Option<usize>,
    tokio: Option<TokioContext>,
}

impl Default for Builder {
    fn default() -> Self {
        Self {
            workers: None,
            cpus: None,
            pin: false,
            name: "corewire".to_owned(),
            driver: DriverConfig::default(),
            blocking: BlockingLimits::default(),
            lookups: BlockingLimits::for_lookups(),
            memory_limit: None,
            tokio: None,
        }
    }
}

impl Builder {
    /// How many workers; default: one for each processor that the process may use (or that [`cpus`](Self::cpus)
    /// lists).
    #[must_use]
    pub const fn workers(mut self, workers: usize) -> Self {
        self.workers = Some(workers);
        self
    }

    /// Keeps worker *n* on the *n*-th of these processors (from the first again when there are more workers).
    #[must_use]
    pub fn cpus(mut self, cpus: impl Into<Vec<usize>>) -> Self {
        self.cpus = Some(cpus.into());
        self.pin = true;
        self
    }

    /// Keeps each worker on a processor of its own; default false.
    #[must_use]
    pub const fn pin(mut self, pin: bool) -> Self {
        self.pin = pin;
        self
    }

    /// Which driver; default [`DriverKind::Auto`]. The environment variable [`DriverKind::ENV`] overrides it.
    #[must_use]
    pub const fn driver(mut self, kind: DriverKind) -> Self {
        self.driver.kind = kind;
        self
    }

    /// How large the block is that large receives go to, in bytes; see
    /// [`DriverConfig::receive_block_size`].
    #[must_use]
    pub const fn receive_block_size(mut self, bytes: usize) -> Self {
        self.driver.receive_block_size = bytes;
        self
    }

    /// All settings of the driver.
    #[must_use]
    pub const fn driver_config(mut self, config: DriverConfig) -> Self {
        self.driver = config;
        self
    }

    /// What the threads are called, followed by a number; default `corewire`.
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Limits of the pool behind [`spawn_blocking`](crate::spawn_blocking).
    #[must_use]
    pub const fn blocking(mut self, limits: BlockingLimits) -> Self {
        self.blocking = limits;
        self
    }

    /// Limits of the threads that look names up, for [`lookup_host`](crate::lookup_host) and clients; default: 16 threads,
    /// and the others as of [`blocking`](Self::blocking).
    #[must_use]
    pub const fn lookups(mut self, limits: BlockingLimits) -> Self {
        self.lookups = limits;
        self
    }

    /// The most that all workers together hold for peers, in bytes: send queues, and what has arrived and was not taken
    /// yet. At least 1 MiB for each worker; default a quarter of the memory that the process may use.
    ///
    /// Over seven eighths of it the connections that hold most are paused, and new ones refused, until it is three
    /// quarters; over the limit those that hold most are closed with
    /// [`CloseReason::MemoryLimit`](crate::CloseReason::MemoryLimit). A worker that holds less than its part closes none.
    #[must_use]
    pub const fn memory_limit(mut self, bytes: usize) -> Self {
        self.memory_limit = Some(bytes);
        self
    }

    /// Has each worker enter tokio's context for its life, so that what is made for tokio works in its tasks and handlers:
    /// see [`TokioContext`], or give the `Handle` of a tokio runtime. Default: none, and such libraries panic.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn tokio(mut self, context: impl Into<TokioContext>) -> Self {
        self.tokio = Some(context.into());
        self
    }

    /// Starts the workers.
    ///
    /// # Errors
    /// A setting is out of range, the driver asked for cannot be had, or the system refuses a thread or its place.
    pub fn build(self) -> Result<Runtime, BuildError> {
        let driver = self.driver.with_env_override().map_err(DriverError::from)?;
        let cpus = self.cpus.unwrap_or_else(available_cpus);
        let count = self.workers.unwrap_or(cpus.len());
        if count == 0 || cpus.is_empty() {
            return Err(BuildError::Setting {
                what: "the number of workers",
                value: 0,
                allowed: "1 or more",
            });
        }
        let memory_limit = self.memory_limit.unwrap_or_else(|| default_limit().max(count * MEMORY_LIMIT_MIN));
        if memory_limit / count < MEMORY_LIMIT_MIN {
            return Err(BuildError::Setting {
                what: "the memory limit of all workers, in bytes,",
                value: memory_limit,
                allowed: "1 MiB or more for each worker",
            });
        }
        let memory = SharedBudget::new(memory_limit, count);
        let pools = Arc::new(Pools::new(self.blocking, self.lookups));
        let tokio = self.tokio.map(|context| context.start(&self.name)).transpose()?;
        let mut runtime = Runtime {
            handle: Handle { inner: Arc::new(Inner { workers: Vec::new(), next: AtomicUsize::new(0) }) },
            threads: Vec::new(),
            pools,
        };
        let mut workers = Vec::new();
        for worker in 0..count {
            let start = Start {
                worker,
                cpu: self.pin.then(|| cpus[worker % cpus.len()]),
                driver: driver.clone(),
                pools: runtime.pools.clone(),
                memory: memory.clone(),
                tokio: tokio.clone(),
            };
            let (report, reported) = mpsc::channel();
            let thread = thread::Builder::new()
                .name(format!("{}-{worker}", self.name))
                .spawn(move || start.run(&report))
                .map_err(|error| BuildError::Thread { worker, error })?;
            runtime.threads.push(thread);
            let shared = reported.recv().map_err(|_| BuildError::Thread {
                worker,
                error: std::io::Error::other("the thread ended before it began"),
            })??;
            workers.push(shared);
            // Known at once, so that an error in the next one stops this one.
            runtime.handle.inner = Arc::new(Inner { workers: workers.clone(), next: AtomicUsize::new(0) });
        }
        Ok(runtime)
    }
}

/// What a worker's thread begins with.
struct Start {
    worker: usize,
    cpu: Option<usize>,
    driver: DriverConfig,
    pools: Arc<Pools>,
    memory: Arc<SharedBudget>,
    tokio: Option<Entrance>,
}

impl Start {
    fn run(self, report: &mpsc::Sender<Result<Arc<WorkerShared>, BuildError>>) {
        let worker = self.worker;
        if let Some(cpu) = self.cpu
            && let Err(error) = pin_current_thread(cpu)
        {
            let error = BuildError::Affinity { worker, cpu, error, available: available_cpus() };
            let _ = report.send(Err(error));
            return;
        }
        // Left after the last task was dropped: what it holds may need it.
        let _context = self.tokio.as_ref().map(Entrance::enter);
        match Core::install(&self.driver, self.pools, self.memory) {
            Ok(installed) => {
                let _ = report.send(Ok(installed.core.shared.clone()));
                installed.core.run(|| false);
            }
            Err(error) => {
                let _ = report.send(Err(error.into()));
            }
        }
    }
}

/// Workers, each on a thread of its own. Dropping it stops them: tasks are dropped, connections closed once what is queued
/// has been sent (of KCP: acknowledged), for which a peer that takes nothing has 1 s and any peer 10 s.
#[derive(Debug)]
pub struct Runtime {
    handle: Handle,
    threads: Vec<thread::JoinHandle<()>>,
    pools: Arc<Pools>,
}

impl Runtime {
    /// A runtime with the default settings: one worker for each processor.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn new() -> Result<Self, BuildError> {
        Self::builder().build()
    }

    /// Settings to choose.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// A handle for other threads and places.
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Stops the workers and waits for them and for blocking work (not for look-ups of names), together for `deadline` at the
    /// most; three quarters of it are for what is queued to be sent. A worker whose task does not come to an await by then is
    /// left to itself.
    pub fn shutdown(mut self, deadline: Duration) -> BlockingShutdown {
        let until = corewire_driver::clock::now().checked_add(deadline);
        self.stop(until);
        let left =
            until.map_or(deadline, |until| until.saturating_duration_since(corewire_driver::clock::now()));
        self.pools.shutdown(left)
    }

    fn stop(&mut self, until: Option<Instant>) {
        let now = corewire_driver::clock::now();
        // Most of the time is for what is queued; the rest is for the end itself.
        let send_until = until.map(|until| until - until.saturating_duration_since(now) / 4);
        for worker in &self.handle.inner.workers {
            let _ = worker.mailbox.push(Command::Stop(send_until));
        }
        for thread in self.threads.drain(..) {
            // There is no join with a deadline.
            while !thread.is_finished() && until.is_some_and(|until| corewire_driver::clock::now() < until) {
                thread::sleep(Duration::from_millis(1));
            }
            if until.is_some() && !thread.is_finished() {
                tracing::error!(
                    "a worker has not stopped by the deadline of the shutdown and is left to itself"
                );
                continue;
            }
            // Dropped on a worker of its own, the runtime cannot wait for that one.
            if thread.thread().id() != thread::current().id() && thread.join().is_err() {
                tracing::error!("a worker's thread panicked");
            }
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        self.stop(None);
    }
}

/// Reaches the workers of a [`Runtime`] from anywhere.
#[derive(Clone)]
pub struct Handle {
    inner: Arc<Inner>,
}

struct Inner {
    workers: Vec<Arc<WorkerShared>>,
    /// Where the next task without a place of its own goes.
    next: AtomicUsize,
}

impl Handle {
    /// How many workers there are.
    pub fn workers(&self) -> usize {
        self.inner.workers.len()
    }

    /// Starts a task on a worker. The closure runs there, so the future need not be `Send`.
    ///
    /// # Errors
    /// There is no such worker, or it has stopped.
    pub fn spawn_on<F>(
        &self,
        worker: usize,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<RemoteTask<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = futures_channel::oneshot::channel();
        self.run_on(worker, move || {
            let task = crate::task::spawn_local(async move { make().await });
            drop(crate::task::spawn_local(async move {
                // Nobody may wait for it any more.
                let _ = sender.send(task.await);
            }));
        })?;
        Ok(RemoteTask { receiver })
    }

    /// Starts a task on one worker after the other, of those that have not stopped.
    ///
    /// # Errors
    /// The workers have stopped.
    pub fn spawn<F>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<RemoteTask<F::Output>, SpawnError>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (next, workers) = (self.inner.next.fetch_add(1, Ordering::Relaxed), self.workers());
        let lives = |worker: &usize| !self.inner.workers[*worker].mailbox.is_closed();
        let worker = (0..workers).map(|at| next.wrapping_add(at) % workers).find(lives);
        self.spawn_on(worker.ok_or(SpawnError::Stopped)?, make)
    }

    /// Runs a closure on a worker, between its tasks.
    ///
    /// # Errors
    /// There is no such worker, or it has stopped.
    pub fn run_on(&self, worker: usize, call: impl FnOnce() + Send + 'static) -> Result<(), SpawnError> {
        let workers = self.workers();
        let shared = self.inner.workers.get(worker).ok_or(SpawnError::NoSuchWorker { worker, workers })?;
        shared.mailbox.push(Command::Job(Box::new(call))).map_err(|_| SpawnError::Stopped)
    }

    /// One worker.
    pub fn worker(&self, worker: usize) -> Option<WorkerHandle> {
        self.inner.workers.get(worker).map(|shared| WorkerHandle { shared: shared.clone() })
    }

    /// The workers' ids, in their order.
    pub fn worker_ids(&self) -> Vec<crate::worker::WorkerId> {
        self.inner.workers.iter().map(|worker| worker.id).collect()
    }

    /// What the workers have done, summed; at most a tick old.
    pub fn stats(&self) -> WorkerStats {
        let mut sum = WorkerStats::default();
        for worker in &self.inner.workers {
            sum += worker.counters.load();
        }
        sum
    }
}

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Handle").field("workers", &self.workers()).finish()
    }
}

/// A task on another worker: await it for the result from anywhere. Dropping it lets the task go on.
#[derive(Debug)]
#[must_use = "await it for the result, or let it go with `drop` to let the task run on its own"]
pub struct RemoteTask<T> {
    receiver: futures_channel::oneshot::Receiver<Result<T, JoinError>>,
}

impl<T> RemoteTask<T> {
    /// Blocks the calling thread until the task is done.
    ///
    /// # Errors
    /// The task panicked or was cancelled.
    pub fn join(self) -> Result<T, JoinError> {
        futures_lite::future::block_on(self)
    }
}

impl<T> Future for RemoteTask<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        std::pin::Pin::new(&mut self.receiver)
            .poll(context)
            .map(|sent| sent.unwrap_or(Err(JoinError::Cancelled)))
    }
}
