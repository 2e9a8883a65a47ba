use crate::{Endpoint, Snapshot};
use std::sync::Arc;

/// Some endpoints of a snapshot, as a snapshot of their own, with the positions they have in the whole.
#[derive(Debug)]
pub struct Subset {
    snapshot: Snapshot,
    positions: Vec<usize>,
}

impl Subset {
    /// The endpoints for which `keep` holds, in the same order.
    pub fn new(whole: &Snapshot, mut keep: impl FnMut(&Endpoint) -> bool) -> Self {
        let kept = |position: &usize| whole.get(*position).is_some_and(|endpoint| keep(endpoint));
        let positions: Vec<usize> = (0..whole.len()).filter(kept).collect();
        let endpoints: Vec<Arc<Endpoint>> =
            positions.iter().filter_map(|at| whole.get(*at).cloned()).collect();
        Self { snapshot: Snapshot::new(whole.service().clone(), endpoints), positions }
    }

    /// The chosen endpoints.
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Position in the whole of a position in the subset.
    pub fn to_whole(&self, position: usize) -> Option<usize> {
        self.positions.get(position).copied()
    }

    /// Position in the subset of a position in the whole.
    pub fn from_whole(&self, position: usize) -> Option<usize> {
        self.positions.binary_search(&position).ok()
    }
}
