//! The messages of one echoed connection: what is sent next, what must come back, what is timed.

use crate::pattern::{Pattern, Probe, is_checked};

/// Counts, checks and times the messages of a connection whose bytes come back in the order they were sent.
#[derive(Debug)]
pub(crate) struct Flow {
    depth: usize,
    size: usize,
    /// Messages sent, and messages wholly back.
    sent: u64,
    back: u64,
    /// Bytes received of message `back`.
    at: usize,
    /// Messages that may be sent in all.
    budget: u64,
    probe: Probe,
}

/// What came of some received bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Arrived {
    /// Messages that are whole now.
    pub(crate) whole: u64,
    /// The first message whose content is not what was sent.
    pub(crate) wrong: Option<u64>,
    /// The latency of the timed message, if it is among them.
    pub(crate) latency_ns: Option<u64>,
}

impl Flow {
    pub(crate) fn new(depth: usize, size: usize, budget: Option<u64>) -> Self {
        let budget = budget.unwrap_or(u64::MAX);
        Self { depth, size, sent: 0, back: 0, at: 0, budget, probe: Probe::new(depth) }
    }

    /// Takes the next messages to send: as many as the depth and the budget allow, at most `most`. Their indices
    /// are `sent..` before the call; message by message they are to be sent now.
    pub(crate) fn take(&mut self, most: u64, now: impl FnOnce() -> u64) -> std::ops::Range<u64> {
        let free = self.depth as u64 - self.in_flight();
        let first = self.sent;
        self.sent += free.min(most).min(self.budget - self.sent);
        self.probe.sending(first, self.sent, now);
        first..self.sent
    }

    /// Messages sent and not yet back.
    pub(crate) fn in_flight(&self) -> u64 {
        self.sent - self.back
    }

    /// Whether the budget is used up and all is back.
    pub(crate) fn is_finished(&self) -> bool {
        self.sent == self.budget && self.in_flight() == 0
    }

    /// Takes bytes that came back. More bytes than were sent count as wrong.
    pub(crate) fn arrived(&mut self, part: &[u8], pattern: &Pattern, now: impl FnOnce() -> u64) -> Arrived {
        let first = self.back;
        let wrong = self.first_wrong(part, pattern);
        let have = self.at + part.len();
        let whole = ((have / self.size) as u64).min(self.in_flight());
        self.at = have % self.size;
        self.back += whole;
        Arrived { whole, wrong, latency_ns: self.probe.received(first + whole, now) }
    }

    fn first_wrong(&self, part: &[u8], pattern: &Pattern) -> Option<u64> {
        let have = self.at + part.len();
        let end = self.back + have.div_ceil(self.size) as u64;
        if end > self.sent {
            return Some(self.sent);
        }
        let mut index = self.back;
        while index < end {
            if !is_checked(index, self.depth, self.size) {
                index = (index + 1).next_multiple_of(crate::pattern::SAMPLE_EVERY);
                continue;
            }
            // Where this message lies, counted from the first byte of message `back`.
            let start = (index - self.back) as usize * self.size;
            let from = start.max(self.at);
            let to = (start + self.size).min(have);
            if !pattern.matches(index, from - start, &part[from - self.at..to - self.at]) {
                return Some(index);
            }
            index += 1;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(size: usize, count: u64) -> Vec<u8> {
        let mut pattern = Pattern::new(size);
        (0..count).flat_map(|index| pattern.message(index).to_vec()).collect()
    }

    #[test]
    fn any_cut_of_the_stream_gives_the_same_messages() {
        let (size, count) = (10, 6);
        let bytes = stream(size, count);
        let pattern = Pattern::new(size);
        for first in 0..bytes.len() {
            for second in first..bytes.len() {
                let mut flow = Flow::new(count as usize, size, None);
                assert_eq!(flow.take(u64::MAX, || 0), 0..count);
                let mut whole = 0;
                for part in [&bytes[..first], &bytes[first..second], &bytes[second..]] {
                    let arrived = flow.arrived(part, &pattern, || 0);
                    assert_eq!(arrived.wrong, None, "cut at {first} and {second}");
                    whole += arrived.whole;
                }
                assert_eq!((whole, flow.in_flight()), (count, 0));
            }
        }
    }

    #[test]
    fn a_wrong_byte_in_a_checked_message_is_found_wherever_the_stream_is_cut() {
        let mut bytes = stream(10, 1);
        bytes[9] ^= 1;
        for cut in 0..=10 {
            let mut flow = Flow::new(1, 10, None);
            let _ = flow.take(1, || 0);
            let parts = [&bytes[..cut], &bytes[cut..]];
            let wrong = parts.iter().filter_map(|p| flow.arrived(p, &Pattern::new(10), || 0).wrong).next();
            assert_eq!(wrong, Some(0), "cut at {cut}");
        }
    }

    #[test]
    fn sampled_messages_far_into_a_stream_are_checked() {
        let mut bytes = stream(32, 200);
        bytes[128 * 32 + 20] ^= 1;
        let mut flow = Flow::new(200, 32, None);
        let _ = flow.take(200, || 0);
        assert_eq!(flow.arrived(&bytes, &Pattern::new(32), || 0).wrong, Some(128));
    }

    #[test]
    fn more_bytes_than_were_sent_are_wrong_and_do_not_count() {
        let mut flow = Flow::new(1, 10, None);
        let _ = flow.take(1, || 0);
        let arrived = flow.arrived(&stream(10, 2), &Pattern::new(10), || 0);
        assert_eq!((arrived.whole, arrived.wrong), (1, Some(1)));
        assert_eq!(flow.in_flight(), 0);
    }

    #[test]
    fn the_depth_and_the_budget_bound_what_is_sent() {
        let mut flow = Flow::new(4, 10, Some(6));
        assert_eq!(flow.take(u64::MAX, || 0), 0..4);
        assert_eq!(flow.take(u64::MAX, || 0), 4..4);
        let bytes = stream(10, 6);
        let pattern = Pattern::new(10);
        assert_eq!(flow.arrived(&bytes[..30], &pattern, || 0).whole, 3);
        assert_eq!(flow.take(u64::MAX, || 0), 4..6);
        assert!(!flow.is_finished());
        assert_eq!(flow.arrived(&bytes[30..], &pattern, || 0).whole, 3);
        assert!(flow.is_finished());
    }
}
