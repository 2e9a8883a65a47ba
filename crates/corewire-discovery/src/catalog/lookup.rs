use super::Catalog;
use super::service::{Retired, Service};
use crate::Snapshot;
use hashbrown::HashMap;
use std::fmt;
use std::sync::Arc;

/// Snapshots of many services for one thread, without locks, shared counters or allocation.
///
/// It remembers the last snapshot of each service it was asked for, and only compares a version number as long
/// as nothing changed. One per thread; make it with [`Catalog::lookup`].
///
/// ```
/// use corewire_discovery::{Endpoint, LocalRegistry};
///
/// let registry = LocalRegistry::new();
/// let _lease = registry.register(Endpoint::new("Echo", "1", "10.0.0.1:7000")?)?;
/// let mut lookup = registry.catalog().lookup();
/// assert_eq!(lookup.snapshot("Echo").len(), 1);
/// assert!(lookup.snapshot("never heard of").is_empty());
/// # Ok::<(), corewire_discovery::RegistryError>(())
/// ```
#[derive(Debug)]
pub struct Lookup {
    catalog: Arc<Catalog>,
    seen: HashMap<Arc<str>, Seen>,
}

#[derive(Debug)]
struct Seen {
    service: Arc<Service>,
    snapshot: Arc<Snapshot>,
}

impl Lookup {
    pub(super) fn new(catalog: Arc<Catalog>) -> Self {
        Self { catalog, seen: HashMap::new() }
    }

    /// The endpoints of a service now; empty when it is not known.
    #[inline]
    pub fn snapshot(&mut self, service: &str) -> &Arc<Snapshot> {
        let fresh = self.seen.get(service).is_some_and(|seen| !seen.service.is_newer_than(&seen.snapshot));
        if !fresh {
            self.refresh(service);
        }
        match self.seen.get(service) {
            Some(seen) => &seen.snapshot,
            None => self.catalog.nothing(),
        }
    }

    #[cold]
    fn refresh(&mut self, name: &str) {
        let Some(service) = self.catalog.find(name) else {
            self.seen.remove(name);
            return;
        };
        let snapshot = service.snapshot();
        if service.is_retired() {
            // Found on its way out; what is remembered of it would never be renewed.
            self.seen.remove(name);
            return;
        }
        if self.seen.len() >= self.catalog.services_max() {
            // Only services that were retired since can make it so many.
            self.seen.retain(|_, seen| !seen.service.is_retired());
        }
        self.seen.insert(service.name().clone(), Seen { service, snapshot });
    }
}

/// A service whose name was looked up once; look-ups by key cost no hashing. Cheap to clone, shared by threads.
///
/// As long as a key is held, its service counts against [`CatalogLimits::services_max`](super::CatalogLimits).
pub struct ServiceKey {
    service: Arc<Service>,
}

impl ServiceKey {
    pub(super) fn new(service: Arc<Service>) -> Result<Self, Retired> {
        service.pin()?;
        Ok(Self { service })
    }

    /// Name of the service.
    pub fn name(&self) -> &Arc<str> {
        self.service.name()
    }

    /// The endpoints now. Takes no lock.
    #[inline]
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.service.snapshot()
    }

    /// A handle for one thread that remembers the last snapshot.
    pub fn reader(&self) -> Reader {
        Reader { snapshot: self.snapshot(), key: self.clone() }
    }

    pub(crate) fn service(&self) -> &Arc<Service> {
        &self.service
    }
}

impl Clone for ServiceKey {
    fn clone(&self) -> Self {
        // Cannot fail: this key's own pin keeps the service.
        let _ = self.service.pin();
        Self { service: self.service.clone() }
    }
}

impl Drop for ServiceKey {
    fn drop(&mut self) {
        self.service.unpin();
    }
}

impl fmt::Debug for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ServiceKey").field(self.name()).finish()
    }
}

/// The endpoints of one service for one thread: while nothing changes, a look-up compares one number.
#[derive(Debug)]
pub struct Reader {
    key: ServiceKey,
    snapshot: Arc<Snapshot>,
}

impl Reader {
    /// The endpoints now.
    #[inline]
    pub fn snapshot(&mut self) -> &Arc<Snapshot> {
        if self.key.service.is_newer_than(&self.snapshot) {
            self.snapshot = self.key.snapshot();
        }
        &self.snapshot
    }
}
