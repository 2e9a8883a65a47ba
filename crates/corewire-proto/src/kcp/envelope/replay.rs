//! Which datagrams of a sender were seen.

const WORDS: usize = 16;
const WINDOW: u64 = WORDS as u64 * 64;

/// Which of the last 1024 counters of a sender were seen.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// One more than the highest counter seen.
    end: u64,
    /// Bit `counter % WINDOW`, for counters from `end - WINDOW` to `end - 1`.
    bits: [u64; WORDS],
}

impl Seen {
    /// False when `counter` was inserted before or lies too far back.
    pub(super) fn insert(&mut self, counter: u64) -> bool {
        if counter >= self.end {
            // The counter after the last possible one is never sealed.
            let Some(end) = counter.checked_add(1) else { return false };
            let skipped = (counter - self.end).min(WINDOW);
            for back in 0..=skipped {
                self.set(counter - back, false);
            }
            self.end = end;
        } else if self.end - counter > WINDOW || self.is_set(counter) {
            return false;
        }
        self.set(counter, true);
        true
    }

    fn is_set(&self, counter: u64) -> bool {
        let bit = counter % WINDOW;
        self.bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, counter: u64, value: bool) {
        let bit = counter % WINDOW;
        let word = &mut self.bits[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(value) << (bit % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_takes_each_counter_once_in_any_order() {
        let mut seen = Seen::default();
        assert!(seen.insert(5) && seen.insert(3) && !seen.insert(5) && !seen.insert(3) && seen.insert(4));
        assert!(seen.insert(5 + WINDOW - 1) && !seen.insert(5) && seen.insert(6));
        assert!(seen.insert(10 * WINDOW) && !seen.insert(9 * WINDOW) && seen.insert(9 * WINDOW + 1));
        assert!(!seen.insert(10 * WINDOW) && seen.insert(10 * WINDOW - 1));
        assert!(seen.insert(u64::MAX - 1) && !seen.insert(u64::MAX - 1) && !seen.insert(u64::MAX));
    }
}
