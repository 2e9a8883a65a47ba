use crate::{Endpoint, Snapshot, SnapshotId};
use hashbrown::HashMap;
use std::sync::Arc;

/// Something known of each endpoint, at the endpoint's position, that follows the endpoint when positions change.
#[derive(Debug)]
pub(crate) struct Slots<T> {
    of: Option<SnapshotId>,
    slots: Vec<(Arc<str>, T)>,
}

impl<T> Slots<T> {
    pub(crate) fn new() -> Self {
        Self { of: None, slots: Vec::new() }
    }

    /// Makes the slots those of `endpoints`. Says whether anything may have changed since the last time.
    pub(crate) fn sync(&mut self, endpoints: &Snapshot, mut fresh: impl FnMut(&Endpoint) -> T) -> bool {
        if self.of == Some(endpoints.id()) {
            return false;
        }
        let mut known: HashMap<Arc<str>, T> = self.slots.drain(..).collect();
        self.slots.extend(endpoints.iter().map(|endpoint| {
            let instance = endpoint.instance().clone();
            let slot = known.remove(&instance).unwrap_or_else(|| fresh(endpoint));
            (instance, slot)
        }));
        self.of = Some(endpoints.id());
        true
    }

    pub(crate) fn get(&self, position: usize) -> Option<&T> {
        self.slots.get(position).map(|(_, slot)| slot)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().map(|(_, slot)| slot)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().map(|(_, slot)| slot)
    }
}
