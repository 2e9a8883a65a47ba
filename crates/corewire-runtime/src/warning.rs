//! Warnings of what peers can cause as often as they like.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// Lets one warning a second pass, by the worker's clock, and counts what the others would have told of.
#[derive(Debug, Default)]
pub struct WarningLimit {
    warned_at: Cell<Option<Instant>>,
    since: Cell<u64>,
}

impl WarningLimit {
    const INTERVAL: Duration = Duration::from_secs(1);

    /// Notes that something has happened `count` times. If a warning may be given now: how often it has happened since
    /// the last one, these times included.
    pub fn note(&self, count: u64) -> Option<u64> {
        self.note_at(crate::time::now(), count)
    }

    fn note_at(&self, now: Instant, count: u64) -> Option<u64> {
        let since = self.since.get().saturating_add(count);
        let is_due =
            self.warned_at.get().is_none_or(|at| now.saturating_duration_since(at) >= Self::INTERVAL);
        if is_due {
            self.warned_at.set(Some(now));
        }
        self.since.set(if is_due { 0 } else { since });
        is_due.then_some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_second_tells_how_often_it_happened_since_the_last() {
        let (limit, start) = (WarningLimit::default(), crate::time::now());
        let note = |ms, count| limit.note_at(start + Duration::from_millis(ms), count);
        assert_eq!([note(0, 3), note(1, 1), note(999, 5)], [Some(3), None, None]);
        assert_eq!([note(1000, 1), note(1001, 1), note(60_000, 2)], [Some(7), None, Some(3)]);
    }
}
