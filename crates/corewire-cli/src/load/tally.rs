//! Whether streams that share a connection come along at the same pace.

use std::cell::Cell;

use crate::run_control::{Phase, Shared};

/// The frames of one of several streams at a time, within the measured window.
#[derive(Debug, Default)]
pub(super) struct Tally {
    measurement: Cell<u32>,
    frames: Cell<u64>,
}

impl Tally {
    /// Counts a frame; those from before the measured window, and from after it, are not of it.
    #[inline]
    pub(super) fn count(&self, shared: &Shared) {
        if shared.phase() != Phase::Run {
            return;
        }
        let frames = self.within(shared.measurement());
        self.frames.set(frames + 1);
    }

    /// Frames of this measurement.
    pub(super) fn within(&self, measurement: u32) -> u64 {
        if self.measurement.replace(measurement) != measurement {
            self.frames.set(0);
        }
        self.frames.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_warm_up_is_forgotten_and_the_drain_not_counted() {
        let (shared, tally) = (Shared::new(1), Tally::default());
        tally.count(&shared);
        assert_eq!(tally.within(shared.measurement()), 0, "nothing runs yet");
        shared.set_phase(Phase::Run);
        tally.count(&shared);
        tally.count(&shared);
        assert_eq!(tally.within(shared.measurement()), 2);
        shared.begin_measurement();
        assert_eq!(tally.within(shared.measurement()), 0);
        tally.count(&shared);
        shared.set_phase(Phase::Drain);
        tally.count(&shared);
        assert_eq!(tally.within(shared.measurement()), 1);
    }
}
