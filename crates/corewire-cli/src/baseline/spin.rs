//! Looking again for a moment before going to sleep, for as long as the library's drivers do.

use std::time::{Duration, Instant};

use corewire::runtime::driver::DriverConfig;

/// A time that is halved when looking was in vain, down to nothing, and tried again now and then.
#[derive(Debug)]
pub(super) struct Spin {
    most: Duration,
    now: Duration,
    sleeps: u32,
}

impl Spin {
    /// Below this a look is not worth the reading of the clock.
    const LEAST: Duration = Duration::from_micros(2);
    /// After this many sleeps without a look another one is tried.
    const TRY_EVERY: u32 = 64;
    /// Looks from one reading of the clock to the next.
    const LOOKS: usize = 16;

    /// With a single processor it never looks: whoever would be waited for could not run.
    pub(super) fn new() -> Self {
        let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
        let is_alone = !online.contains(['-', ',']);
        Self::at_most(if is_alone { Duration::ZERO } else { DriverConfig::default().spin })
    }

    fn at_most(most: Duration) -> Self {
        Self { most, now: most, sleeps: 0 }
    }

    /// Calls `look` until it finds something or the time is over.
    #[inline]
    pub(super) fn until(&mut self, mut look: impl FnMut() -> bool) -> bool {
        if self.now < Self::LEAST {
            self.sleeps += 1;
            if self.sleeps < Self::TRY_EVERY || self.most < Self::LEAST {
                return false;
            }
            (self.now, self.sleeps) = (self.most, 0);
        }
        let begun = Instant::now();
        loop {
            for _ in 0..Self::LOOKS {
                if look() {
                    self.now = self.most;
                    return true;
                }
                std::hint::spin_loop();
            }
            if begun.elapsed() >= self.now {
                self.now /= 2;
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_while_looking_is_found() {
        let (mut spin, mut looks) = (Spin::at_most(Duration::from_secs(10)), 0);
        assert!(spin.until(|| {
            looks += 1;
            looks == 100
        }));
    }

    #[test]
    fn looking_in_vain_is_given_up_and_tried_again() {
        let mut spin = Spin::at_most(Duration::from_micros(20));
        let looked: Vec<bool> = (0..100)
            .map(|_| {
                let mut has_looked = false;
                spin.until(|| {
                    has_looked = true;
                    false
                });
                has_looked
            })
            .collect();
        assert!(looked[0] && !looked[20] && looked[20..].contains(&true));
    }

    #[test]
    fn it_looks_as_long_as_the_drivers() {
        let spin = Spin::new();
        assert!(spin.most == DriverConfig::default().spin || spin.most.is_zero());
    }
}
