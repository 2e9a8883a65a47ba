mod lookup;
mod published;
mod replace;
mod service;
mod watch;

pub use lookup::{Lookup, Reader, ServiceKey};
pub(crate) use service::{Expiry, Holder, Service};
pub use watch::{Change, Event, Watch};

use crate::endpoint::check_name;
use crate::snapshot::next_series;
use crate::{Endpoint, RegistryError, Snapshot, lock};
use arc_swap::ArcSwap;
use hashbrown::{DefaultHashBuilder, HashMap};
use service::{PutError, WatchError};
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Limits of one registry's memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CatalogLimits {
    /// Most services that have endpoints, watches or keys. Default 65,536.
    pub services_max: usize,
    /// Most endpoints of one service. Default 65,536.
    pub endpoints_per_service_max: usize,
    /// Most watches of one service. Default 65,536.
    pub watches_per_service_max: usize,
    /// Most events that wait for one watcher before a fresh snapshot takes their place. Default 1,024.
    pub watch_queue_events: usize,
}

impl Default for CatalogLimits {
    fn default() -> Self {
        Self {
            services_max: 65_536,
            endpoints_per_service_max: 65_536,
            watches_per_service_max: 65_536,
            watch_queue_events: 1_024,
        }
    }
}

/// What a registry knows, in memory: the endpoints of each service, for look-ups without locks.
///
/// Every registry has one ([`Registry::catalog`](crate::Registry::catalog)). It is read-only to users; the
/// registry writes it. A service that is not known is an empty one.
pub struct Catalog {
    id: u64,
    limits: CatalogLimits,
    hasher: DefaultHashBuilder,
    shards: Box<[ArcSwap<Shard>]>,
    /// Taken to add or retire services.
    census: Mutex<Census>,
    /// Answer for services that are not known.
    nothing: Arc<Snapshot>,
}

/// A new service copies one shard, so a shard is to be small at the greatest number of services.
const SHARDS: usize = 256;

type Shard = HashMap<Arc<str>, Arc<Service>>;

#[derive(Debug)]
struct Census {
    services: usize,
    /// Idle services are looked for when there are this many, so that the search costs little per new service.
    sweep_at: usize,
}

/// Below this number of services, idle ones are left alone: they are likely to come back.
const SWEEP_MIN: usize = 1_024;

impl Catalog {
    pub(crate) fn new(limits: CatalogLimits) -> Arc<Self> {
        let none = Arc::new(Shard::default());
        Arc::new(Self {
            id: next_series(),
            hasher: DefaultHashBuilder::default(),
            shards: (0..SHARDS).map(|_| ArcSwap::new(none.clone())).collect(),
            census: Mutex::new(Census { services: 0, sweep_at: SWEEP_MIN.min(limits.services_max) }),
            nothing: Arc::new(Snapshot::empty(Arc::from(""), next_series())),
            limits,
        })
    }

    /// The endpoints of a service now; empty when it is not known. Takes no lock.
    pub fn snapshot(&self, service: &str) -> Arc<Snapshot> {
        let shard = self.shard(service).load();
        shard.get(service).map_or_else(|| self.nothing.clone(), |service| service.snapshot())
    }

    /// Names of the services that have endpoints, sorted.
    pub fn services(&self) -> Vec<Arc<str>> {
        let shards: Vec<_> = self.shards.iter().map(ArcSwap::load_full).collect();
        let known = shards.iter().flat_map(|shard| shard.values());
        let mut names: Vec<_> =
            known.filter(|s| !s.snapshot().is_empty()).map(|service| service.name().clone()).collect();
        names.sort_unstable();
        names
    }

    /// A look-up handle for one thread: the fastest way to snapshots of many services.
    pub fn lookup(self: &Arc<Self>) -> Lookup {
        Lookup::new(self.clone())
    }

    /// A key for one service, so that its name is looked up only once. The service need not exist yet.
    ///
    /// # Errors
    /// [`RegistryError::Endpoint`] when the name is not valid, [`RegistryError::Full`] at the limit of services.
    pub fn key(&self, service: &str) -> Result<ServiceKey, RegistryError> {
        loop {
            if let Ok(key) = ServiceKey::new(self.find_or_add(service)?) {
                return Ok(key);
            }
        }
    }

