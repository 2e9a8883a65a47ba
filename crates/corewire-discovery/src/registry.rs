use crate::{Catalog, Endpoint, RegistryError, Snapshot, Watch};
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

/// A boxed future that any executor can run.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Where services are written down and found.
///
/// The futures need no particular executor. They are not for the path of a message: a caller that picks an
/// endpoint per call asks once with [`Registry::discover`], which begins the registry's interest in the service,
/// and from then on reads [`Registry::catalog`] without locks or waiting.
pub trait Registry: Send + Sync + fmt::Debug {
    /// What the registry knows now. Kept up to date for every service that was discovered or watched.
    fn catalog(&self) -> &Arc<Catalog>;

    /// Adds an endpoint, or updates it if the instance is there; it stays until the lease is dropped or given
    /// back. Of two leases on one instance only the later one holds it.
    ///
    /// # Errors
    /// [`RegistryError`]; an endpoint whose registration failed or timed out is not registered later.
    fn register(
        &self,
        endpoint: Arc<Endpoint>,
        options: RegisterOptions,
    ) -> BoxFuture<'_, Result<Lease, RegistryError>>;

    /// The endpoints of a service now. Unknown services are empty.
    ///
    /// # Errors
    /// [`RegistryError`] when nothing is known yet and the source cannot be reached. While a source that was
    /// reached before is away, the last known endpoints are returned.
    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>>;

    /// The changes of a service, which need not exist yet.
    ///
    /// # Errors
    /// As [`Registry::discover`].
    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>>;

    /// Names of the services that have endpoints, sorted.
    ///
    /// # Errors
    /// As [`Registry::discover`].
    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>>;
}

/// How an endpoint is registered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RegisterOptions {
    /// How long the endpoint outlives a holder that is no more. `None`: the registry's default.
    ///
    /// A registry with a source elsewhere renews by itself for as long as the lease is held. In the local
    /// registry the default is no end at all, and a stated time is renewed by [`Lease::renew`] only.
    pub ttl: Option<Duration>,
}

impl RegisterOptions {
    /// The defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time to live.
    #[must_use]
    pub fn with_ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }
}

/// Keeps an endpoint registered; dropping it takes the endpoint out.
#[must_use = "dropping the lease takes the endpoint out of the registry"]
pub struct Lease {
    handle: Box<dyn LeaseHandle>,
}

impl Lease {
    /// Wraps a registry's own lease.
    pub fn new(handle: impl LeaseHandle + 'static) -> Self {
        Self { handle: Box::new(handle) }
    }

    /// The endpoint that was registered.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        self.handle.endpoint()
    }

    /// Begins the time to live anew.
    ///
    /// # Errors
    /// [`RegistryError::LeaseLost`] when the lease no longer holds the endpoint.
    pub fn renew(&self) -> Result<(), RegistryError> {
        self.handle.renew()
    }

    /// Takes the endpoint out and waits until it is.
    ///
    /// # Errors
    /// [`RegistryError::LeaseLost`] when it was not this lease's any more; other errors when the source could
    /// not be told, in which case it is told as soon as it can be.
    pub async fn deregister(self) -> Result<(), RegistryError> {
        self.handle.deregister().await
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(self.endpoint()).finish()
    }
}

/// What a registry gives to make a [`Lease`]. Its `Drop` takes the endpoint out without waiting.
pub trait LeaseHandle: Send + Sync {
    /// As [`Lease::endpoint`].
    fn endpoint(&self) -> &Arc<Endpoint>;

    /// As [`Lease::renew`].
    ///
    /// # Errors
    /// [`RegistryError::LeaseLost`] when the lease no longer holds the endpoint.
    fn renew(&self) -> Result<(), RegistryError>;

    /// As [`Lease::deregister`].
    fn deregister(self: Box<Self>) -> BoxFuture<'static, Result<(), RegistryError>>;
}
