mod expiry;
mod lease;

pub use lease::LocalLease;

use crate::{
    BoxFuture, Catalog, CatalogLimits, Clock, Endpoint, Lease, RegisterOptions, Registry, RegistryError,
    ServiceKey, Snapshot, SystemClock, Watch, lock,
};
use expiry::ExpiryQueue;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Shortest time to live of a local lease.
pub const MIN_TTL: Duration = Duration::from_millis(1);
/// Longest time to live of a lease: 365 days.
pub const MAX_TTL: Duration = Duration::from_secs(365 * 24 * 3600);

/// Most registries that [`LocalRegistry::shared`] keeps.
pub const MAX_SHARED: usize = 1_024;

/// A registry in this process, shared by any number of threads; clones are the same registry.
///
/// Changes of one service are ordered: readers and watchers see them one after the other. Look-ups take no lock.
///
/// ```
/// use corewire_discovery::{Endpoint, LocalRegistry};
///
/// let registry = LocalRegistry::new();
/// let lease = registry.register(Endpoint::new("Echo", "1", "10.0.0.1:7000")?)?;
/// assert_eq!(registry.discover("Echo").len(), 1);
/// drop(lease);
/// assert!(registry.discover("Echo").is_empty());
/// # Ok::<(), corewire_discovery::RegistryError>(())
/// ```
#[derive(Debug, Clone)]
pub struct LocalRegistry {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    catalog: Arc<Catalog>,
    expiry: Arc<ExpiryQueue>,
}

impl LocalRegistry {
    /// A registry with the default limits. Leases with a time to live are ended by a thread of its own, which is
    /// started with the first of them.
    pub fn new() -> Self {
        Self::with_limits(CatalogLimits::default())
    }

    /// The registry of that name in this process, made with the default limits when it is first asked for. It
    /// lasts as long as the process.
    ///
    /// # Errors
    /// [`RegistryError::Full`] when there are [`MAX_SHARED`] others.
    pub fn shared(name: &str) -> Result<Self, RegistryError> {
        static SHARED: Mutex<BTreeMap<String, LocalRegistry>> = Mutex::new(BTreeMap::new());
        let mut shared = lock(&SHARED);
        if let Some(registry) = shared.get(name) {
            return Ok(registry.clone());
        }
        if shared.len() >= MAX_SHARED {
            return Err(RegistryError::Full { what: "shared local registries", limit: MAX_SHARED });
        }
        let registry = Self::new();
        shared.insert(name.to_owned(), registry.clone());
        Ok(registry)
    }

    /// A registry with these limits.
    pub fn with_limits(limits: CatalogLimits) -> Self {
        Self::build(limits, Arc::new(SystemClock::new()), expiry::Drive::Thread)
    }

    /// A registry that reads the time from `clock`. It has no thread: leases that ran out are removed by
    /// [`LocalRegistry::expire_due`].
    pub fn with_clock(limits: CatalogLimits, clock: Arc<dyn Clock>) -> Self {
        Self::build(limits, clock, expiry::Drive::Caller)
    }

    fn build(limits: CatalogLimits, clock: Arc<dyn Clock>, drive: expiry::Drive) -> Self {
        let expiry = Arc::new(ExpiryQueue::new(clock, drive));
        Self { shared: Arc::new(Shared { catalog: Catalog::new(limits), expiry }) }
    }

    /// The read side, for look-ups by many threads.
    pub fn catalog(&self) -> &Arc<Catalog> {
        &self.shared.catalog
    }

    /// Adds an endpoint, or updates it if the instance is there, until the lease is dropped.
    ///
    /// # Errors
    /// [`RegistryError::Full`] at a limit.
    pub fn register(&self, endpoint: impl Into<Arc<Endpoint>>) -> Result<LocalLease, RegistryError> {
        let endpoint = endpoint.into();
        let (service, holder) = self.shared.catalog.put(endpoint.clone(), None)?;
        Ok(LocalLease::new(service, endpoint, holder))
    }

    /// As [`LocalRegistry::register`], for an endpoint that has nothing but names: weight, zone and tags are the defaults.
    /// An instance that was taken out last and comes back as it was costs no allocation.
    ///
    /// ```
    /// # use corewire_discovery::LocalRegistry;
    /// let registry = LocalRegistry::new();
    /// let lease = registry.register_named("Echo", "1", "10.0.0.1:7000")?;
    /// assert_eq!(&**registry.discover("Echo").get(0).unwrap().address(), "10.0.0.1:7000");
    /// # Ok::<(), corewire_discovery::RegistryError>(())
    /// ```
    ///
    /// # Errors
    /// [`RegistryError::Endpoint`] when a name or the address is not valid, [`RegistryError::Full`] at a limit.
    pub fn register_named(
        &self,
        service: &str,
        instance: &str,
        address: &str,
    ) -> Result<LocalLease, RegistryError> {
        let (service, endpoint, holder) = self.shared.catalog.put_named(service, instance, address)?;
        Ok(LocalLease::new(service, endpoint, holder))
    }

