use super::{Balancer, is_eligible};
use crate::Snapshot;

/// Each endpoint in turn, whatever its weight. A pick takes a step per endpoint of weight 0 that it passes.
#[derive(Debug)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// Begins at a random endpoint, so that many clients do not all begin with the same.
    pub fn new() -> Self {
        Self::starting_at(fastrand::usize(..1 << 16))
    }

    /// Begins at a position, counted around.
    pub fn starting_at(position: usize) -> Self {
        Self { next: position }
    }
}

impl Default for RoundRobin {
    fn default() -> Self {
        Self::new()
    }
}

impl Balancer for RoundRobin {
    fn pick(&mut self, endpoints: &Snapshot, _key: Option<u64>) -> Option<usize> {
        let length = endpoints.len();
        let mut position = self.next;
        for _ in 0..length {
            if position >= length {
                position %= length;
            }
            if is_eligible(endpoints, position) {
                self.next = position + 1;
                return Some(position);
            }
            position += 1;
        }
        None
    }
}
