//! Looking again for a moment before going to sleep.

use std::time::Duration;

/// Decides how long a thread with nothing to do looks again before it sleeps.
///
/// Going to sleep and being woken costs both sides tens of microseconds of processor time where the processor is
/// virtual, and several elsewhere. Whoever looks again for about as long as that costs pays at most twice the least
/// possible, whatever the traffic; and what comes meanwhile is served at once. When looking again does not pay, the
/// time is halved each time, down to nothing, and tried again now and then.
#[derive(Debug)]
pub(crate) struct Spin {
    most: Duration,
    now: Duration,
    sleeps: u32,
}

impl Spin {
    /// Below this a look is not worth the reading of the clock.
    const LEAST: Duration = Duration::from_micros(2);
    /// After this many sleeps without a look another one is tried.
    const TRY_EVERY: u32 = 64;

    /// Looks for at most this long; zero: never. With a single processor it never looks: whoever would be waited for
    /// could not run.
    pub(crate) fn new(most: Duration) -> Self {
        let alone = crate::affinity::online_cpus() < 2;
        let most = if alone { Duration::ZERO } else { most };
        Self { most, now: most, sleeps: 0 }
    }

    /// Calls `look` until it finds something or the time is over. `most` bounds the time as well.
    #[inline]
    pub(crate) fn until(&mut self, most: Option<Duration>, mut look: impl FnMut() -> bool) -> bool {
        if self.now < Self::LEAST {
            self.sleeps += 1;
            if self.sleeps < Self::TRY_EVERY || self.most < Self::LEAST {
                return false;
            }
            (self.now, self.sleeps) = (self.most, 0);
        }
        let time = most.map_or(self.now, |most| most.min(self.now));
        let started = crate::clock::now();
        loop {
            for _ in 0..16 {
                if look() {
                    self.now = self.most;
                    return true;
                }
                std::hint::spin_loop();
            }
            if crate::clock::now().duration_since(started) >= time {
                self.now /= 2;
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spin(most: Duration) -> Spin {
        Spin { most, now: most, sleeps: 0 }
    }

    #[test]
    fn what_comes_while_looking_is_found() {
        let (mut spin, mut looks) = (spin(Duration::from_secs(10)), 0);
        assert!(spin.until(None, || {
            looks += 1;
            looks == 100
        }));
    }

    #[test]
    fn looking_in_vain_ends_and_is_tried_again_later() {
        let mut spin = spin(Duration::from_micros(20));
        let mut looked = Vec::new();
        for _ in 0..100 {
            let mut looks = 0;
            assert!(!spin.until(None, || {
                looks += 1;
                false
            }));
            looked.push(looks > 0);
        }
        assert!(looked[0]);
        assert!(!looked[20], "it has been given up");
        assert!(looked[20..].iter().any(|looked| *looked), "it is tried again");
        assert!(looked.iter().filter(|looked| **looked).count() < 20);
    }

    #[test]
    fn zero_never_looks() {
        let mut spin = spin(Duration::ZERO);
        for _ in 0..200 {
            assert!(!spin.until(None, || true));
        }
    }
}