    /// As [`LocalRegistry::register`], for a caller that keeps the service's key.
    ///
    /// # Errors
    /// [`RegistryError::WrongKey`] when the key is of another service or registry, [`RegistryError::Full`] at a
    /// limit.
    pub fn register_in(
        &self,
        key: &ServiceKey,
        endpoint: impl Into<Arc<Endpoint>>,
    ) -> Result<LocalLease, RegistryError> {
        let (catalog, service, endpoint) = (&self.shared.catalog, key.service(), endpoint.into());
        if service.catalog() != catalog.id() || service.name() != endpoint.service() {
            let (key, service) = (key.name().clone(), endpoint.service().clone());
            return Err(RegistryError::WrongKey { key, service });
        }
        let holder = catalog.put_in(service, endpoint.clone(), None)?;
        Ok(LocalLease::new(service.clone(), endpoint, holder))
    }

    /// As [`LocalRegistry::register`], and the endpoint goes when `ttl` has passed since the registration or the
    /// last [`LocalLease::renew`].
    ///
    /// # Errors
    /// [`RegistryError::BadTtl`] when it is not from [`MIN_TTL`] to [`MAX_TTL`], [`RegistryError::Full`] at a
    /// limit, [`RegistryError::Refused`] when the thread that ends leases cannot be started.
    pub fn register_with_ttl(
        &self,
        endpoint: impl Into<Arc<Endpoint>>,
        ttl: Duration,
    ) -> Result<LocalLease, RegistryError> {
        check_ttl(ttl)?;
        let (endpoint, expiry) = (endpoint.into(), &self.shared.expiry);
        expiry.start()?;
        let deadline = expiry.now().saturating_add(ttl);
        let (service, holder) = self.shared.catalog.put(endpoint.clone(), Some(deadline))?;
        let ticket = expiry.schedule(deadline, &service, &endpoint, holder);
        Ok(LocalLease::new(service, endpoint, holder).with_ttl(expiry.clone(), ticket, ttl))
    }

    /// The endpoints of a service now; empty when it is not known.
    pub fn discover(&self, service: &str) -> Arc<Snapshot> {
        self.shared.catalog.snapshot(service)
    }

    /// The changes of a service, which need not exist yet.
    ///
    /// # Errors
    /// [`RegistryError::Endpoint`] when the name is not valid, [`RegistryError::Full`] at a limit.
    pub fn watch(&self, service: &str) -> Result<Watch, RegistryError> {
        self.shared.catalog.watch(service)
    }

    /// A key for one service: registering and discovering by key does not look the name up again.
    ///
    /// # Errors
    /// As [`LocalRegistry::watch`].
    pub fn key(&self, service: &str) -> Result<ServiceKey, RegistryError> {
        self.shared.catalog.key(service)
    }

    /// Removes the endpoints whose time to live has run out, and says how many. A registry with the system's
    /// clock does this by itself.
    pub fn expire_due(&self) -> usize {
        self.shared.expiry.expire_due()
    }
}

impl Default for LocalRegistry {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.expiry.close();
    }
}

impl Registry for LocalRegistry {
    fn catalog(&self) -> &Arc<Catalog> {
        self.catalog()
    }

    fn register(
        &self,
        endpoint: Arc<Endpoint>,
        options: RegisterOptions,
    ) -> BoxFuture<'_, Result<Lease, RegistryError>> {
        let lease = match options.ttl {
            Some(ttl) => self.register_with_ttl(endpoint, ttl),
            None => self.register(endpoint),
        };
        ready(lease.map(Lease::new))
    }

    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>> {
        ready(Ok(self.discover(service)))
    }

    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>> {
        ready(self.watch(service))
    }

    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>> {
        ready(Ok(self.catalog().services()))
    }
}

pub(crate) fn ready<'a, T: Send + 'a>(value: T) -> BoxFuture<'a, T> {
    Box::pin(std::future::ready(value))
}

fn check_ttl(ttl: Duration) -> Result<(), RegistryError> {
    if ttl < MIN_TTL || ttl > MAX_TTL {
        return Err(RegistryError::BadTtl { ttl, min: MIN_TTL, max: MAX_TTL });
    }
    Ok(())
}
