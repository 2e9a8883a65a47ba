//! How long memory may be short before those that were paused are closed.

use std::cell::Cell;

use super::Pressure;

/// What a peer has begun cannot become whole while nothing is received from it, so that a pause may never make room; and
/// nobody new is served meanwhile.
const PATIENCE_MS: u64 = 5_000;

/// Since when memory is short, in the worker's milliseconds.
#[derive(Debug, Default)]
pub(crate) struct Shortage {
    since: Cell<Option<u64>>,
}

impl Shortage {
    /// It has been short for so long that those that hold most are to be closed, until it is not.
    pub(crate) fn is_overdue(&self, pressure: Pressure, now_ms: u64) -> bool {
        let since = match (pressure, self.since.get()) {
            (Pressure::Low, _) | (Pressure::Kept, None) => None,
            (_, since) => since.or(Some(now_ms)),
        };
        self.since.set(since);
        since.is_some_and(|since| now_ms >= since + PATIENCE_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_lasts_from_the_high_mark_to_the_low_one() {
        use Pressure::{High, Kept, Low, Over};
        let shortage = Shortage::default();
        let mut now = 7;
        let mut after = |pressure, ms| {
            now += ms;
            shortage.is_overdue(pressure, now)
        };
        assert!(!after(Kept, 0) && !after(Kept, PATIENCE_MS), "it was never short");
        assert!(!after(High, 0) && !after(Kept, PATIENCE_MS / 2) && !after(Over, PATIENCE_MS / 2 - 1));
        assert!(after(Kept, 1) && after(High, 1));
        assert!(!after(Low, 1) && !after(High, PATIENCE_MS), "it begins anew");
    }
}
