//! Ticks at even times.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use crate::time::{Sleep, instant_after, sleep_until};

/// Ticks every `period`, the first time at once. Resolution 1 ms, never early.
///
/// ```
/// use std::time::Duration;
/// use corewire_runtime::interval;
///
/// corewire_runtime::run(async {
///     let mut every = interval(Duration::from_millis(2));
///     let first = every.tick().await;
///     assert_eq!(every.tick().await - first, Duration::from_millis(2));
/// })?;
/// # Ok::<(), corewire_runtime::BuildError>(())
/// ```
///
/// # Panics
/// When `period` is zero; when first polled outside a worker.
pub fn interval(period: Duration) -> Interval {
    interval_at(corewire_driver::clock::now(), period)
}

/// As [`interval`], with the first tick at `start`.
///
/// # Panics
/// As [`interval`].
pub fn interval_at(start: Instant, period: Duration) -> Interval {
    assert!(!period.is_zero(), "the period of an interval must be more than 0");
    Interval { sleep: sleep_until(start), period, missed: MissedTicks::default() }
}

/// What an [`Interval`] does when a tick was not taken in its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedTicks {
    /// Ticks at once until those that were missed are made up for; then in the old times again.
    #[default]
    Burst,
    /// The next tick is a whole period after the late one.
    Delay,
    /// Leaves out what was missed: the next tick is at the next of the old times.
    Skip,
}

/// The ticks of [`interval`].
#[derive(Debug)]
pub struct Interval {
    sleep: Sleep,
    period: Duration,
    missed: MissedTicks,
}

impl Interval {
    /// What to do about missed ticks; default [`MissedTicks::Burst`].
    #[must_use]
    pub const fn missed_ticks(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// The time between two ticks.
    pub const fn period(&self) -> Duration {
        self.period
    }

    /// Waits for the next tick and says when it was due. Dropping the future loses none.
    pub async fn tick(&mut self) -> Instant {
        poll_fn(|context| self.poll_tick(context)).await
    }

    /// [`tick`](Self::tick) for those who poll.
    pub fn poll_tick(&mut self, context: &mut Context<'_>) -> Poll<Instant> {
        ready!(Pin::new(&mut self.sleep).poll(context));
        let due = self.sleep.deadline();
        self.sleep.reset(next(due, corewire_driver::clock::now(), self.period, self.missed));
        Poll::Ready(due)
    }

    /// Has the next tick come a whole period from now.
    pub fn reset(&mut self) {
        self.sleep.reset(instant_after(self.period));
    }
}

fn next(due: Instant, now: Instant, period: Duration, missed: MissedTicks) -> Instant {
    // Later than the clock can say is never.
    let after = |at: Instant, time: Duration| at.checked_add(time).unwrap_or_else(|| instant_after(time));
    match missed {
        MissedTicks::Burst => after(due, period),
        // The timer's own resolution is no lateness.
        MissedTicks::Delay if now.saturating_duration_since(due) > Duration::from_millis(5) => {
            after(now, period)
        }
        MissedTicks::Delay => after(due, period),
        MissedTicks::Skip => {
            let late = now.saturating_duration_since(due).as_nanos() % period.as_nanos();
            // Less than the period, which is a Duration.
            let late = Duration::new((late / 1_000_000_000) as u64, (late % 1_000_000_000) as u32);
            after(now.max(due), period - late)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missed_ticks_are_made_up_for_put_off_or_left_out() {
        let (due, period) = (Instant::now(), Duration::from_millis(10));
        let at = |ms| due + Duration::from_millis(ms);
        let next = |now, missed| next(due, now, period, missed) - due;
        for (missed, in_time, late) in [
            (MissedTicks::Burst, at(10), at(10)),
            (MissedTicks::Delay, at(10), at(45)),
            (MissedTicks::Skip, at(10), at(40)),
        ] {
            assert_eq!(next(due, missed), in_time - due, "{missed:?}");
            assert_eq!(next(at(35), missed), late - due, "{missed:?}");
        }
        assert_eq!(
            next(at(30), MissedTicks::Skip),
            at(40) - due,
            "exactly at a tick's time: the one after it"
        );
        assert_eq!(next(at(3), MissedTicks::Delay), at(10) - due, "a little late is in time");
    }
}
