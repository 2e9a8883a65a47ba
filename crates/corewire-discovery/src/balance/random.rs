use super::{Balancer, any};
use crate::Snapshot;

/// Any endpoint, each as likely, whatever its weight.
#[derive(Debug)]
pub struct Random {
    random: fastrand::Rng,
}

impl Random {
    /// Seeded by the system.
    pub fn new() -> Self {
        Self { random: fastrand::Rng::new() }
    }

    /// The same picks for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed) }
    }
}

impl Default for Random {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for Random {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        any(endpoints, &mut self.random)
    }
}
