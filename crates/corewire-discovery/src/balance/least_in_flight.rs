use super::flight::Load;
use super::slots::Slots;
use super::{Balancer, Flight, after};
use crate::Snapshot;
use std::sync::Arc;

/// The endpoint with the fewest calls in flight for its weight; among equals, each in turn.
///
/// A pick looks at every endpoint; for thousands of them [`TwoChoices`](super::TwoChoices) costs less.
#[derive(Debug)]
pub struct LeastInFlight {
    loads: Slots<Arc<Load>>,
    last: usize,
}

impl LeastInFlight {
    /// With nothing in flight.
    pub fn new() -> Self {
        Self { loads: Slots::new(), last: usize::MAX - 1 }
    }

    fn least(&mut self, endpoints: &Snapshot, avoid: &[usize]) -> Option<usize> {
        self.loads.sync(endpoints, |_| Arc::default());
        let mut best: Option<(usize, u64, u64)> = None;
        for position in after(endpoints, self.last).filter(|position| !avoid.contains(position)) {
            let calls = self.loads.get(position)?.in_flight() + 1;
            let weight = endpoints.effective_weight(position);
            if best.is_none_or(|(_, best_calls, best_weight)| calls * best_weight < best_calls * weight) {
                best = Some((position, calls, weight));
            }
        }
        self.last = best?.0;
        Some(self.last)
    }
}

impl Default for LeastInFlight {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for LeastInFlight {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        self.least(endpoints, &[])
    }

    fn pick_avoiding(&mut self, endpoints: &Snapshot, _key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        self.least(endpoints, avoid)
    }

    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        self.loads.sync(endpoints, |_| Arc::default());
        self.loads.get(position).map_or_else(Flight::untracked, Flight::of)
    }
}
