//! Time on a worker: resolution 1 ms, never early.

use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use pin_project_lite::pin_project;

use crate::task_quota::poll_with_quota;
use crate::timer_wheel::TimerKey;
use crate::worker::{Command, Core, TimerAction, WorkerShared, current_worker};

/// The current worker's time, read once a tick; the system's outside a worker.
pub fn now() -> Instant {
    Core::with_current(|core| core.map_or_else(corewire_driver::clock::now, |core| core.timers.now()))
}

/// Waits for at least `duration`.
///
/// # Panics
/// When first polled outside a worker.
pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(instant_after(duration))
}

/// So long from now; what the clock cannot express is centuries away.
pub(crate) fn instant_after(duration: Duration) -> Instant {
    const FAR: Duration = Duration::from_secs(1 << 34);
    let now = corewire_driver::clock::now();
    now.checked_add(duration).unwrap_or_else(|| now + FAR)
}

/// Waits until `deadline`; see [`sleep`].
pub fn sleep_until(deadline: Instant) -> Sleep {
    Sleep { deadline, timer: None }
}

/// Gives `future` this long.
///
/// # Errors
/// [`Elapsed`] when it was not done in time; it is dropped then.
pub fn timeout<F: Future>(limit: Duration, future: F) -> Timeout<F> {
    Timeout { future, sleep: sleep(limit), limit }
}

/// The future of [`sleep`]. It may be moved to another thread: a timer of the worker that polls it last wakes it.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    timer: Option<Armed>,
}

struct Armed {
    worker: Arc<WorkerShared>,
    key: TimerKey,
    waker: Waker,
}

impl Sleep {
    /// When it ends.
    pub const fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Has it end at another time, from its next poll on.
    pub fn reset(&mut self, deadline: Instant) {
        self.disarm();
        self.deadline = deadline;
    }
}

impl std::fmt::Debug for Sleep {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if corewire_driver::clock::now() >= self.deadline {
            self.disarm();
            return poll_with_quota(context, |_| Poll::Ready(()));
        }
        let core = Core::current_or_panic("sleep");
        if !self.timer.as_ref().is_some_and(|armed| armed.wakes(&core, context.waker())) {
            self.disarm();
            let waker = context.waker().clone();
            let key = core.timers.add_at(self.deadline, TimerAction::Wake(waker.clone()));
            self.timer = Some(Armed { worker: core.shared.clone(), key, waker });
        }
        Poll::Pending
    }
}

impl Sleep {
    fn disarm(&mut self) {
        if let Some(armed) = self.timer.take() {
            armed.cancel();
        }
    }
}

impl Armed {
    fn wakes(&self, core: &Core, waker: &Waker) -> bool {
        self.worker.id == core.id() && self.waker.will_wake(waker)
    }

    fn cancel(self) {
        let Self { worker, key, .. } = self;
        let cancel = move |core: Option<&Rc<Core>>| core.and_then(|core| core.timers.cancel(key));
        if current_worker() == Some(worker.id) {
            let action = Core::with_current(cancel);
            drop(action);
        } else {
            // A worker that has stopped has no timers.
            let _ = worker.mailbox.push(Command::Job(Box::new(move || drop(Core::with_current(cancel)))));
        }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.disarm();
    }
}

pin_project! {
    /// The future of [`timeout`].
    #[derive(Debug)]
    #[must_use = "futures do nothing unless awaited"]
    pub struct Timeout<F> {
        #[pin]
        future: F,
        #[pin]
        sleep: Sleep,
        limit: Duration,
    }
}

/// The time given by [`timeout`] is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not done within {0:?}")]
pub struct Elapsed(pub Duration);

impl From<Elapsed> for std::io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(std::io::ErrorKind::TimedOut, elapsed)
    }
}

impl<F: Future> Future for Timeout<F> {
    type Output = Result<F::Output, Elapsed>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.future.poll(context) {
            return Poll::Ready(Ok(output));
        }
        this.sleep.poll(context).map(|()| Err(Elapsed(*this.limit)))
    }
}
