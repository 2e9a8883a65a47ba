//! One direction of an in-memory datagram path that loses, repeats, delays and reorders by a seed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use crate::rng::Rng;

/// How a [`Link`] treats datagrams. The default is perfect: no delay, no loss, unlimited rate.
#[derive(Debug, Clone, PartialEq)]
pub struct LinkConfig {
    /// Share of datagrams that vanish, 0.0 to 1.0.
    pub loss: f64,
    /// Share of datagrams that arrive twice, 0.0 to 1.0; each copy has a jitter of its own.
    pub duplicate: f64,
    /// Share of datagrams that are held back by [`reorder_by_us`](Self::reorder_by_us), 0.0 to 1.0.
    pub reorder: f64,
    /// How long a reordered datagram is held back, in microseconds.
    pub reorder_by_us: u64,
    /// Propagation delay in microseconds.
    pub delay_us: u64,
    /// Up to this many microseconds more, uniformly; more than the spacing of datagrams reorders them.
    pub jitter_us: u64,
    /// Bits per second; a datagram occupies the line for its length over this rate. `None` is unlimited.
    pub bandwidth_bps: Option<u64>,
    /// Bytes that may wait for the line when there is a bandwidth; a datagram beyond that is dropped.
    pub queue_bytes: usize,
    /// Longer datagrams are dropped. In bytes.
    pub mtu: usize,
    /// Times (microseconds) at which everything that is sent vanishes.
    pub outages: Vec<Range<u64>>,
}

impl Default for LinkConfig {
    fn default() -> Self {
        Self {
            loss: 0.0,
            duplicate: 0.0,
            reorder: 0.0,
            reorder_by_us: 0,
            delay_us: 0,
            jitter_us: 0,
            bandwidth_bps: None,
            queue_bytes: 256 * 1024,
            mtu: 65_507,
            outages: Vec::new(),
        }
    }
}

impl LinkConfig {
    /// A path that loses `loss` (0.0 to 1.0) of the datagrams and takes half of `rtt_us` one way.
    pub fn lossy(loss: f64, rtt_us: u64) -> Self {
        Self { loss, delay_us: rtt_us / 2, ..Self::default() }
    }
}

/// What became of the datagrams that were sent into a [`Link`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LinkStats {
    /// Datagrams given to [`Link::send`].
    pub sent: u64,
    /// Bytes given to [`Link::send`].
    pub sent_bytes: u64,
    /// Datagrams that came out, copies included.
    pub delivered: u64,
    /// Lost by chance.
    pub lost: u64,
    /// Second copies made.
    pub duplicated: u64,
    /// Held back.
    pub reordered: u64,
    /// Dropped because the line's queue was full.
    pub dropped_queue: u64,
    /// Dropped because they were over the MTU.
    pub dropped_mtu: u64,
    /// Dropped in an outage.
    pub dropped_outage: u64,
}

/// One direction of a datagram path under virtual time (microseconds).
///
/// The same configuration, seed and calls give the same fate to every datagram.
///
/// ```
/// use corewire_link::link::{Link, LinkConfig};
/// let mut link = Link::new(LinkConfig { delay_us: 500, ..LinkConfig::default() }, 1);
/// link.send(0, b"hello");
/// assert_eq!(link.next_arrival_us(), Some(500));
/// assert_eq!(link.receive(499), None);
/// assert_eq!(link.receive(500).as_deref(), Some(&b"hello"[..]));
/// ```
#[derive(Debug)]
pub struct Link {
    config: LinkConfig,
    rng: Rng,
    in_flight: BinaryHeap<Reverse<(u64, u64, Vec<u8>)>>,
    sequence: u64,
    line_free_at_ns: u64,
    stats: LinkStats,
}

impl Link {
    /// A path with these properties, its chances drawn from `seed`.
    pub fn new(config: LinkConfig, seed: u64) -> Self {
        Self {
            config,
            rng: Rng::new(seed),
            in_flight: BinaryHeap::new(),
            sequence: 0,
            line_free_at_ns: 0,
            stats: LinkStats::default(),
        }
    }

    /// Changes the path from now on; what is under way keeps its arrival time.
    pub fn set_config(&mut self, config: LinkConfig) {
        self.config = config;
    }

    /// Puts a datagram on the path at `now_us`.
    pub fn send(&mut self, now_us: u64, datagram: &[u8]) {
        self.stats.sent += 1;
        self.stats.sent_bytes += datagram.len() as u64;
        if datagram.len() > self.config.mtu {
            self.stats.dropped_mtu += 1;
            return;
        }
        if self.config.outages.iter().any(|outage| outage.contains(&now_us)) {
            self.stats.dropped_outage += 1;
            return;
        }
        let Some(leaves_us) = self.serialise(now_us, datagram.len()) else {
            self.stats.dropped_queue += 1;
            return;
        };
        if self.rng.chance(self.config.loss) {
            self.stats.lost += 1;
            return;
        }
        if self.rng.chance(self.config.duplicate) {
            self.stats.duplicated += 1;
            self.enqueue(leaves_us, datagram);
        }
        self.enqueue(leaves_us, datagram);
    }

