//! One direction of a byte stream that takes its time: bytes come out late, but all and in order.

use std::collections::VecDeque;

use crate::rng::Rng;

/// How a [`StreamLink`] treats bytes. The default is perfect: no delay, unlimited rate.
#[derive(Debug, Clone, PartialEq)]
pub struct StreamConfig {
    /// Propagation delay in microseconds.
    pub delay_us: u64,
    /// Up to this many microseconds more, uniformly, for each piece; no piece overtakes another.
    pub jitter_us: u64,
    /// Bits per second; `None` is unlimited.
    pub bandwidth_bps: Option<u64>,
    /// Bytes on their way at which [`StreamLink::is_full`] says so; default 1 MiB. A rate needs its product with the
    /// delay.
    pub window_bytes: usize,
}

impl Default for StreamConfig {
    fn default() -> Self {
        Self { delay_us: 0, jitter_us: 0, bandwidth_bps: None, window_bytes: 1 << 20 }
    }
}

/// What comes out of a [`StreamLink`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Arrival {
    /// The next bytes.
    Bytes(Vec<u8>),
    /// The sender has finished: nothing follows.
    End,
    /// The sender is gone without finishing: nothing follows.
    Reset,
}

/// One direction of a byte stream under virtual time (microseconds).
///
/// The same configuration, seed and calls give the same times.
///
/// ```
/// use corewire_link::stream::{Arrival, StreamConfig, StreamLink};
/// let mut link = StreamLink::new(StreamConfig { delay_us: 500, ..StreamConfig::default() }, 1);
/// link.send(0, b"hello");
/// link.finish(10);
/// assert_eq!(link.receive(499), None);
/// assert_eq!(link.receive(500), Some(Arrival::Bytes(b"hello".to_vec())));
/// assert_eq!(link.next_arrival_us(), Some(510));
/// assert_eq!(link.receive(510), Some(Arrival::End));
/// ```
#[derive(Debug)]
pub struct StreamLink {
    config: StreamConfig,
    rng: Rng,
    on_the_way: VecDeque<(u64, Arrival)>,
    on_the_way_bytes: usize,
    last_arrival_us: u64,
    line_free_at_ns: u64,
    is_over: bool,
    is_reset: bool,
}

/// What a piece costs beside its bytes, so that many small ones do not take memory without bound.
const PIECE_BYTES: usize = 64;

