use std::collections::VecDeque;
use std::time::Duration;

/// The greatest count within a time, to a sixteenth of it.
#[derive(Debug)]
pub(super) struct Peak {
    window: Duration,
    current: usize,
    /// Earlier counts and until when they stood; each less than the one before it.
    earlier: VecDeque<(Duration, usize)>,
}

/// Counts are kept so many to the window, however often they change.
const STEPS: u32 = 16;

impl Peak {
    pub(super) fn new(window: Duration) -> Self {
        Self { window, current: 0, earlier: VecDeque::new() }
    }

    pub(super) fn set(&mut self, count: usize, now: Duration) {
        let before = std::mem::replace(&mut self.current, count);
        while self.earlier.back().is_some_and(|(_, earlier)| *earlier <= before.max(count)) {
            self.earlier.pop_back();
        }
        let is_new_step = |(until, _): &(Duration, usize)| now.saturating_sub(*until) >= self.window / STEPS;
        if before > count && self.earlier.back().is_none_or(is_new_step) {
            self.earlier.push_back((now, before));
        }
    }

    pub(super) fn most(&mut self, now: Duration) -> usize {
        while self.earlier.front().is_some_and(|(until, _)| until.saturating_add(self.window) <= now) {
            self.earlier.pop_front();
        }
        self.earlier.front().map_or(self.current, |(_, most)| self.current.max(*most))
    }

    /// Forgets the earlier counts.
    pub(super) fn reset(&mut self) {
        self.earlier.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_greatest_count_stands_for_the_window() {
        let mut peak = Peak::new(at(160));
        for (now, count) in [(0, 100), (10, 120), (20, 60), (40, 80), (50, 10)] {
            peak.set(count, at(now));
        }
        assert_eq!(peak.most(at(50)), 120);
        assert_eq!(peak.most(at(179)), 120);
        assert_eq!(peak.most(at(180)), 80);
        assert_eq!(peak.most(at(209)), 80);
        assert_eq!(peak.most(at(210)), 10);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn it_is_never_off_by_more_than_a_step(changes in prop::collection::vec((0u64..40, 0usize..50), 1..200)) {
            let mut peak = Peak::new(at(160));
            let (mut now, mut all) = (0, vec![]);
            for (wait, count) in changes {
                now += wait;
                peak.set(count, at(now));
                all.push((now, count));
                // The count of each change stood until the next one.
                let most_within = |window: u64| {
                    let ends = all.iter().skip(1).map(|(until, _)| *until).chain([u64::MAX]);
                    let live = all.iter().zip(ends).filter(|(_, until)| until.saturating_add(window) > now);
                    live.map(|((_, count), _)| *count).max().unwrap()
                };
                let most = peak.most(at(now));
                prop_assert!(most <= most_within(160), "{most} {all:?}");
                prop_assert!(most >= most_within(149), "{most} {all:?}");
                prop_assert!(peak.earlier.len() <= 17);
            }
        }
    }
}
