use super::flight::Load;
use super::slots::Slots;
use super::{Balancer, Flight};
use crate::Snapshot;
use std::sync::Arc;

/// The same endpoint for the same key, as long as it is there and is not overloaded.
///
/// Each endpoint has points on a ring, in proportion to its weight; a key belongs to the first point after it.
/// When an endpoint comes or goes only its own share of the keys moves. The load is bounded: an endpoint with more
/// than 1.25 times its share of the calls in flight is passed over for the next on the ring. Equal instance ids
/// and keys give equal choices in every process. A pick without a key draws one.
#[derive(Debug)]
pub struct ConsistentHash {
    random: fastrand::Rng,
    loads: Slots<Arc<Load>>,
    ring: Vec<(u64, u32)>,
    load_factor_percent: u64,
}

/// Points of an endpoint of average weight.
const POINTS: u64 = 160;
/// Most points of all endpoints together; above it each has fewer.
const POINTS_MAX: u64 = 1 << 20;

impl ConsistentHash {
    /// Seeded by the system; the seed only matters to picks without a key.
    pub fn new() -> Self {
        Self::with(fastrand::Rng::new())
    }

    /// The same picks for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self::with(fastrand::Rng::with_seed(seed))
    }

    /// Sets how much of its share of the calls in flight an endpoint may have, in percent: 101 or more, 125 if
    /// not set. The greater, the more faithful to keys; the smaller, the more even.
    #[must_use]
    pub fn with_load_factor_percent(mut self, percent: u32) -> Self {
        self.load_factor_percent = u64::from(percent).max(101);
        self
    }

    fn with(random: fastrand::Rng) -> Self {
        Self { random, loads: Slots::new(), ring: Vec::new(), load_factor_percent: 125 }
    }

    fn sync(&mut self, endpoints: &Snapshot) {
        if !self.loads.sync(endpoints, |_| Arc::default()) {
            return;
        }
        self.ring.clear();
        let count = endpoints.len() as u64;
        let total =
            (0..endpoints.len()).map(|position| endpoints.effective_weight(position)).sum::<u64>().max(1);
        let average = POINTS.min(POINTS_MAX / count.max(1)).max(1);
        for (position, endpoint) in endpoints.iter().enumerate() {
            let weight = endpoints.effective_weight(position);
            if weight == 0 {
                continue;
            }
            let seed = hash(endpoint.instance().as_bytes());
            let points = (average * weight * count / total).max(1);
            self.ring.extend((0..points).map(|point| (mix(seed ^ mix(point)), position as u32)));
        }
        self.ring.sort_unstable();
    }

    fn walk(&mut self, endpoints: &Snapshot, key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        self.sync(endpoints);
        let key = mix(key.unwrap_or_else(|| self.random.u64(..)));
        let start = self.ring.partition_point(|(point, _)| *point < key);
        let (before, from) = self.ring.split_at(start);
        let candidates = || {
            from.iter().chain(before).map(|(_, position)| *position as usize).filter(|p| !avoid.contains(p))
        };
        let first = candidates().next()?;
        if self.loads.get(first)?.in_flight() == 0 {
            return Some(first);
        }
        let in_flight: u64 = self.loads.iter().map(|load| load.in_flight()).sum();
        let total =
            endpoints.total_weight().max(endpoints.len() as u64 * u64::from(endpoints.total_weight() == 0));
        let has_room = |position: usize| {
            let weight = u128::from(endpoints.effective_weight(position));
            let share = u128::from(in_flight + 1) * u128::from(self.load_factor_percent) * weight;
            let limit = share.div_ceil(u128::from(total) * 100);
            self.loads.get(position).is_some_and(|load| u128::from(load.in_flight()) < limit)
        };
        Some(candidates().find(|position| has_room(*position)).unwrap_or(first))
    }
}

impl Default for ConsistentHash {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for ConsistentHash {
    fn pick(&mut self, endpoints: &Snapshot, key: Option<u64>) -> Option<usize> {
        self.walk(endpoints, key, &[])
    }

    fn pick_avoiding(&mut self, endpoints: &Snapshot, key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        self.walk(endpoints, key, avoid)
    }

    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        self.sync(endpoints);
        self.loads.get(position).map_or_else(Flight::untracked, Flight::of)
    }
}

/// FNV-1a with a final mix; the choice is part of the behaviour, since processes must agree.
fn hash(bytes: &[u8]) -> u64 {
    let folded = bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    });
    mix(folded)
}

/// The finalizer of SplitMix64: every bit of the input changes half of the output.
fn mix(value: u64) -> u64 {
    let value = value.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}
