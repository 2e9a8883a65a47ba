//! Tokio's context on workers (feature `tokio`).

use std::fmt;
use std::sync::Arc;

use tokio::runtime::{EnterGuard, Handle, Runtime};

use crate::error::BuildError;

/// What to do when a library of tokio finds no context.
pub(crate) const ADVICE: &str = "a library made for tokio was used on a worker without tokio's context: call \
     `.tokio(TokioContext::own())`, or `.tokio(handle)` with the handle of a tokio runtime, on the server or on the runtime's builder";

/// What the libraries of tokio need that handlers and tasks use: a runtime of tokio, whose context each worker enters for
/// its life. For [`Builder::tokio`](crate::Builder::tokio).
///
/// Inside the context `tokio::time::sleep`, sockets of tokio, `tokio::spawn` and clients that are built on them (sqlx,
/// reqwest, redis) work in handlers and tasks. What they wait for is watched by tokio's threads, and their wake-up reaches
/// the worker by its mailbox; what is given to `tokio::spawn` runs on tokio's threads.
///
/// Three things are not as in tokio's own tasks:
/// - tokio does not count what a task of a worker takes (its cooperative budget): one that finds a socket of tokio always
///   ready goes on without others having a turn. Call [`yield_now`](crate::yield_now) in such a loop.
/// - `tokio::task::spawn_local` has no `LocalSet` here: use [`spawn_local`](crate::spawn_local).
/// - A runtime with `test-util`'s paused clock pauses what is tokio's, not Corewire's timers.
///
/// ```
/// use std::time::Duration;
/// use corewire_runtime::{Runtime, TokioContext};
///
/// let runtime = Runtime::builder().workers(1).tokio(TokioContext::own()).build()?;
/// let task = runtime.handle().spawn(|| async {
///     tokio::time::sleep(Duration::from_millis(1)).await;
///     tokio::spawn(async { 42 }).await
/// })?;
/// assert_eq!(task.join()??, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TokioContext(Source);

#[derive(Clone)]
enum Source {
    Given(Handle),
    Own { threads: usize },
}

impl TokioContext {
    /// A tokio runtime of their own for the workers of a [`Runtime`](crate::Runtime) together, with all drivers on and one
    /// thread. It starts before the workers and is told to stop after them, without being waited for.
    pub const fn own() -> Self {
        Self::own_with_threads(1)
    }

    /// As [`own`](Self::own) with so many threads, at least 1: more are of use where much is spawned on tokio, such as the
    /// connections of a client with a pool.
    pub const fn own_with_threads(threads: usize) -> Self {
        Self(Source::Own { threads })
    }

    /// A runtime as this setting says, which `name` tells from others.
    pub(crate) fn start(self, name: &str) -> Result<Entrance, BuildError> {
        match self.0 {
            Source::Given(handle) => Ok(Entrance { handle, _own: None }),
            Source::Own { threads: 0 } => Err(BuildError::Setting {
                what: "the number of tokio's threads",
                value: 0,
                allowed: "1 or more",
            }),
            Source::Own { threads } => {
                let runtime = tokio::runtime::Builder::new_multi_thread()
                    .worker_threads(threads)
                    .thread_name(format!("{name}-tokio"))
                    .enable_all()
                    .build()
                    .map_err(BuildError::Tokio)?;
                let handle = runtime.handle().clone();
                Ok(Entrance { handle, _own: Some(Arc::new(Own(Some(runtime)))) })
            }
        }
    }
}

impl From<Handle> for TokioContext {
    /// The context of a runtime that exists. It must outlive the workers: what waits for it is woken with an error or a
    /// panic of tokio when it is gone.
    fn from(handle: Handle) -> Self {
        Self(Source::Given(handle))
    }
}

impl fmt::Debug for TokioContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Given(_) => f.write_str("TokioContext(given)"),
            Source::Own { threads } => f.debug_struct("TokioContext").field("threads", threads).finish(),
        }
    }
}

/// The way of one thread into the context. An own runtime ends with the last of them.
#[derive(Clone)]
pub(crate) struct Entrance {
    handle: Handle,
    _own: Option<Arc<Own>>,
}

impl Entrance {
    /// The calling thread is in the context until this is dropped.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.handle.enter()
    }
}

/// A runtime that nobody waits for when it is dropped: tokio panics where it would have to on a thread of its own.
struct Own(Option<Runtime>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}