    /// Watches a service, which need not exist yet. The first event is a [`Change::Reset`].
    ///
    /// # Errors
    /// [`RegistryError::Endpoint`] when the name is not valid, [`RegistryError::Full`] at the limit of services
    /// or of watches.
    pub fn watch(&self, service: &str) -> Result<Watch, RegistryError> {
        let limits = &self.limits;
        loop {
            let service = self.find_or_add(service)?;
            match service.watch(limits.watch_queue_events, limits.watches_per_service_max) {
                Ok(watch) => return Ok(watch),
                Err(WatchError::Refused(error)) => return Err(error),
                Err(WatchError::Retired) => {}
            }
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Adds or updates an endpoint, in a service already at hand if there is one.
    pub(crate) fn put(
        &self,
        endpoint: Arc<Endpoint>,
        deadline: Option<Duration>,
    ) -> Result<(Arc<Service>, Holder), RegistryError> {
        loop {
            let service = self.find_or_add(endpoint.service())?;
            match service.put(endpoint.clone(), deadline, self.limits.endpoints_per_service_max) {
                Ok(holder) => return Ok((service, holder)),
                Err(error) => self.refused(error)?,
            }
        }
    }

    /// As [`Catalog::put`], for an endpoint with nothing but names.
    pub(crate) fn put_named(
        &self,
        service: &str,
        instance: &str,
        address: &str,
    ) -> Result<(Arc<Service>, Arc<Endpoint>, Holder), RegistryError> {
        loop {
            let service = self.find_or_add(service)?;
            match service.put_named(instance, address, self.limits.endpoints_per_service_max) {
                Ok((endpoint, holder)) => return Ok((service, endpoint, holder)),
                Err(error) => self.refused(error)?,
            }
        }
    }

    /// The error to tell, unless another attempt is due.
    fn refused(&self, error: PutError) -> Result<(), RegistryError> {
        match error {
            PutError::Retired => Ok(()),
            PutError::Full => Err(self.full_of_endpoints()),
            PutError::Endpoint(error) => Err(error.into()),
        }
    }

    pub(crate) fn put_in(
        &self,
        service: &Service,
        endpoint: Arc<Endpoint>,
        deadline: Option<Duration>,
    ) -> Result<Holder, RegistryError> {
        // A service at hand is pinned by its key and so cannot be retired.
        service
            .put(endpoint, deadline, self.limits.endpoints_per_service_max)
            .map_err(|_| self.full_of_endpoints())
    }

    pub(crate) fn find(&self, name: &str) -> Option<Arc<Service>> {
        self.shard(name).load().get(name).cloned()
    }

    pub(crate) fn nothing(&self) -> &Arc<Snapshot> {
        &self.nothing
    }

    pub(crate) fn services_max(&self) -> usize {
        self.limits.services_max
    }

    fn full_of_endpoints(&self) -> RegistryError {
        let limit = self.limits.endpoints_per_service_max;
        RegistryError::Full { what: "endpoints of one service", limit }
    }

    fn shard(&self, name: &str) -> &ArcSwap<Shard> {
        &self.shards[self.hasher.hash_one(name) as usize % SHARDS]
    }

    fn find_or_add(&self, name: &str) -> Result<Arc<Service>, RegistryError> {
        if let Some(service) = self.find(name).filter(|service| !service.is_retired()) {
            return Ok(service);
        }
        check_name("service", name)?;
        let mut census = lock(&self.census);
        if let Some(service) = self.find(name) {
            return Ok(service);
        }
        if census.services >= census.sweep_at {
            self.sweep(&mut census);
        }
        let limit = self.limits.services_max;
        if census.services >= limit {
            return Err(RegistryError::Full { what: "services", limit });
        }
        let service = Arc::new(Service::new(Arc::from(name), self.id));
        let shard = self.shard(name);
        let mut services = Shard::clone(&shard.load());
        services.insert(service.name().clone(), service.clone());
        shard.store(Arc::new(services));
        census.services += 1;
        Ok(service)
    }

    /// Takes out services nobody has an interest in, and sets when to do so again.
    fn sweep(&self, census: &mut Census) {
        for shard in &self.shards {
            let services = shard.load_full();
            let kept: Shard = services
                .iter()
                .filter(|(_, service)| !service.retire_if_idle())
                .map(|(name, service)| (name.clone(), service.clone()))
                .collect();
            census.services -= services.len() - kept.len();
            shard.store(Arc::new(kept));
        }
        census.sweep_at = (census.services * 2).max(SWEEP_MIN).min(self.limits.services_max);
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        for shard in &self.shards {
            for service in shard.load().values() {
                service.close();
            }
        }
    }
}

impl fmt::Debug for Catalog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Catalog").field("services", &self.services()).finish_non_exhaustive()
    }
}
