use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// A call in flight. Dropped, it counts as ended without a verdict.
#[derive(Debug)]
#[must_use = "a flight that is dropped is a call that has ended"]
pub struct Flight {
    load: Option<Arc<Load>>,
}

impl Flight {
    /// For balancers that do not go by load.
    pub fn untracked() -> Self {
        Self { load: None }
    }

    /// The call was answered after `latency`.
    pub fn succeeded(self, latency: Duration) {
        if let Some(load) = &self.load {
            load.sample(nanos(latency));
        }
    }

    /// The call failed after `latency`. It counts as at least twice as slow as the endpoint has been and no faster
    /// than 10 ms, so that an endpoint that fails at once does not draw all calls to it.
    pub fn failed(self, latency: Duration) {
        if let Some(load) = &self.load {
            load.sample(nanos(latency).max(load.latency_ns().saturating_mul(2)).max(FAILURE_NS_MIN));
        }
    }

    pub(super) fn of(load: &Arc<Load>) -> Self {
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { load: Some(load.clone()) }
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if let Some(load) = &self.load {
            load.in_flight.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

const FAILURE_NS_MIN: u64 = 10_000_000;
/// Weight of one sample in the moving average: one in this many.
const EWMA_SHARE: u64 = 8;

/// What is known of an endpoint's load. Atomic because a flight may end on another thread; the order of unrelated
/// updates does not matter, nor does a lost sample.
#[derive(Debug, Default)]
pub(super) struct Load {
    in_flight: AtomicU32,
    latency_ns: AtomicU64,
}

impl Load {
    pub(super) fn in_flight(&self) -> u64 {
        u64::from(self.in_flight.load(Ordering::Relaxed))
    }

    /// Moving average; 0 when there was no sample.
    pub(super) fn latency_ns(&self) -> u64 {
        self.latency_ns.load(Ordering::Relaxed)
    }

    /// Forgets a little, so that an endpoint that was slow once is tried again.
    pub(super) fn fade(&self) {
        let latency = self.latency_ns();
        self.latency_ns.store(latency - latency / 64, Ordering::Relaxed);
    }

    fn sample(&self, latency_ns: u64) {
        let before = self.latency_ns();
        let after = match before {
            0 => latency_ns,
            _ => before - before / EWMA_SHARE + latency_ns / EWMA_SHARE,
        };
        self.latency_ns.store(after.max(1), Ordering::Relaxed);
    }
}

fn nanos(latency: Duration) -> u64 {
    // An hour is as bad as longer, and far from overflow in any sum.
    latency.min(Duration::from_secs(3600)).as_nanos() as u64
}
