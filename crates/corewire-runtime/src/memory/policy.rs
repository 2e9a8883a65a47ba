//! What to do at the limit.

use super::budget::{Excess, Pressure};

/// One connection, as the policy sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Holder<K> {
    /// Names the connection.
    pub(crate) key: K,
    /// Bytes that it holds.
    pub(crate) held: usize,
    /// It is paused for the memory that it holds.
    pub(crate) is_paused: bool,
}

/// What is to be done, in this order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relief<K> {
    /// To receive again.
    pub(crate) resume: Vec<K>,
    /// To receive nothing more until there is room again.
    pub(crate) pause: Vec<K>,
    /// To be closed.
    pub(crate) close: Vec<K>,
}

/// Decides which connections make room, so that those that hold little notice nothing.
///
/// Over the high mark the largest are paused, as many of them as hold what is over the low mark; over the limit as many
/// of the largest are closed as hold what is over the limit. Below the low mark all that was paused goes on.
pub(crate) fn relief<K: Copy>(pressure: Pressure, excess: Excess, mut holders: Vec<Holder<K>>) -> Relief<K> {
    let mut relief = Relief { resume: Vec::new(), pause: Vec::new(), close: Vec::new() };
    match pressure {
        Pressure::Low => {
            relief.resume.extend(holders.iter().filter(|holder| holder.is_paused).map(|holder| holder.key));
        }
        Pressure::Kept => {}
        Pressure::High | Pressure::Over => {
            holders.sort_unstable_by_key(|holder| std::cmp::Reverse(holder.held));
            let (mut paused, mut closed) = (0, 0);
            for holder in holders.iter().take_while(|holder| holder.held > 0) {
                if pressure == Pressure::Over && closed < excess.over_limit {
                    relief.close.push(holder.key);
                    closed += holder.held;
                } else if paused + closed < excess.over_low {
                    if !holder.is_paused {
                        relief.pause.push(holder.key);
                    }
                    paused += holder.held;
                } else {
                    break;
                }
            }
        }
    }
    relief
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(over_low: usize, over_limit: usize) -> Excess {
        Excess { over_low, over_limit }
    }

    fn holders(held: &[usize], paused: &[usize]) -> Vec<Holder<usize>> {
        let holder = |(key, &held)| Holder { key, held, is_paused: paused.contains(&key) };
        held.iter().enumerate().map(holder).collect()
    }

    #[test]
    fn the_largest_are_paused_until_they_hold_what_is_too_much() {
        let relief = relief(Pressure::High, excess(100, 0), holders(&[10, 60, 5, 50, 40], &[3]));
        assert_eq!(relief.pause, [1], "60 and 50 hold 110; 50 is paused already");
        assert!(relief.close.is_empty() && relief.resume.is_empty());
    }

    #[test]
    fn over_the_limit_the_worst_is_closed_and_no_more_than_needed() {
        let relief = relief(Pressure::Over, excess(100, 30), holders(&[10, 60, 5, 50, 40], &[1]));
        assert_eq!(relief.close, [1]);
        assert_eq!(relief.pause, [3], "what is left of the excess");
    }

    #[test]
    fn nothing_changes_between_the_marks_and_all_go_on_below() {
        let paused = holders(&[10, 60, 0], &[1, 2]);
        let kept = relief(Pressure::Kept, excess(30, 0), paused.clone());
        assert!(kept.resume.is_empty() && kept.pause.is_empty() && kept.close.is_empty());
        assert_eq!(relief(Pressure::Low, excess(0, 0), paused).resume, [1, 2]);
    }

    #[test]
    fn one_that_holds_nothing_is_left_alone() {
        let relief = relief(Pressure::Over, excess(1000, 1000), holders(&[0, 0], &[]));
        assert!(relief.pause.is_empty() && relief.close.is_empty());
    }
}
