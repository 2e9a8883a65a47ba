mod query;
mod worker;

use crate::endpoint::check_name;
use crate::local::ready;
use crate::{
    BoxFuture, Catalog, CatalogLimits, Endpoint, Lease, RegisterOptions, Registry, RegistryError, Snapshot,
    Watch,
};
use futures_channel::oneshot;
use query::Pattern;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedSender;

/// What a [`DnsRegistry`] asks, whom, and how often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DnsOptions {
    /// The name to look up: `HOST:PORT` for address records (A and AAAA), or a name that begins with `_`, as
    /// `_echo._tcp.example.com`, for SRV records, which state ports themselves. `{service}` in it stands for the
    /// service that is asked for; without it, every service is found under the same name.
    pub name: String,
    /// The DNS server; the system's own if `None`.
    pub server: Option<SocketAddr>,
    /// Shortest time between two questions for a name, even when its records say less. Also the time to the next
    /// question after one that failed. Default 1 s.
    pub refresh_min: Duration,
    /// Longest time between two questions for a name, even when its records say more. Default 30 s.
    pub refresh_max: Duration,
    /// Longest wait for one answer of one server; it is asked twice. Default 2 s.
    pub timeout: Duration,
    /// Whether a service is empty, instead of an error, as long as no server has answered for it. Default `false`.
    pub wait_for_answer: bool,
    /// Limits of what is kept; each service asked for counts for as long as the registry lives.
    pub limits: CatalogLimits,
}

impl DnsOptions {
    /// The defaults, for this name.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            server: None,
            refresh_min: Duration::from_secs(1),
            refresh_max: Duration::from_secs(30),
            timeout: Duration::from_secs(2),
            wait_for_answer: false,
            limits: CatalogLimits::default(),
        }
    }
}

/// A registry that finds services in DNS.
///
/// A service that was discovered or watched once is looked up again whenever its records run out, by a thread of
/// the registry's own. The instance id is the address; of SRV records those with the lowest priority number are
/// taken, with their weights. A name that does not exist is an empty service; when no server answers, the last
/// known endpoints stay, and so does each target of an SRV record whose addresses cannot be looked up.
#[derive(Debug)]
pub struct DnsRegistry {
    catalog: Arc<Catalog>,
    commands: UnboundedSender<Follow>,
}

/// Asks the thread to keep a service up to date from now on, and to say when it is known.
#[derive(Debug)]
struct Follow {
    service: Arc<str>,
    known: oneshot::Sender<Result<(), RegistryError>>,
}

impl DnsRegistry {
    /// A registry that has asked nothing yet.
    ///
    /// # Errors
    /// [`RegistryError::BadUri`] when the name can be neither, [`RegistryError::Refused`] when the system's
    /// resolver settings cannot be read or the thread cannot be started.
    pub fn new(options: DnsOptions) -> Result<Self, RegistryError> {
        let pattern = Pattern::parse(&options.name)?;
        let catalog = Catalog::new(options.limits.clone());
        let commands = worker::spawn(options, pattern, catalog.clone())?;
        Ok(Self { catalog, commands })
    }

    async fn follow(&self, service: &str) -> Result<(), RegistryError> {
        check_name("service", service)?;
        let (known, on_known) = oneshot::channel();
        let service = Arc::from(service);
        self.commands.send(Follow { service, known }).map_err(|_| RegistryError::Closed)?;
        on_known.await.unwrap_or(Err(RegistryError::Closed))
    }
}

impl Registry for DnsRegistry {
    fn catalog(&self) -> &Arc<Catalog> {
        &self.catalog
    }

    fn register(&self, _: Arc<Endpoint>, _: RegisterOptions) -> BoxFuture<'_, Result<Lease, RegistryError>> {
        ready(Err(RegistryError::ReadOnly { kind: "dns" }))
    }

    fn discover<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Arc<Snapshot>, RegistryError>> {
        Box::pin(async move {
            self.follow(service).await?;
            Ok(self.catalog.snapshot(service))
        })
    }

    fn watch<'a>(&'a self, service: &'a str) -> BoxFuture<'a, Result<Watch, RegistryError>> {
        Box::pin(async move {
            self.follow(service).await?;
            self.catalog.watch(service)
        })
    }

    /// Names of the services that were asked for and have endpoints; DNS cannot be asked which there are.
    fn services(&self) -> BoxFuture<'_, Result<Vec<Arc<str>>, RegistryError>> {
        ready(Ok(self.catalog.services()))
    }
}
