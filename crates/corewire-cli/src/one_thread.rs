//! Loads that have one thread and no runtime.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use crate::failure::Failure;
use crate::run_control::{Latency, Shared, Workers};

/// The one thread of a load.
pub(crate) struct OneThread {
    shared: Arc<Shared>,
    connections: usize,
    ended: Arc<AtomicBool>,
    thread: JoinHandle<Result<Latency, Failure>>,
}

impl OneThread {
    /// Runs `run`; a failure counts as an error of the load.
    pub(crate) fn start(
        connections: usize,
        run: impl FnOnce(&Arc<Shared>) -> Result<Latency, Failure> + Send + 'static,
    ) -> Self {
        let shared = Arc::new(Shared::new(1));
        let ended = Arc::new(AtomicBool::new(false));
        let (run_shared, run_ended) = (Arc::clone(&shared), Arc::clone(&ended));
        let thread = std::thread::spawn(move || {
            let result = run(&run_shared);
            if let Err(failure) = &result {
                run_shared.error(|| failure.to_string());
            }
            run_ended.store(true, Ordering::Release);
            result
        });
        Self { shared, connections, ended, thread }
    }

    /// Says whether the thread has ended.
    pub(crate) fn has_ended(&self) -> impl Fn() -> bool + Send + use<> {
        let ended = Arc::clone(&self.ended);
        move || ended.load(Ordering::Acquire)
    }

    /// The load, under this driver's name; `wake` makes the thread look at the phase.
    pub(crate) fn workers(self, driver: &str, wake: impl Fn() + 'static) -> Workers {
        let ended = Box::new(self.has_ended());
        let Self { shared, connections, thread, .. } = self;
        Workers {
            shared,
            connections,
            driver: driver.into(),
            wake: Box::new(wake),
            calls: Box::new(|| (0, 0)),
            ended,
            join: Box::new(move || {
                thread.join().map_err(|_| Failure::Library("the load thread panicked".into()))?
            }),
        }
    }
}
