use std::fmt::Debug;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Where a registry reads the time from: a span since some fixed point.
///
/// The readings should not go back, but a registry must not depend on it: time that went back neither ends a
/// lease nor makes it endless, the lease just lasts until its own time to live has been counted forward.
pub trait Clock: Send + Sync + Debug {
    /// Time since the clock's fixed point.
    fn now(&self) -> Duration;
}

/// The operating system's monotonic clock.
#[derive(Debug)]
pub struct SystemClock {
    origin: Instant,
}

impl SystemClock {
    /// A clock that starts at zero.
    pub fn new() -> Self {
        Self { origin: Instant::now() }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}

/// A clock that stands still until it is told to move, for tests and simulations.
#[derive(Debug, Default)]
pub struct VirtualClock {
    now: Mutex<Duration>,
}

impl VirtualClock {
    /// A clock that stands at zero.
    pub fn new() -> Self {
        Self::default()
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        let mut now = crate::lock(&self.now);
        *now = now.saturating_add(by);
    }

    /// Moves the clock to `now`, which may be back.
    pub fn set(&self, now: Duration) {
        *crate::lock(&self.now) = now;
    }
}

impl Clock for VirtualClock {
    fn now(&self) -> Duration {
        *crate::lock(&self.now)
    }
}

/// Counts only the forward steps of a clock.
#[derive(Debug, Default)]
pub(crate) struct ForwardTime {
    last_reading: Duration,
    elapsed: Duration,
}

impl ForwardTime {
    pub(crate) fn read(&mut self, clock: &dyn Clock) -> Duration {
        let reading = clock.now();
        self.elapsed = self.elapsed.saturating_add(reading.saturating_sub(self.last_reading));
        self.last_reading = reading;
        self.elapsed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_that_goes_back_stands_still_and_then_counts_on() {
        let clock = VirtualClock::new();
        let mut time = ForwardTime::default();
        clock.set(Duration::from_secs(100));
        assert_eq!(time.read(&clock), Duration::from_secs(100));
        clock.set(Duration::from_secs(10));
        assert_eq!(time.read(&clock), Duration::from_secs(100));
        clock.set(Duration::from_secs(13));
        assert_eq!(time.read(&clock), Duration::from_secs(103));
    }
}
