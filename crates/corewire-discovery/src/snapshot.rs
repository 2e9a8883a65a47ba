use crate::Endpoint;
use smallvec::SmallVec;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The endpoints of one service at one moment. A snapshot never changes.
///
/// Endpoints have positions 0 to `len() - 1`. A position is only good for the snapshot it came from: when an
/// endpoint goes away, the last one takes its place. What lasts is the instance id.
pub struct Snapshot {
    service: Arc<str>,
    id: SnapshotId,
    total_weight: u64,
    weightless: usize,
    list: List,
}

/// Tells snapshots apart: two with the same id hold the same endpoints at the same positions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SnapshotId {
    series: u64,
    version: u64,
}

impl Snapshot {
    /// A snapshot of its own, outside any registry: for tests, and for callers that choose among some endpoints.
    pub fn new(service: impl Into<Arc<str>>, endpoints: impl IntoIterator<Item = Arc<Endpoint>>) -> Self {
        let mut snapshot = Self::empty(service.into(), next_series());
        for endpoint in endpoints {
            snapshot.push(endpoint);
        }
        snapshot
    }

    /// Name of the service.
    pub fn service(&self) -> &Arc<str> {
        &self.service
    }

    /// Tells this snapshot from any other in the process.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// How many changes the service has seen; 0 when it has never had an endpoint. Counts up by one per change.
    pub fn version(&self) -> u64 {
        self.id.version
    }

    /// Number of endpoints.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// Whether there is no endpoint.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sum of the weights.
    pub fn total_weight(&self) -> u64 {
        self.total_weight
    }

    /// Number of endpoints with weight 0.
    pub fn weightless(&self) -> usize {
        self.weightless
    }

    /// The endpoint at a position, if there is one.
    #[inline]
    pub fn get(&self, position: usize) -> Option<&Arc<Endpoint>> {
        self.list.get(position)
    }

    /// The endpoints in order of position.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Endpoint>> {
        (0..self.len()).filter_map(|position| self.get(position))
    }

    /// Weight by which balancers choose: the endpoint's own, or 1 for each when all have 0.
    #[inline]
    pub fn effective_weight(&self, position: usize) -> u64 {
        match self.get(position) {
            None => 0,
            Some(_) if self.total_weight == 0 => 1,
            Some(endpoint) => u64::from(endpoint.weight()),
        }
    }

    pub(crate) fn empty(service: Arc<str>, series: u64) -> Self {
        let id = SnapshotId { series, version: 0 };
        Self { service, id, total_weight: 0, weightless: 0, list: List::Flat(SmallVec::new()) }
    }

    /// The next version, to be changed before it is published.
    pub(crate) fn successor(&self) -> Self {
        let id = SnapshotId { version: self.id.version + 1, ..self.id };
        Self {
            service: self.service.clone(),
            id,
            total_weight: self.total_weight,
            weightless: self.weightless,
            list: self.list.clone(),
        }
    }

    /// As [`Snapshot::successor`], in memory that is there already. Both are of the same service.
    pub(crate) fn become_successor_of(&mut self, before: &Self) {
        self.id = SnapshotId { version: before.id.version + 1, ..before.id };
        self.total_weight = before.total_weight;
        self.weightless = before.weightless;
        self.list.clone_from(&before.list);
    }

    pub(crate) fn push(&mut self, endpoint: Arc<Endpoint>) {
        self.count_in(&endpoint);
        self.list.push(endpoint);
    }

    pub(crate) fn replace(&mut self, position: usize, endpoint: Arc<Endpoint>) {
        self.count_in(&endpoint);
        if let Some(before) = self.list.replace(position, endpoint) {
            self.count_out(&before);
        }
    }

    /// Takes an endpoint out; the last one moves to its position.
    pub(crate) fn swap_remove(&mut self, position: usize) {
        if let Some(removed) = self.list.swap_remove(position) {
            self.count_out(&removed);
        }
    }

    fn count_in(&mut self, endpoint: &Endpoint) {
        self.total_weight += u64::from(endpoint.weight());
        self.weightless += usize::from(endpoint.weight() == 0);
    }

    fn count_out(&mut self, endpoint: &Endpoint) {
        self.total_weight -= u64::from(endpoint.weight());
        self.weightless -= usize::from(endpoint.weight() == 0);
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot")
            .field("service", &self.service)
            .field("version", &self.id.version)
            .field("endpoints", &self.iter().collect::<Vec<_>>())
            .finish()
    }
}

/// A number no other series of snapshots in this process has.
pub(crate) fn next_series() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Endpoints per chunk of a large list. A change copies one chunk and the list of chunks, not all endpoints.
const CHUNK: usize = 64;
/// Lists up to this length are one chunk, and up to this length no second allocation is made.
const INLINE: usize = 4;

type Chunk = SmallVec<[Arc<Endpoint>; INLINE]>;

enum List {
    Flat(Chunk),
    /// Every chunk but the last is full; there are at least two.
    Chunked(Vec<Arc<Chunk>>),
}

impl Clone for List {
    fn clone(&self) -> Self {
        match self {
            Self::Flat(chunk) => Self::Flat(chunk.clone()),
            Self::Chunked(chunks) => Self::Chunked(chunks.clone()),
        }
    }