    /// When the next datagram comes out, in microseconds; `None` when nothing is under way.
    pub fn next_arrival_us(&self) -> Option<u64> {
        self.in_flight.peek().map(|Reverse((at, _, _))| *at)
    }

    /// The next datagram that has come out by `now_us`.
    pub fn receive(&mut self, now_us: u64) -> Option<Vec<u8>> {
        if self.next_arrival_us()? > now_us {
            return None;
        }
        let Reverse((_, _, datagram)) = self.in_flight.pop()?;
        self.stats.delivered += 1;
        Some(datagram)
    }

    /// Counts so far.
    pub fn stats(&self) -> LinkStats {
        self.stats
    }

    /// When the last bit has left the sender, or `None` when the queue before the line is full.
    fn serialise(&mut self, now_us: u64, len: usize) -> Option<u64> {
        let Some(bandwidth_bps) = self.config.bandwidth_bps else {
            return Some(now_us);
        };
        let now_ns = now_us * 1000;
        let starts_ns = self.line_free_at_ns.max(now_ns);
        let waiting_bytes = u128::from(starts_ns - now_ns) * u128::from(bandwidth_bps) / 8_000_000_000;
        if waiting_bytes + len as u128 > self.config.queue_bytes as u128 {
            return None;
        }
        let takes_ns = len as u128 * 8_000_000_000 / u128::from(bandwidth_bps.max(1));
        self.line_free_at_ns = starts_ns + takes_ns as u64;
        Some(self.line_free_at_ns.div_ceil(1000))
    }

    fn enqueue(&mut self, leaves_us: u64, datagram: &[u8]) {
        let mut at = leaves_us + self.config.delay_us;
        if self.config.jitter_us > 0 {
            at += self.rng.below(self.config.jitter_us + 1);
        }
        if self.rng.chance(self.config.reorder) {
            self.stats.reordered += 1;
            at += self.config.reorder_by_us;
        }
        self.sequence += 1;
        self.in_flight.push(Reverse((at, self.sequence, datagram.to_vec())));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrivals(link: &mut Link) -> Vec<(u64, u8)> {
        let mut seen = Vec::new();
        while let Some(at) = link.next_arrival_us() {
            seen.push((at, link.receive(at).unwrap()[0]));
        }
        seen
    }

    #[test]
    fn a_seed_replays_every_fate() {
        let config = LinkConfig {
            loss: 0.2,
            duplicate: 0.1,
            reorder: 0.1,
            reorder_by_us: 5_000,
            delay_us: 10_000,
            jitter_us: 3_000,
            ..LinkConfig::default()
        };
        let run = |seed| {
            let mut link = Link::new(config.clone(), seed);
            (0..200u8).for_each(|n| link.send(u64::from(n) * 100, &[n]));
            arrivals(&mut link)
        };
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn loss_and_duplication_come_at_the_asked_rate() {
        let mut link = Link::new(LinkConfig { loss: 0.1, duplicate: 0.05, ..LinkConfig::default() }, 9);
        (0..10_000).for_each(|_| link.send(0, b"x"));
        let stats = link.stats();
        assert!((900..1_100).contains(&stats.lost), "{stats:?}");
        assert!((380..520).contains(&stats.duplicated), "{stats:?}");
        assert_eq!(arrivals(&mut link).len() as u64, 10_000 - stats.lost + stats.duplicated);
    }

    #[test]
    fn bandwidth_spaces_datagrams_and_a_full_queue_drops() {
        // 8 Mbit/s: 1000 bytes take 1 ms.
        let config =
            LinkConfig { bandwidth_bps: Some(8_000_000), queue_bytes: 3_000, ..LinkConfig::default() };
        let mut link = Link::new(config, 1);
        (0..5u8).for_each(|n| link.send(0, &[n; 1000]));
        assert_eq!(link.stats().dropped_queue, 2);
        assert_eq!(arrivals(&mut link), [(1_000, 0), (2_000, 1), (3_000, 2)]);
    }

    #[test]
    fn outage_and_mtu_drop() {
        let config =
            LinkConfig { outages: vec![Range { start: 100, end: 200 }], mtu: 10, ..LinkConfig::default() };
        let mut link = Link::new(config, 1);
        link.send(99, &[1]);
        link.send(100, &[2]);
        link.send(199, &[3]);
        link.send(200, &[4]);
        link.send(200, &[5; 11]);
        assert_eq!(arrivals(&mut link), [(99, 1), (200, 4)]);
        assert_eq!((link.stats().dropped_outage, link.stats().dropped_mtu), (2, 1));
    }

    #[test]
    fn a_held_back_datagram_is_overtaken() {
        let config = LinkConfig { reorder: 1.0, reorder_by_us: 1_000, ..LinkConfig::default() };
        let mut link = Link::new(config, 1);
        link.send(0, &[1]);
        link.set_config(LinkConfig::default());
        link.send(10, &[2]);
        assert_eq!(arrivals(&mut link), [(10, 2), (1_000, 1)]);
    }
}
