use super::flight::Load;
use super::slots::Slots;
use super::{Balancer, Flight, any};
use crate::Snapshot;
use std::sync::Arc;

/// Of two endpoints drawn at random, the one that promises to answer sooner: by its moving average of latency, its
/// calls in flight and its weight. Costs the same for any number of endpoints.
#[derive(Debug)]
pub struct TwoChoices {
    random: fastrand::Rng,
    loads: Slots<Arc<Load>>,
}

impl TwoChoices {
    /// Seeded by the system.
    pub fn new() -> Self {
        Self { random: fastrand::Rng::new(), loads: Slots::new() }
    }

    /// The same picks for the same seed and feedback.
    pub fn seeded(seed: u64) -> Self {
        Self { random: fastrand::Rng::with_seed(seed), loads: Slots::new() }
    }

    /// Whether the first is the better choice.
    fn prefers(&self, endpoints: &Snapshot, first: usize, second: usize) -> Option<bool> {
        let (a, b) = (self.loads.get(first)?, self.loads.get(second)?);
        // An endpoint nobody has heard from counts as fast as the other, so that it is tried but not flooded.
        let (latency_a, latency_b) = match (a.latency_ns(), b.latency_ns()) {
            (0, 0) => (1, 1),
            (0, known) | (known, 0) => (known, known),
            both => both,
        };
        let cost_a = u128::from(latency_a) * u128::from(a.in_flight() + 1);
        let cost_b = u128::from(latency_b) * u128::from(b.in_flight() + 1);
        let (weight_a, weight_b) = (endpoints.effective_weight(first), endpoints.effective_weight(second));
        let first_is_better = cost_a * u128::from(weight_b) <= cost_b * u128::from(weight_a);
        let loser = if first_is_better { b } else { a };
        if loser.in_flight() == 0 {
            loser.fade();
        }
        Some(first_is_better)
    }
}

impl Default for TwoChoices {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for TwoChoices {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        self.loads.sync(endpoints, |_| Arc::default());
        let first = any(endpoints, &mut self.random)?;
        let second = (0..DRAWS_FOR_ANOTHER)
            .filter_map(|_| any(endpoints, &mut self.random))
            .find(|second| *second != first);
        match second {
            Some(second) => Some(if self.prefers(endpoints, first, second)? { first } else { second }),
            None => Some(first),
        }
    }

    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        self.loads.sync(endpoints, |_| Arc::default());
        self.loads.get(position).map_or_else(Flight::untracked, Flight::of)
    }
}

/// Draws for a second endpoint; with two of them, all miss once in 256 picks, and then the first will do.
const DRAWS_FOR_ANOTHER: usize = 8;
