//! A registry that one process serves and others use.

mod book;
mod follow;
mod inner;
mod lease;
mod options;
mod serve;
mod wire;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewire::client::Reconnect;
use corewire_discovery::{
    BoxFuture, Catalog, Endpoint, Lease, LocalRegistry, RegisterOptions, Registry, RegistryError, Snapshot,
    Watch,
};
use corewire_runtime::sleep;
use futures_channel::oneshot;

use self::inner::{Inner, RETRY};
use self::lease::RpcLease;
pub use self::options::RpcRegistryOptions;
pub use self::serve::{LEASES_MAX, registry_service};
use crate::client::Channel;

/// A registry that another process serves as [`registry_service`], for several processes or machines without an etcd.
///
/// Every service that was discovered or watched is followed, so look-ups never wait. While the registry is away they
/// serve the last known endpoints; when it is back (even if it has forgotten all) the registrations made here are made
/// again, what changed meanwhile reaches the watchers as changes, and endpoints that are missing get
/// [`RpcRegistryOptions::absence_grace`] to register again. Leases are renewed here for as long as they are held; they
/// outlive the registry handle.
///
/// Its address for [`discover::connect`](super::connect) is `rpc://HOST:PORT`, with the settings `ttl`, `timeout`,
/// `grace` and `wait`; over TLS `tls://HOST:PORT`, with `ca`, `cert`, `key` and `server-name` besides.
#[derive(Debug, Clone)]
pub struct RpcRegistry {
    inner: Arc<Inner>,
}

impl RpcRegistry {
    /// Connects.
    ///
    /// # Errors
    /// [`RegistryError::Unreachable`] or [`RegistryError::Timeout`] when it does not answer, unless
    /// [`RpcRegistryOptions::wait_for_registry`]; [`RegistryError::BadUri`] or [`RegistryError::BadTtl`] for options
    /// that cannot be.
    pub async fn connect(options: RpcRegistryOptions) -> Result<Self, RegistryError> {
        options.check()?;
        let channel = Channel::to(&options.uri)
            .fail_fast()
            .timeout(options.request_timeout)
            .net(|net| {
                let backoff = Reconnect::between(Duration::from_millis(50), Duration::from_millis(400));
                net.connect_timeout(options.request_timeout).reconnect(backoff)
            })
            .keep_alive(Duration::from_secs(2), Duration::from_secs(2))
            .build();
        let wrong = |error: corewire::ConnectError| RegistryError::BadUri {
            uri: options.uri.clone(),
            reason: error.to_string(),
        };
        let channel = channel.map_err(wrong)?;
        let mirror = LocalRegistry::with_limits(options.limits.clone());
        let (book, followed) = (Mutex::default(), Mutex::default());
        let inner = Arc::new(Inner { channel, options, mirror, book, followed });
        let (reached, on_reached) = oneshot::channel();
        let first = inner.clone();
        inner.spawn(move || async move {
            loop {
                match first.services().await {
                    Err(_) if first.options.wait_for_registry && !reached.is_canceled() => sleep(RETRY).await,
                    result => return drop(reached.send(result.map(|_| ()))),
                }
            }
        })?;
        on_reached.await.unwrap_or(Err(RegistryError::Closed))?;
        Ok(Self { inner })
    }
}

impl Registry for RpcRegistry {
    fn catalog(&self) -> &Arc<Catalog> {
        self.inner.mirror.catalog()
    }

    fn register(
        &self,
        endpoint: Arc<Endpoint>,
        options: RegisterOptions,
    ) -> BoxFuture<'_, Result<Lease, RegistryError>> {
        Box::pin(async move {
            let ttl_ms = options::ttl_ms(options.ttl.unwrap_or(self.inner.options.lease_ttl))?;
            RpcLease::register(&self.inner, endpoint, ttl_ms).await.map(Lease::new)
        })
    }

    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>> {
        Box::pin(async move {
            self.inner.follow(service).await?;
            Ok(self.inner.mirror.discover(service))
        })
    }

    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>> {
        Box::pin(async move {
            self.inner.follow(service).await?;
            self.inner.mirror.watch(service)
        })
    }

    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>> {
        Box::pin(self.inner.services())
    }
}
