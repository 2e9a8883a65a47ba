//! A worker for the length of one future.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use corewire_driver::{DriverConfig, DriverError};

use crate::blocking::{BlockingLimits, Pools};
use crate::error::BuildError;
use crate::memory::{SharedBudget, default_limit};
use crate::panic::guarded;
use crate::task_quota::with_task_quota;
use crate::worker::{Command, Core, WorkerShared};

/// Makes the calling thread a worker and runs `future` on it to its end. Tasks and connections that are left then
/// are ended, as at the end of a [`Runtime`](crate::Runtime). The future may borrow what lives longer than the call.
///
/// The driver is chosen as for a [`Runtime`](crate::Runtime), the environment variable included.
///
/// ```
/// let mut names = vec!["one"];
/// corewire_runtime::run(async { names.push("two") })?;
/// assert_eq!(names, ["one", "two"]);
/// # Ok::<(), corewire_runtime::BuildError>(())
/// ```
///
/// # Errors
/// No event loop can be made.
///
/// # Panics
/// On a worker: it cannot wait for itself. A panic of the future is passed on.
pub fn run<F: Future>(future: F) -> Result<F::Output, BuildError> {
    assert!(Core::current().is_none(), "run on a worker would stop the worker: use spawn_local");
    let driver = DriverConfig::default().with_env_override().map_err(DriverError::from)?;
    let pools = Arc::new(Pools::new(BlockingLimits::default(), BlockingLimits::for_lookups()));
    let installed = Core::install(&driver, pools, SharedBudget::new(default_limit(), 1))?;
    let woken =
        Arc::new(MainWaker { worker: installed.core.shared.clone(), is_woken: AtomicBool::new(true) });
    let waker = Waker::from(woken.clone());
    // Dropped before the worker, which what it holds may need.
    let (mut future, mut output) = (pin!(future), None);
    installed.core.run(|| {
        if output.is_none() && woken.is_woken.swap(false, Ordering::AcqRel) {
            let context = &mut Context::from_waker(&waker);
            output = match guarded(|| with_task_quota(|| future.as_mut().poll(context))) {
                Ok(Poll::Pending) => None,
                Ok(Poll::Ready(ready)) => Some(Ok(ready)),
                Err(message) => Some(Err(message)),
            };
        }
        output.is_some()
    });
    match output {
        Some(Ok(output)) => Ok(output),
        Some(Err(message)) => panic!("{message}"),
        None => Err(DriverError::Io(std::io::Error::other("the event loop ended before the future")).into()),
    }
}

/// Has the worker poll its main future.
struct MainWaker {
    worker: Arc<WorkerShared>,
    is_woken: AtomicBool,
}

impl Wake for MainWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            // Keeps the worker from sleeping; one that has stopped polls no more.
            let _ = self.worker.mailbox.push(Command::Job(Box::new(|| {})));
        }
    }
}
