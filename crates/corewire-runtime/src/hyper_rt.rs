//! What hyper asks of a runtime (feature `hyper`).

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use hyper::rt::{Executor, Sleep as HyperSleep, Timer};

use crate::task::spawn_local;
use crate::time::{Sleep, sleep, sleep_until};

/// Spawns on the current worker: the executor that hyper needs for HTTP/2. Futures need not be `Send`.
///
/// # Panics
/// `execute` does outside a worker.
#[derive(Debug, Clone, Copy, Default)]
pub struct HyperExecutor;

impl<F> Executor<F> for HyperExecutor
where
    F: Future + 'static,
    F::Output: 'static,
{
    fn execute(&self, future: F) {
        drop(spawn_local(future));
    }
}

/// The worker's timers, for what hyper does after a time: to close a connection whose headers do not come
/// (`header_read_timeout`), or to ping a silent one. Resolution 1 ms, never early.
#[derive(Debug, Clone, Copy, Default)]
pub struct HyperTimer;

impl Timer for HyperTimer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn HyperSleep>> {
        Box::pin(sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn HyperSleep>> {
        Box::pin(sleep_until(deadline))
    }

    fn now(&self) -> Instant {
        corewire_driver::clock::now()
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn HyperSleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(mut sleep) => sleep.reset(deadline),
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl HyperSleep for Sleep {}
