//! The retransmission time-out from measured round trips (RFC 6298's filter, in whole milliseconds).

const INITIAL_RTO_MS: u32 = 200;
pub(super) const MAX_RTO_MS: u32 = 60_000;

#[derive(Debug)]
pub(super) struct RoundTrip {
    smoothed_ms: Option<u32>,
    variation_ms: u32,
    rto_ms: u32,
    min_rto_ms: u32,
    /// What the peer's tick and ours may add to a round trip.
    granularity_ms: u32,
    /// Who looks for bandwidth makes queues that lengthen the round trip: leave it half of it.
    makes_queues: bool,
}

impl RoundTrip {
    pub(super) fn new(min_rto_ms: u32, granularity_ms: u32, makes_queues: bool) -> Self {
        let rto_ms = INITIAL_RTO_MS.max(min_rto_ms);
        Self { smoothed_ms: None, variation_ms: 0, rto_ms, min_rto_ms, granularity_ms, makes_queues }
    }

    /// Takes the time-stamp that an acknowledgement echoes and gives the round trip in milliseconds; one that makes no
    /// sense is ignored.
    #[inline]
    pub(super) fn sample(&mut self, now_ms: u32, echoed_ms: u32) -> Option<u32> {
        let rtt = now_ms.wrapping_sub(echoed_ms);
        if rtt > MAX_RTO_MS {
            return None;
        }
        let smoothed = match self.smoothed_ms {
            None => {
                self.variation_ms = rtt / 2;
                rtt
            }
            Some(smoothed) => {
                self.variation_ms = (3 * self.variation_ms + smoothed.abs_diff(rtt)) / 4;
                (7 * smoothed + rtt) / 8
            }
        };
        let smoothed = smoothed.max(1);
        self.smoothed_ms = Some(smoothed);
        let queue_ms = if self.makes_queues { smoothed / 2 } else { 0 };
        let rto = smoothed + self.granularity_ms.max(4 * self.variation_ms).max(queue_ms);
        self.rto_ms = rto.clamp(self.min_rto_ms, MAX_RTO_MS);
        Some(rtt)
    }

    pub(super) const fn rto_ms(&self) -> u32 {
        self.rto_ms
    }

    pub(super) const fn smoothed_ms(&self) -> Option<u32> {
        self.smoothed_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_out_follows_the_round_trip_and_keeps_its_floor() {
        let mut round_trip = RoundTrip::new(30, 10, false);
        assert_eq!(round_trip.rto_ms(), 200);
        for _ in 0..100 {
            round_trip.sample(1_000, 950);
        }
        assert_eq!(round_trip.smoothed_ms(), Some(50));
        assert_eq!(round_trip.rto_ms(), 60, "smoothed plus the granularity once the variation is gone");
        for _ in 0..100 {
            round_trip.sample(1_000, 1_000);
        }
        assert_eq!(round_trip.rto_ms(), 30);
    }

    #[test]
    fn a_wrapped_time_stamp_is_measured_and_one_from_the_future_ignored() {
        let mut round_trip = RoundTrip::new(30, 10, false);
        round_trip.sample(5, u32::MAX - 4);
        assert_eq!(round_trip.smoothed_ms(), Some(10));
        round_trip.sample(5, 6);
        round_trip.sample(100_000, 5);
        assert_eq!(round_trip.smoothed_ms(), Some(10));
    }
}
