//! When a call is attempted again: pure of clocks and connections.

use std::time::{Duration, Instant};

use super::policy::{Hedge, Retry};

/// The attempts of one call.
#[derive(Debug)]
pub(super) struct Schedule {
    retry: Option<Retry>,
    hedge: Option<Hedge>,
    /// Of the whole call.
    deadline: Option<Instant>,
    begun: u32,
    in_flight: u32,
    retries: u32,
    next: Option<Instant>,
}

/// What a failure of an attempt means for the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Failed {
    /// It fails with it.
    Call,
    /// Another attempt goes on, or will begin.
    Attempt,
}

impl Schedule {
    /// The first attempt is due at once.
    pub(super) const fn new(
        retry: Option<Retry>,
        hedge: Option<Hedge>,
        now: Instant,
        deadline: Option<Instant>,
    ) -> Self {
        Self { retry, hedge, deadline, begun: 0, in_flight: 0, retries: 0, next: Some(now) }
    }

    /// When another attempt begins, unless those in flight end before; `None`: none does.
    pub(super) const fn next(&self) -> Option<Instant> {
        self.next
    }

    /// An attempt beside the first one, which needs a token of the budget.
    pub(super) const fn needs_token(&self) -> bool {
        self.begun > 0
    }

    pub(super) fn begin(&mut self, now: Instant) {
        self.begun += 1;
        self.in_flight += 1;
        let hedge = self.hedge.filter(|hedge| self.begun < hedge.attempts);
        self.next = hedge.and_then(|hedge| now.checked_add(hedge.after)).filter(|at| self.is_in_time(*at));
    }

    /// There is no token for another attempt.
    pub(super) fn deny(&mut self) -> Failed {
        self.next = None;
        if self.in_flight == 0 { Failed::Call } else { Failed::Attempt }
    }

    /// An attempt has failed; `share` of the longest wait is waited before a retry.
    pub(super) fn fail(&mut self, now: Instant, may_repeat: bool, share: f64) -> Failed {
        self.in_flight -= 1;
        if !may_repeat {
            return Failed::Call;
        }
        if self.in_flight > 0 {
            return Failed::Attempt;
        }
        let wait = if let Some(retry) = self.retry.filter(|retry| self.begun < retry.attempts) {
            let longest = retry.initial_wait.saturating_mul(1 << self.retries.min(10));
            self.retries += 1;
            longest.mul_f64(share)
        } else if self.hedge.is_some_and(|hedge| self.begun < hedge.attempts) {
            Duration::ZERO
        } else {
            return Failed::Call;
        };
        self.next = now.checked_add(wait).filter(|at| self.is_in_time(*at));
        if self.next.is_some() { Failed::Attempt } else { Failed::Call }
    }

    fn is_in_time(&self, at: Instant) -> bool {
        self.deadline.is_none_or(|deadline| at < deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn retry(attempts: u32) -> Retry {
        Retry { attempts, initial_wait: 10 * MS, ..Retry::default() }
    }

    fn hedge(attempts: u32) -> Hedge {
        Hedge { attempts, ..Hedge::after(20 * MS) }
    }

    fn schedule(
        retry: Option<Retry>,
        hedge: Option<Hedge>,
        deadline: Option<Duration>,
    ) -> (Schedule, Instant) {
        let now = Instant::now();
        (Schedule::new(retry, hedge, now, deadline.map(|deadline| now + deadline)), now)
    }

    #[test]
    fn retries_wait_longer_each_time_and_end_with_their_number() {
        let (mut schedule, now) = schedule(Some(retry(3)), None, None);
        assert_eq!((schedule.next(), schedule.needs_token()), (Some(now), false));
        schedule.begin(now);
        assert_eq!((schedule.next(), schedule.needs_token()), (None, true));
        assert_eq!(schedule.fail(now, true, 1.0), Failed::Attempt);
        assert_eq!(schedule.next(), Some(now + 10 * MS));
        schedule.begin(now + 10 * MS);
        assert_eq!(schedule.fail(now + 30 * MS, true, 0.5), Failed::Attempt);
        assert_eq!(schedule.next(), Some(now + 40 * MS));
        schedule.begin(now + 40 * MS);
        assert_eq!(schedule.fail(now + 40 * MS, true, 1.0), Failed::Call);
    }

    #[test]
    fn a_failure_that_repeating_cannot_mend_fails_the_call() {
        let (mut schedule, now) = schedule(Some(retry(3)), Some(hedge(3)), None);
        schedule.begin(now);
        schedule.begin(now + 20 * MS);
        assert_eq!(schedule.fail(now + 21 * MS, false, 1.0), Failed::Call);
    }

    #[test]
    fn a_wait_that_ends_behind_the_deadline_is_not_begun() {
        let (mut schedule, now) = schedule(Some(retry(3)), Some(hedge(2)), Some(10 * MS));
        schedule.begin(now);
        assert_eq!(schedule.next(), None, "a hedge after 20 ms comes too late");
        assert_eq!(schedule.fail(now, true, 1.0), Failed::Call);
    }

    #[test]
    fn hedges_begin_one_after_the_other_and_outlive_failures_of_others() {
        let (mut schedule, now) = schedule(None, Some(hedge(3)), None);
        schedule.begin(now);
        assert_eq!(schedule.next(), Some(now + 20 * MS));
        schedule.begin(now + 20 * MS);
        assert_eq!(schedule.next(), Some(now + 40 * MS));
        assert_eq!(schedule.fail(now + 25 * MS, true, 1.0), Failed::Attempt, "the second one is healthy");
        assert_eq!(schedule.next(), Some(now + 40 * MS));
        schedule.begin(now + 40 * MS);
        assert_eq!(schedule.next(), None, "three are enough");
        assert_eq!(schedule.fail(now + 50 * MS, true, 1.0), Failed::Attempt);
        assert_eq!(schedule.fail(now + 60 * MS, true, 1.0), Failed::Call);
    }

    #[test]
    fn the_next_hedge_begins_at_once_when_nothing_is_in_flight() {
        let (mut schedule, now) = schedule(None, Some(hedge(2)), None);
        schedule.begin(now);
        assert_eq!(schedule.fail(now + 5 * MS, true, 1.0), Failed::Attempt);
        assert_eq!(schedule.next(), Some(now + 5 * MS));
    }

    #[test]
    fn without_a_token_those_in_flight_decide() {
        let (mut schedule, now) = schedule(None, Some(hedge(3)), None);
        schedule.begin(now);
        assert_eq!((schedule.deny(), schedule.next()), (Failed::Attempt, None));
        assert_eq!(schedule.fail(now, true, 1.0), Failed::Attempt);
        assert_eq!(schedule.deny(), Failed::Call);
    }
}
