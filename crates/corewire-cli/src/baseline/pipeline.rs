//! Where a connection of the load stands in its exchange.

use crate::exchange::Exchange;

/// The messages of one connection, of which `depth` are in flight; rounds follow each other without overlap.
#[derive(Debug)]
pub(super) struct Pipeline {
    exchange: Exchange,
    depth: u64,
    /// Of this round: messages handed over, messages back, bytes allowed, bytes back.
    sent: u64,
    back: u64,
    allowed: u64,
    received: u64,
}

/// What came of bytes that were received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Arrived {
    /// Messages that are whole now.
    pub(super) messages: u64,
    /// Whether nothing is in flight: a round is over, or all messages without rounds are back.
    pub(super) is_idle: bool,
}

impl Pipeline {
    pub(super) fn new(exchange: Exchange, depth: usize) -> Self {
        Self { exchange, depth: depth as u64, sent: 0, back: 0, allowed: 0, received: 0 }
    }

    /// Whether what has begun is to be ended when nothing new may begin.
    pub(super) fn has_rounds(&self) -> bool {
        self.exchange.round().is_some()
    }

    /// Messages and bytes that there is room for.
    #[inline]
    pub(super) fn take(&mut self) -> (u64, u64) {
        let depth = if self.exchange.is_open(self.received) { self.depth } else { 0 };
        let sent = self.back.saturating_add(depth).min(self.exchange.round().unwrap_or(u64::MAX));
        let allowed = self.exchange.request_bytes_by(sent);
        let more = (sent - self.sent, allowed - self.allowed);
        (self.sent, self.allowed) = (sent, allowed);
        more
    }

    /// Takes bytes that came back. After the end of a round the next may be taken.
    #[inline]
    pub(super) fn arrived(&mut self, bytes: usize) -> Arrived {
        self.received += bytes as u64;
        let back = self.exchange.messages_in(self.received);
        let messages = back - std::mem::replace(&mut self.back, back);
        if self.received == self.exchange.response_bytes_of_round() {
            (self.sent, self.back, self.allowed, self.received) = (0, 0, 0, 0);
            return Arrived { messages, is_idle: true };
        }
        Arrived { messages, is_idle: !self.has_rounds() && self.back == self.sent }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::exchange;

    #[test]
    fn messages_without_end_keep_the_pipeline_full() {
        let mut pipeline = Pipeline::new(Exchange::endless(10, 3), 4);
        assert_eq!(pipeline.take(), (4, 40));
        assert_eq!(pipeline.take(), (0, 0));
        assert_eq!(pipeline.arrived(7), Arrived { messages: 2, is_idle: false });
        assert_eq!(pipeline.take(), (2, 20));
        assert_eq!(pipeline.arrived(11), Arrived { messages: 4, is_idle: true });
    }

    #[test]
    fn a_round_opens_with_a_full_pipeline_and_closes_with_its_last_message() {
        let mut pipeline = Pipeline::new(exchange("5:1,3x10:7,4:2").unwrap(), 2);
        for _ in 0..2 {
            assert_eq!(pipeline.take(), (2, 25));
            assert_eq!(pipeline.arrived(1), Arrived { messages: 0, is_idle: false });
            assert_eq!(pipeline.arrived(7), Arrived { messages: 1, is_idle: false });
            assert_eq!(pipeline.take(), (1, 14));
            assert_eq!(pipeline.arrived(14), Arrived { messages: 2, is_idle: false });
            assert_eq!(pipeline.take(), (0, 0));
            assert_eq!(pipeline.arrived(2), Arrived { messages: 0, is_idle: true });
        }
    }

    #[test]
    fn messages_wait_for_the_opening_where_it_is_told() {
        let mut pipeline = Pipeline::new(exchange("5:1!,3x10:7,4:2").unwrap(), 2);
        for _ in 0..2 {
            assert_eq!(pipeline.take(), (0, 5));
            assert_eq!(pipeline.take(), (0, 0));
            assert_eq!(pipeline.arrived(1), Arrived { messages: 0, is_idle: false });
            assert_eq!(pipeline.take(), (2, 20));
            assert_eq!(pipeline.arrived(14), Arrived { messages: 2, is_idle: false });
            assert_eq!(pipeline.take(), (1, 14));
            assert_eq!(pipeline.arrived(9), Arrived { messages: 1, is_idle: true });
        }
    }

    #[test]
    fn both_ends_agree_about_every_byte_wherever_the_stream_is_cut() {
        for (cut, written) in (1..40).flat_map(|cut| [(cut, "5:1,3x10:7,4:2"), (cut, "5:1!,3x10:7,4:2")]) {
            let (rounds, mut there, mut back) = (exchange(written).unwrap(), 0, 0);
            let mut load = Pipeline::new(rounds, 2);
            for _ in 0..3 {
                let mut is_idle = false;
                while !is_idle {
                    there += load.take().1;
                    assert!(rounds.due(there) > back, "both wait for the other");
                    while back < rounds.due(there) {
                        let part = (rounds.due(there) - back).min(cut);
                        back += part;
                        is_idle = load.arrived(part as usize).is_idle;
                    }
                }
            }
            assert_eq!((there, back), (3 * 39, 3 * 24), "cut into {cut}");
        }
    }
}
