//! Sends no faster than a rate.

/// Beyond what time has allowed, so many segments may leave at once.
const BURST_SEGMENTS: u64 = 16;
/// How much time may be made up for that passed without sending, in milliseconds: a timer comes late.
const BURST_MS: u64 = 4;

#[derive(Debug)]
pub(super) struct Pacer {
    /// Bytes per second; `None`: as fast as wanted.
    rate: Option<u64>,
    /// Bytes that may be sent now; below 0 when more was sent.
    credit: i64,
    at: u64,
    segment: u64,
}

impl Pacer {
    pub(super) const fn new(segment: u64) -> Self {
        Self { rate: None, credit: 0, at: 0, segment }
    }

    pub(super) const fn set_rate(&mut self, rate: Option<u64>) {
        self.rate = rate;
    }

    pub(super) fn advance(&mut self, now: u64) {
        let passed = now.saturating_sub(self.at);
        self.at = now;
        let Some(rate) = self.rate else {
            self.credit = (BURST_SEGMENTS * self.segment) as i64;
            return;
        };
        if passed == 0 {
            return;
        }
        let burst = rate * BURST_MS / 1000 + BURST_SEGMENTS * self.segment;
        let earned = rate.saturating_mul(passed.min(60_000)) / 1000;
        self.credit = self.credit.saturating_add(earned as i64).min(burst as i64);
    }

    #[inline]
    pub(super) const fn has_credit(&self) -> bool {
        self.rate.is_none() || self.credit > 0
    }

    #[inline]
    pub(super) const fn spend(&mut self, bytes: u64) {
        self.credit = self.credit.saturating_sub(bytes as i64);
    }

    /// When there is credit again.
    pub(super) fn credit_at(&self, now: u64) -> u64 {
        match self.rate {
            Some(rate) if self.credit <= 0 => {
                now + ((1 + self.credit.unsigned_abs()) * 1000).div_ceil(rate.max(1)).max(1)
            }
            _ => now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_earns_credit_up_to_a_burst() {
        let mut pacer = Pacer::new(1000);
        assert!(pacer.has_credit());
        pacer.advance(5);
        pacer.set_rate(Some(1_000_000));
        pacer.spend(16_000);
        assert!(!pacer.has_credit());
        assert_eq!(pacer.credit_at(5), 6);
        pacer.spend(3_500);
        assert_eq!(pacer.credit_at(5), 9);
        pacer.advance(9);
        assert!(pacer.has_credit());
        pacer.advance(10_000);
        pacer.spend(20_000);
        assert!(!pacer.has_credit(), "4 ms and 16 segments are a burst");
    }
}