impl StreamLink {
    /// A path with these properties, its chances drawn from `seed`.
    pub fn new(config: StreamConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            on_the_way: VecDeque::new(),
            on_the_way_bytes: 0,
            last_arrival_us: 0,
            line_free_at_ns: 0,
            is_over: false,
            is_reset: false,
        }
    }

    /// Puts bytes on the path at `now_us`. They are taken even when it [is full](Self::is_full): hold the sender back
    /// then. What is sent after the end is dropped.
    pub fn send(&mut self, now_us: u64, bytes: &[u8]) {
        if !bytes.is_empty() && !self.is_over {
            let leaves_us = self.serialise(now_us, bytes.len());
            self.on_the_way_bytes += bytes.len() + PIECE_BYTES;
            self.push(leaves_us, Arrival::Bytes(bytes.to_vec()));
        }
    }

    /// The sender has finished.
    pub fn finish(&mut self, now_us: u64) {
        if !std::mem::replace(&mut self.is_over, true) {
            self.end(now_us, Arrival::End);
        }
    }

    /// The sender is gone. That may follow the end, too.
    pub fn reset(&mut self, now_us: u64) {
        self.is_over = true;
        if !std::mem::replace(&mut self.is_reset, true) {
            self.end(now_us, Arrival::Reset);
        }
    }

    /// So many bytes are on their way that the sender should wait.
    pub const fn is_full(&self) -> bool {
        self.on_the_way_bytes >= self.config.window_bytes
    }

    /// When something comes out next, in microseconds; `None` when nothing is under way.
    pub fn next_arrival_us(&self) -> Option<u64> {
        self.on_the_way.front().map(|(at, _)| *at)
    }

    /// The next that has come out by `now_us`.
    pub fn receive(&mut self, now_us: u64) -> Option<Arrival> {
        if self.next_arrival_us()? > now_us {
            return None;
        }
        let (_, arrival) = self.on_the_way.pop_front()?;
        if let Arrival::Bytes(bytes) = &arrival {
            self.on_the_way_bytes -= bytes.len() + PIECE_BYTES;
        }
        Some(arrival)
    }

    fn end(&mut self, now_us: u64, arrival: Arrival) {
        let leaves_us = self.serialise(now_us, 0);
        self.push(leaves_us, arrival);
    }

    fn push(&mut self, leaves_us: u64, arrival: Arrival) {
        let jitter = if self.config.jitter_us > 0 { self.rng.below(self.config.jitter_us + 1) } else { 0 };
        let at = leaves_us.saturating_add(self.config.delay_us).saturating_add(jitter);
        self.last_arrival_us = self.last_arrival_us.max(at);
        self.on_the_way.push_back((self.last_arrival_us, arrival));
    }

    /// When the last bit has left the sender.
    fn serialise(&mut self, now_us: u64, len: usize) -> u64 {
        let Some(bandwidth_bps) = self.config.bandwidth_bps else { return now_us };
        let takes_ns = len as u128 * 8_000_000_000 / u128::from(bandwidth_bps.max(1));
        let starts_ns = self.line_free_at_ns.max(now_us.saturating_mul(1000));
        self.line_free_at_ns = starts_ns.saturating_add(u64::try_from(takes_ns).unwrap_or(u64::MAX));
        self.line_free_at_ns.div_ceil(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(link: &mut StreamLink) -> Vec<(u64, Arrival)> {
        let mut seen = Vec::new();
        while let Some(at) = link.next_arrival_us() {
            seen.push((at, link.receive(at).unwrap()));
        }
        seen
    }

    fn bytes(len: usize) -> Arrival {
        Arrival::Bytes(vec![7; len])
    }

    #[test]
    fn jitter_overtakes_nothing() {
        let config = StreamConfig { delay_us: 1000, jitter_us: 5000, ..StreamConfig::default() };
        let mut link = StreamLink::new(config, 3);
        (0..100_u8).for_each(|n| link.send(u64::from(n) * 10, &[n]));
        link.finish(1000);
        let seen = all(&mut link);
        assert!(seen.is_sorted_by_key(|(at, _)| *at));
        let values = seen.iter().filter_map(|(_, arrival)| match arrival {
            Arrival::Bytes(bytes) => Some(bytes[0]),
            _ => None,
        });
        assert!(values.eq(0..100));
        assert_eq!(seen.last().unwrap().1, Arrival::End);
        assert!(seen[0].0 >= 1000 && seen[100].0 <= 7000);
    }

    #[test]
    fn bandwidth_spreads_bytes_and_the_end_comes_after_them() {
        // 8 Mbit/s: 1000 bytes take 1 ms.
        let config = StreamConfig { bandwidth_bps: Some(8_000_000), ..StreamConfig::default() };
        let mut link = StreamLink::new(config, 1);
        link.send(0, &[7; 1000]);
        link.send(0, &[7; 2000]);
        link.finish(0);
        assert_eq!(all(&mut link), [(1000, bytes(1000)), (3000, bytes(2000)), (3000, Arrival::End)]);
    }

    #[test]
    fn a_window_fills_by_bytes_and_by_pieces_and_empties_again() {
        let config = StreamConfig { window_bytes: 1000, delay_us: 1, ..StreamConfig::default() };
        let mut link = StreamLink::new(config, 1);
        link.send(0, &[7; 900]);
        assert!(!link.is_full());
        link.send(0, &[7; 100]);
        assert!(link.is_full());
        while link.receive(1).is_some() {}
        (0..14).for_each(|_| link.send(1, &[7]));
        assert!(!link.is_full());
        link.send(1, &[7; 2]);
        link.send(1, &[7; 2]);
        assert!(link.is_full());
    }

    #[test]
    fn a_reset_follows_an_end_and_nothing_a_reset() {
        let mut link = StreamLink::new(StreamConfig::default(), 1);
        link.send(0, &[7]);
        link.finish(0);
        link.send(0, &[7]);
        link.reset(0);
        link.finish(0);
        link.reset(0);
        assert_eq!(all(&mut link), [(0, bytes(1)), (0, Arrival::End), (0, Arrival::Reset)]);
    }
}
