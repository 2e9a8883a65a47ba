//! A count of what a peer may do only so often.

use std::time::Duration;

use crate::rpc::settings::Rate;

const NANOS_PER_SECOND: u128 = 1_000_000_000;

/// A token bucket.
#[derive(Debug)]
pub(super) struct Budget {
    rate: Rate,
    left: u32,
    refilled_at: Duration,
}

impl Budget {
    pub(super) fn new(rate: Rate) -> Self {
        Self { rate, left: rate.burst, refilled_at: Duration::ZERO }
    }

    /// Takes one, or says that there is none. `now` may stand still and never goes back.
    pub(super) fn take(&mut self, now: Duration) -> bool {
        let elapsed = now.saturating_sub(self.refilled_at).as_nanos();
        let earned = elapsed * u128::from(self.rate.per_second) / NANOS_PER_SECOND;
        let room = self.rate.burst - self.left;
        if earned >= u128::from(room) {
            self.left = self.rate.burst;
            self.refilled_at = now.max(self.refilled_at);
        } else {
            // What is not a whole token yet goes on counting.
            let used = (earned * NANOS_PER_SECOND).checked_div(u128::from(self.rate.per_second)).unwrap_or(0);
            self.left += earned as u32;
            self.refilled_at += Duration::from_nanos(used as u64);
        }
        let has_one = self.left > 0;
        self.left -= u32::from(has_one);
        has_one
    }

    /// Gives one back.
    #[inline]
    pub(super) fn give(&mut self) {
        if self.left < self.rate.burst {
            self.left += 1;
        }
    }
}

/// Frames of the peer that move nothing: what may come late, and how many others.
#[derive(Debug)]
pub(super) struct Strays {
    /// Bytes that the peer may still be sending in good faith, since it could not know better.
    slack: u64,
    slack_max: u64,
    others: Budget,
}

impl Strays {
    /// The least that may be on its way on a fast network, in bytes.
    const SLACK_MAX: u64 = 64 * 1024 * 1024;

    pub(super) fn new(rate: Rate, window: u32) -> Self {
        let slack_max = Self::SLACK_MAX.max(4 * u64::from(window));
        Self { slack: 0, slack_max, others: Budget::new(rate) }
    }

    /// Something happened after which this much may come that means nothing.
    #[inline]
    pub(super) fn expect(&mut self, bytes: u64) {
        self.slack = self.slack.saturating_add(bytes).min(self.slack_max);
    }

    /// Any amount may come: the peer cannot be told to stop (version 1).
    pub(super) fn expect_most(&mut self) {
        self.slack = self.slack_max;
    }

    /// Takes one of this many bytes, or says that there are too many.
    pub(super) fn take(&mut self, bytes: u64, now: Duration) -> bool {
        if self.slack > 0 {
            self.slack = self.slack.saturating_sub(bytes);
            return true;
        }
        self.others.take(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut budget = Budget::new(Rate { burst: 3, per_second: 2 });
        let taken = |budget: &mut Budget, now| (0..10).filter(|_| budget.take(now)).count();
        assert_eq!(taken(&mut budget, Duration::ZERO), 3);
        assert_eq!(taken(&mut budget, Duration::from_millis(499)), 0);
        assert_eq!(taken(&mut budget, Duration::from_millis(500)), 1);
        assert_eq!(taken(&mut budget, Duration::from_millis(999)), 0);
        assert_eq!(taken(&mut budget, Duration::from_millis(1_000)), 1);
        assert_eq!(taken(&mut budget, Duration::from_secs(1 << 40)), 3, "never more than the burst");
        budget.give();
        assert_eq!(taken(&mut budget, Duration::from_secs(1 << 40)), 1);
    }

    #[test]
    fn a_rate_of_nothing_never_passes() {
        let mut budget = Budget::new(Rate { burst: 0, per_second: 0 });
        assert!(!budget.take(Duration::from_secs(100)));
        budget.give();
        assert!(!budget.take(Duration::from_secs(200)));
    }
}
