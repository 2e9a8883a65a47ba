//! A clock that stands still until it is told to move.

use std::cell::Cell;
use std::rc::Rc;

/// Virtual time in microseconds from an arbitrary zero. Clones show the same time.
#[derive(Debug, Clone, Default)]
pub struct VirtualClock {
    now_us: Rc<Cell<u64>>,
}

impl VirtualClock {
    /// A clock that shows `now_us` microseconds.
    pub fn starting_at(now_us: u64) -> Self {
        Self { now_us: Rc::new(Cell::new(now_us)) }
    }

    /// The time in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us.get()
    }

    /// The time in whole milliseconds, rounded down.
    pub fn now_ms(&self) -> u64 {
        self.now_us.get() / 1000
    }

    /// Moves forward to `to_us`; a time in the past changes nothing.
    pub fn advance_to_us(&self, to_us: u64) {
        self.now_us.set(self.now_us.get().max(to_us));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clones_share_the_time_and_it_never_goes_back() {
        let clock = VirtualClock::starting_at(1_500);
        let other = clock.clone();
        clock.advance_to_us(2_999);
        clock.advance_to_us(10);
        assert_eq!(other.now_us(), 2_999);
        assert_eq!(other.now_ms(), 2);
    }
}
