use super::{Balancer, Flight, Subset, after};
use crate::{Snapshot, SnapshotId};

/// Prefers the endpoints of one zone, and lets another balancer choose among them.
///
/// As long as the zone has enough endpoints that take work, only these are picked; else all are. A retry goes
/// elsewhere when the zone has no other endpoint to offer.
#[derive(Debug)]
pub struct ZoneAware<B> {
    zone: Box<str>,
    local_min: usize,
    inner: B,
    of: Option<SnapshotId>,
    /// The endpoints of the zone; `None` when there are too few.
    local: Option<Subset>,
}

impl<B: Balancer> ZoneAware<B> {
    /// Prefers `zone` for as long as one of its endpoints takes work.
    pub fn new(zone: impl Into<Box<str>>, inner: B) -> Self {
        Self { zone: zone.into(), local_min: 1, inner, of: None, local: None }
    }

    /// Sets how many endpoints of the zone must take work for the others to get none, at least 1.
    #[must_use]
    pub fn with_local_min(mut self, endpoints: usize) -> Self {
        self.local_min = endpoints.max(1);
        self
    }

    fn sync(&mut self, endpoints: &Snapshot) {
        if self.of == Some(endpoints.id()) {
            return;
        }
        self.of = Some(endpoints.id());
        let weightless_count = endpoints.total_weight() == 0;
        let subset = Subset::new(endpoints, |endpoint| endpoint.zone() == Some(&*self.zone));
        let local = subset.snapshot();
        let working = if weightless_count { local.len() } else { local.len() - local.weightless() };
        // A zone that is everything needs no subset; the inner balancer keeps to one snapshot.
        self.local = (working >= self.local_min && local.len() < endpoints.len()).then_some(subset);
    }
}

impl<B: Balancer> Balancer for ZoneAware<B> {
    fn pick(&mut self, endpoints: &Snapshot, key: Option<u64>) -> Option<usize> {
        self.sync(endpoints);
        match &self.local {
            Some(local) => local.to_whole(self.inner.pick(local.snapshot(), key)?),
            None => self.inner.pick(endpoints, key),
        }
    }

    fn pick_avoiding(&mut self, endpoints: &Snapshot, key: Option<u64>, avoid: &[usize]) -> Option<usize> {
        self.sync(endpoints);
        let Some(local) = &self.local else { return self.inner.pick_avoiding(endpoints, key, avoid) };
        let avoid_local: smallvec::SmallVec<[usize; 8]> =
            avoid.iter().filter_map(|position| local.from_whole(*position)).collect();
        if let Some(position) = self.inner.pick_avoiding(local.snapshot(), key, &avoid_local) {
            return local.to_whole(position);
        }
        let last = avoid.last().copied().unwrap_or(0);
        after(endpoints, last).find(|position| !avoid.contains(position))
    }

    fn begin(&mut self, endpoints: &Snapshot, position: usize) -> Flight {
        self.sync(endpoints);
        match &self.local {
            Some(local) => match local.from_whole(position) {
                Some(position) => self.inner.begin(local.snapshot(), position),
                None => Flight::untracked(),
            },
            None => self.inner.begin(endpoints, position),
        }
    }
}
