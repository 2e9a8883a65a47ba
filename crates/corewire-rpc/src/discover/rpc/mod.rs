//! A registry that one process serves and others use.

mod book;
mod follow;
mod options;
mod serve;
mod wire;

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use corewire::client::Reconnect;
use corewire_discovery::{
    BoxFuture, Catalog, Endpoint, Lease, LocalRegistry, RegisterOptions, Registry, RegistryError, Snapshot,
    Watch,
};
use corewire_proto::rpc::Code;
use corewire_runtime::{sleep, spawn_local};
use futures_channel::oneshot;

use self::book::{Book, RpcLease};
use self::follow::Followed;
pub use self::options::RpcRegistryOptions;
pub use self::serve::{LEASES_MAX, registry_service};
use self::wire::{Deregister, Deregistered, Empty, Record, Register, SERVICE, Services};
use crate::client::Channel;
use crate::message::{Json, Message};
use crate::status::Status;

/// A registry that another process serves as [`registry_service`], for several processes or machines without an etcd.
///
/// Every service that was discovered or watched is followed, so look-ups never wait. While the registry is away they
/// serve the last known endpoints; when it is back (even if it has forgotten all) the registrations made here are made
/// again, what changed meanwhile reaches the watchers as changes, and endpoints that are missing get
/// [`RpcRegistryOptions::absence_grace`] to register again. Leases are renewed here for as long as they are held; they
/// outlive the registry handle.
///
/// Its address for [`discover::connect`](super::connect) is `rpc://HOST:PORT`, with the settings `ttl`, `timeout`,
/// `grace` and `wait`.
#[derive(Debug, Clone)]
pub struct RpcRegistry {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    channel: Channel,
    options: RpcRegistryOptions,
    /// What is known here.
    mirror: LocalRegistry,
    book: Mutex<Book>,
    followed: Mutex<HashMap<Arc<str>, Followed>>,
}

/// How often a registry that is away is looked for.
const RETRY: Duration = Duration::from_millis(200);

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

impl Inner {
    /// Starts a task on the channel's worker.
    fn spawn<F: Future<Output = ()> + 'static>(
        &self,
        make: impl FnOnce() -> F + Send + 'static,
    ) -> Result<(), RegistryError> {
        let spawned = self.channel.worker().run(move || drop(spawn_local(make())));
        spawned.map_err(|_| RegistryError::Closed)
    }

    async fn call<Req, Resp>(&self, method: &str, request: Req) -> Result<Resp, RegistryError>
    where
        Json<Req>: Message,
        Json<Resp>: Message,
    {
        let path = format!("{SERVICE}/{method}");
        let answer = self.channel.call::<Json<Req>, Json<Resp>>(&*path, Json(request)).await;
        answer.map(|Json(answer)| answer).map_err(|status| self.error(&status))
    }

    async fn services(&self) -> Result<Vec<Arc<str>>, RegistryError> {
        let Services { services } = self.call("services", Empty {}).await?;
        Ok(services.into_iter().map(Arc::from).collect())
    }

    async fn put(&self, endpoint: &Endpoint, ttl_ms: u64, lease: u64) -> Result<(), RegistryError> {
        let request = Register { endpoint: Record::from(endpoint), ttl_ms, lease };
        self.call::<_, Empty>("register", request).await.map(drop)
    }

    async fn take_back(&self, lease: u64) -> Result<bool, RegistryError> {
        let Deregistered { was_held } = self.call("deregister", Deregister { lease }).await?;
        Ok(was_held)
    }

    fn error(&self, status: &Status) -> RegistryError {
        let (kind, reason) = ("rpc", status.to_string());
        match status.code() {
            Code::DEADLINE_EXCEEDED => RegistryError::Timeout { kind, after: self.options.request_timeout },
            Code::UNAVAILABLE | Code::CONNECTION_CLOSED => {
                RegistryError::Unreachable { kind, address: self.options.uri.clone(), reason }
            }
            _ => RegistryError::Refused { kind, reason },
        }
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
