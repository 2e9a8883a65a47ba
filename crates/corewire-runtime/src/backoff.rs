//! How long to wait before the next attempt.

use std::time::Duration;

const FACTOR: u32 = 2;

/// Delays for repeated attempts: exponential, with full jitter.
///
/// Each delay is random between zero and a bound. The bound is 50 ms at first, doubles from attempt to attempt,
/// and stays at 5 s. So clients that lost the same server do not come back at the same moment. The number of
/// attempts is not limited unless [`with_attempts_max`](Self::with_attempts_max) says so.
///
/// The delays follow from the seed alone: the same seed gives the same delays.
///
/// ```
/// use corewire_runtime::backoff::Backoff;
/// use std::time::Duration;
///
/// let mut backoff = Backoff::new(7).with_attempts_max(3);
/// assert!(backoff.next().unwrap() <= Duration::from_millis(50));
/// assert!(backoff.next().unwrap() <= Duration::from_millis(100));
/// assert!(backoff.next().unwrap() <= Duration::from_millis(200));
/// assert_eq!(backoff.next(), None);
///
/// // An attempt that succeeded starts over.
/// backoff.reset();
/// assert!(backoff.next().unwrap() <= Duration::from_millis(50));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    initial: Duration,
    max: Duration,
    attempts_max: Option<u32>,
    /// Of the next delay.
    bound: Duration,
    attempts: u32,
    random: fastrand::Rng,
}

impl Backoff {
    /// The bound of the first delay, unless changed: 50 ms.
    pub const INITIAL: Duration = Duration::from_millis(50);
    /// The greatest bound, unless changed: 5 s.
    pub const MAX: Duration = Duration::from_secs(5);

    /// Delays with the default bounds. Clients that must not move in step need different seeds.
    pub fn new(seed: u64) -> Self {
        Self {
            initial: Self::INITIAL,
            max: Self::MAX,
            attempts_max: None,
            bound: Self::INITIAL,
            attempts: 0,
            random: fastrand::Rng::with_seed(seed),
        }
    }

    /// Sets the bound of the first delay and the greatest bound, and starts over.
    ///
    /// An `initial` over `max` counts as `max`. An `initial` of zero means no delay ever.
    #[must_use]
    pub fn with_bounds(mut self, initial: Duration, max: Duration) -> Self {
        self.initial = initial.min(max);
        self.max = max;
        self.reset();
        self
    }

    /// Gives at most `attempts` delays until the next [`reset`](Self::reset).
    #[must_use]
    pub fn with_attempts_max(mut self, attempts: u32) -> Self {
        self.attempts_max = Some(attempts);
        self
    }

    /// Starts over with the first bound and no attempt made. The random numbers go on where they are.
    pub fn reset(&mut self) {
        self.bound = self.initial;
        self.attempts = 0;
    }
}

/// `next` is the delay before the next attempt, or `None` when there have been as many as allowed.
impl Iterator for Backoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.attempts_max.is_some_and(|attempts_max| self.attempts >= attempts_max) {
            return None;
        }
        self.attempts = self.attempts.saturating_add(1);
        let bound_ns = u64::try_from(self.bound.as_nanos()).unwrap_or(u64::MAX);
        let delay = Duration::from_nanos(self.random.u64(..=bound_ns));
        self.bound = self.bound.saturating_mul(FACTOR).min(self.max);
        Some(delay)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_stay_under_a_bound_that_doubles_up_to_the_greatest() {
        let bounds_ms = [50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000, 5_000];
        for seed in 0..200 {
            for (delay, bound_ms) in Backoff::new(seed).zip(bounds_ms) {
                assert!(delay <= Duration::from_millis(bound_ms), "{delay:?} is over {bound_ms} ms");
            }
        }
    }

    #[test]
    fn delays_spread_over_the_whole_range() {
        const RUNS: u64 = 1_000;
        for (attempt, bound_ms) in [(0, 50), (3, 400), (20, 5_000)] {
            let quarter = |delay: Duration| (delay.as_millis() * 4 / bound_ms).min(3) as usize;
            let mut counts = [0; 4];
            for seed in 0..RUNS {
                counts[quarter(Backoff::new(seed).nth(attempt).unwrap())] += 1;
            }
            assert!(counts.iter().all(|count| (180..=320).contains(count)), "attempt {attempt}: {counts:?}");
        }
    }

    #[test]
    fn seed_decides_the_delays() {
        let delays = |seed| Backoff::new(seed).take(20).collect::<Vec<_>>();
        assert_eq!(delays(1), delays(1));
        assert_ne!(delays(1), delays(2));
    }

    #[test]
    fn attempts_end_at_their_limit_until_reset() {
        let mut backoff = Backoff::new(1).with_attempts_max(2);
        assert_eq!(backoff.by_ref().count(), 2);
        assert_eq!(backoff.next(), None);
        backoff.reset();
        assert_eq!(backoff.by_ref().count(), 2);
        assert_eq!(Backoff::new(1).with_attempts_max(0).next(), None);
    }

    #[test]
    fn reset_goes_back_to_the_first_bound() {
        let mut backoff = Backoff::new(3);
        for _ in 0..100 {
            backoff.nth(9);
            backoff.reset();
            assert!(backoff.next().unwrap() <= Backoff::INITIAL);
        }
    }

    #[test]
    fn bounds_can_be_any() {
        let ms = Duration::from_millis;
        for seed in 0..100 {
            assert!(Backoff::new(seed).with_bounds(ms(10), ms(4)).take(9).all(|delay| delay <= ms(4)));
            assert!(Backoff::new(seed).with_bounds(ms(0), ms(9)).take(9).all(|delay| delay.is_zero()));
            assert_eq!(Backoff::new(seed).with_bounds(Duration::MAX, Duration::MAX).take(99).count(), 99);
        }
    }
}