    fn clone_from(&mut self, source: &Self) {
        match (self, source) {
            (Self::Flat(chunk), Self::Flat(source)) => chunk.clone_from(source),
            (Self::Chunked(chunks), Self::Chunked(source)) => chunks.clone_from(source),
            (list, source) => *list = source.clone(),
        }
    }
}

impl List {
    fn len(&self) -> usize {
        match self {
            Self::Flat(chunk) => chunk.len(),
            Self::Chunked(chunks) => match chunks.split_last() {
                Some((last, full)) => full.len() * CHUNK + last.len(),
                None => 0,
            },
        }
    }

    #[inline]
    fn get(&self, position: usize) -> Option<&Arc<Endpoint>> {
        match self {
            Self::Flat(chunk) => chunk.get(position),
            Self::Chunked(chunks) => chunks.get(position / CHUNK)?.get(position % CHUNK),
        }
    }

    fn push(&mut self, endpoint: Arc<Endpoint>) {
        match self {
            Self::Flat(chunk) if chunk.len() < CHUNK => chunk.push(endpoint),
            Self::Flat(chunk) => {
                let full = Arc::new(std::mem::take(chunk));
                *self = Self::Chunked(vec![full, Arc::new(SmallVec::from_iter([endpoint]))]);
            }
            Self::Chunked(chunks) => match chunks.last_mut() {
                Some(last) if last.len() < CHUNK => Arc::make_mut(last).push(endpoint),
                _ => chunks.push(Arc::new(SmallVec::from_iter([endpoint]))),
            },
        }
    }

    fn replace(&mut self, position: usize, endpoint: Arc<Endpoint>) -> Option<Arc<Endpoint>> {
        let slot = match self {
            Self::Flat(chunk) => chunk.get_mut(position)?,
            Self::Chunked(chunks) => {
                Arc::make_mut(chunks.get_mut(position / CHUNK)?).get_mut(position % CHUNK)?
            }
        };
        Some(std::mem::replace(slot, endpoint))
    }

    fn swap_remove(&mut self, position: usize) -> Option<Arc<Endpoint>> {
        let last = self.len().checked_sub(1)?;
        if position > last {
            return None;
        }
        let moved = self.pop()?;
        if position == last { Some(moved) } else { self.replace(position, moved) }
    }

    fn pop(&mut self) -> Option<Arc<Endpoint>> {
        match self {
            Self::Flat(chunk) => chunk.pop(),
            Self::Chunked(chunks) => {
                let last = Arc::make_mut(chunks.last_mut()?);
                let popped = last.pop();
                if last.is_empty() {
                    chunks.pop();
                }
                if let [only] = chunks.as_slice() {
                    *self = Self::Flat(Chunk::clone(only));
                }
                popped
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn endpoint(n: usize, weight: u16) -> Arc<Endpoint> {
        Arc::new(Endpoint::new("s", n.to_string(), "h:1").unwrap().with_weight(weight))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn a_snapshot_is_a_vector_with_swap_remove(steps in prop::collection::vec((0u8..5, 0usize..1000, 0u16..4), 1..400)) {
            let mut model: Vec<Arc<Endpoint>> = Vec::new();
            let mut snapshot = Snapshot::new("s", []);
            for (n, (kind, at, weight)) in steps.into_iter().enumerate() {
                let before = snapshot.successor();
                match kind {
                    0..=2 => { let e = endpoint(n, weight); model.push(e.clone()); snapshot.push(e); }
                    3 if !model.is_empty() => {
                        let (at, e) = (at % model.len(), endpoint(n, weight));
                        model[at] = e.clone();
                        snapshot.replace(at, e);
                    }
                    _ if !model.is_empty() => { let at = at % model.len(); model.swap_remove(at); snapshot.swap_remove(at); }
                    _ => {}
                }
                prop_assert!(before.len().abs_diff(model.len()) <= 1, "an older copy changed");
            }
            prop_assert!(snapshot.iter().eq(model.iter()));
            prop_assert_eq!(snapshot.len(), model.len());
            prop_assert_eq!(snapshot.total_weight(), model.iter().map(|e| u64::from(e.weight())).sum::<u64>());
            prop_assert_eq!(snapshot.weightless(), model.iter().filter(|e| e.weight() == 0).count());
            prop_assert!(snapshot.get(model.len()).is_none());
        }
    }

    #[test]
    fn an_older_snapshot_keeps_what_it_had() {
        let mut old = Snapshot::new("s", (0..200).map(|n| endpoint(n, 1)));
        let mut new = old.successor();
        new.replace(70, endpoint(999, 5));
        new.swap_remove(0);
        assert_eq!(&**old.get(70).unwrap().instance(), "70");
        assert_eq!((old.len(), new.len()), (200, 199));
        assert_eq!(&**new.get(0).unwrap().instance(), "199");
        assert_eq!(new.total_weight(), 203);
        old.swap_remove(199);
        assert_eq!(old.len(), 199);
    }

    #[test]
    fn weight_zero_everywhere_counts_as_equal() {
        let none = Snapshot::new("s", [endpoint(0, 0), endpoint(1, 0)]);
        assert_eq!((none.effective_weight(0), none.effective_weight(1), none.effective_weight(2)), (1, 1, 0));
        let one = Snapshot::new("s", [endpoint(0, 0), endpoint(1, 7)]);
        assert_eq!((one.effective_weight(0), one.effective_weight(1)), (0, 7));
    }
}
