use super::Balancer;
use crate::{Snapshot, SnapshotId};

/// Any endpoint, as likely as its weight is great. A pick takes time in the logarithm of the endpoints.
#[derive(Debug)]
pub struct WeightedRandom {
    random: fastrand::Rng,
    of: Option<SnapshotId>,
    /// Sum of the weights up to and with each position.
    sums: Vec<u64>,
}

impl WeightedRandom {
    /// Seeded by the system.
    pub fn new() -> Self {
        Self::with(fastrand::Rng::new())
    }

    /// The same picks for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self::with(fastrand::Rng::with_seed(seed))
    }

    fn with(random: fastrand::Rng) -> Self {
        Self { random, of: None, sums: Vec::new() }
    }
}

impl Default for WeightedRandom {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for WeightedRandom {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        if self.of != Some(endpoints.id()) {
            self.sums.clear();
            self.sums.extend((0..endpoints.len()).scan(0, |sum, position| {
                *sum += endpoints.effective_weight(position);
                Some(*sum)
            }));
            self.of = Some(endpoints.id());
        }
        let total = *self.sums.last()?;
        let drawn = self.random.u64(..total);
        Some(self.sums.partition_point(|sum| *sum <= drawn))
    }
}
