//! Servers that make themselves known.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use corewire::{ServerError, ServerHandle};
use corewire_discovery::{DEFAULT_WEIGHT, Endpoint, EndpointError, RegisterOptions, RegistryError};
use futures_channel::oneshot;

use super::keeper::Keeper;
use super::source::RegistrySource;
use crate::server::{OnStart, RpcServer};

/// How a server makes itself known to a registry. Given to [`RpcServer::register_as`](crate::RpcServer::register_as).
///
/// | setting | default |
/// |---|---|
/// | services | all that the server offers |
/// | advertised address | the one it listens on, with its scheme if that is not `tcp`; it must be set where it listens on all (`*`, `0.0.0.0`) |
/// | instance | the advertised address, without a scheme and with `-` for `/` |
/// | weight | 100 |
/// | zone, tags | none |
/// | time to live | the registry's |
/// | settle | 0 |
///
/// The server is registered again when its lease is lost, unless somebody else has the instance by then. What happens
/// when the registry is away at the start is said at [`connect`](super::connect).
///
/// ```
/// use corewire_rpc::discover::{Registration, registry::LocalRegistry};
/// use corewire_rpc::{Bytes, Context, RpcServer, Service};
///
/// let registry = LocalRegistry::new();
/// let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
/// let server = RpcServer::bind("tcp://*:0")
///     .service(echo)
///     .register_as(Registration::new(&registry).advertise("127.0.0.1").instance("echo-1").weight(200))
///     .workers(1)
///     .start()?;
/// assert_eq!(registry.discover("Echo").get(0).map(|endpoint| endpoint.weight()), Some(200));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "a registration is given to `RpcServer::register_as`"]
pub struct Registration {
    pub(super) source: RegistrySource,
    services: Option<Vec<String>>,
    advertise: Option<String>,
    instance: Option<String>,
    weight: u16,
    zone: Option<String>,
    tags: Vec<String>,
    ttl: Option<Duration>,
    settle: Duration,
}

/// Why a server is not made known.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RegistrationError {
    /// It listens on all addresses.
    #[error("it listens on {0}, which clients elsewhere cannot connect to: set `Registration::advertise`")]
    NoAddress(String),
    /// Its address, instance, zone or a tag is not valid.
    #[error(transparent)]
    Endpoint(#[from] EndpointError),
    /// The registry refuses it.
    #[error(transparent)]
    Registry(#[from] RegistryError),
}

/// How long a start waits for a registry before the server goes on trying by itself.
const START_WAIT: Duration = Duration::from_secs(5);
/// How long a shutdown waits for a registry at the most.
const DEREGISTER_WAIT: Duration = Duration::from_secs(2);

impl Registration {
    /// With the defaults.
    pub fn new(registry: impl Into<RegistrySource>) -> Self {
        Self {
            source: registry.into(),
            services: None,
            advertise: None,
            instance: None,
            weight: DEFAULT_WEIGHT,
            zone: None,
            tags: Vec::new(),
            ttl: None,
            settle: Duration::ZERO,
        }
    }

    /// Registers these services only.
    pub fn services<S: Into<String>>(mut self, services: impl IntoIterator<Item = S>) -> Self {
        self.services = Some(services.into_iter().map(Into::into).collect());
        self
    }

    /// Where clients find it: `host:port`, or a host alone for the port that it listens on; another scheme than the one that
    /// it listens on stands before it, as in `kcp://host:port`.
    pub fn advertise(mut self, address: impl Into<String>) -> Self {
        self.advertise = Some(address.into());
        self
    }

    /// What tells it from other instances of its services. One that is the same after a restart takes the place of the
    /// old one at once.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.instance = Some(instance.into());
        self
    }

    /// Its share of the work, in relation to other endpoints; see [`Endpoint::with_weight`].
    pub fn weight(mut self, weight: u16) -> Self {
        self.weight = weight;
        self
    }

    /// Its zone; see [`Endpoint::with_zone`].
    pub fn zone(mut self, zone: impl Into<String>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// Its tags; see [`Endpoint::with_tags`].
    pub fn tags<S: Into<String>>(mut self, tags: impl IntoIterator<Item = S>) -> Self {
        self.tags = tags.into_iter().map(Into::into).collect();
        self
    }

    /// How long it stays in the registry when its process is gone.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// How long a shutdown waits between taking it out of the registry and sending clients away. Clients of version 2
    /// are told which calls were not begun and need no such time; those of version 1 are not.
    pub fn settle(mut self, settle: Duration) -> Self {
        self.settle = settle;
        self
    }

    pub(super) fn options(&self) -> RegisterOptions {
        let options = RegisterOptions::new();
        match self.ttl {
            Some(ttl) => options.with_ttl(ttl),
            None => options,
        }
    }

    /// How often the lease is looked after.
    pub(super) fn renew_every(&self) -> Duration {
        let second = Duration::from_secs(1);
        self.ttl.map_or(second, |ttl| (ttl / 3).min(second)).max(Duration::from_millis(1))
    }

    fn endpoints(&self, server: &ServerHandle) -> Result<Vec<Arc<Endpoint>>, RegistrationError> {
        let address = self.address(server)?;
        let name = address.split_once("://").map_or(&*address, |(_, name)| name);
        let instance = self.instance.clone().unwrap_or_else(|| name.replace('/', "-"));
        let endpoint = |service: &String| {
            let endpoint = Endpoint::new(&**service, &*instance, &*address)?.with_weight(self.weight);
            let endpoint = match &self.zone {
                Some(zone) => endpoint.with_zone(&**zone)?,
                None => endpoint,
            };
            Ok(Arc::new(endpoint.with_tags(self.tags.iter().map(String::as_str))?))
        };
        self.services.iter().flatten().map(endpoint).collect()
    }

    /// Where clients find it: `host:port` for TCP, else with the scheme.
    fn address(&self, server: &ServerHandle) -> Result<String, RegistrationError> {
        let scheme = server.uri().split_once("://").map_or("tcp", |(scheme, _)| scheme);
        if self.advertise.as_ref().is_some_and(|address| address.contains("://")) || scheme == "tcp" {
            return self.host_and_port(server);
        }
        if scheme == "unix" {
            return Ok(self.advertise.as_ref().map_or(server.uri(), String::as_str).to_owned());
        }
        Ok(format!("{scheme}://{}", self.host_and_port(server)?))
    }

    fn host_and_port(&self, server: &ServerHandle) -> Result<String, RegistrationError> {
        let listens = server.local_addrs();
        match &self.advertise {
            Some(address) => {
                let is_host = address.parse::<SocketAddr>().is_err()
                    && (address.parse::<std::net::IpAddr>().is_ok() || !address.contains(':'));
                let port = listens.first().map(SocketAddr::port).filter(|_| is_host);
                Ok(match port {
                    Some(port) if address.contains(':') => format!("[{address}]:{port}"),
                    Some(port) => format!("{address}:{port}"),
                    None => address.clone(),
                })
            }
            None => {
                let concrete = listens.iter().find(|address| !address.ip().is_unspecified());
                let no_address = || RegistrationError::NoAddress(server.uri().to_owned());
                concrete.map(SocketAddr::to_string).ok_or_else(no_address)
            }
        }
    }
}

impl RpcServer {
    /// Makes all its services known to this registry, once it listens and until a shutdown begins. The registry is one
    /// that is open, or an address as [`discover::connect`](crate::discover::connect) takes it.
    ///
    /// Short for [`register_as`](Self::register_as) with the defaults of [`Registration`].
    pub fn register(self, registry: impl Into<RegistrySource>) -> Self {
        self.register_as(Registration::new(registry))
    }

    /// Makes services known to a registry, once it listens and until a shutdown begins: they are taken out of it before
    /// clients are told to go away.
    pub fn register_as(mut self, registration: Registration) -> Self {
        self.add_on_start(registration);
        self
    }
}

impl OnStart for Registration {
    /// Makes a server that listens known, and has its shutdown begin with the opposite.
    fn on_start(
        mut self: Box<Self>,
        server: &mut ServerHandle,
        services: &[String],
    ) -> Result<(), ServerError> {
        self.services.get_or_insert_with(|| services.to_vec());
        begin(server, *self).map_err(|error| ServerError::Registration(Box::new(error)))
    }
}

fn begin(server: &mut ServerHandle, registration: Registration) -> Result<(), RegistrationError> {
    let endpoints = registration.endpoints(server)?;
    let settle = registration.settle;
    let (started, on_start) = mpsc::channel();
    let (stop, on_stop) = oneshot::channel();
    let (done, on_done) = mpsc::channel();
    let keeper = Keeper { registration, endpoints, started, stop: on_stop, _done: done };
    let spawned = server.runtime().run_on(0, move || drop(corewire_runtime::spawn_local(keeper.run())));
    spawned.map_err(|_| RegistryError::Closed)?;
    match on_start.recv_timeout(START_WAIT) {
        Ok(result) => result?,
        Err(_) => tracing::warn!("the registry does not answer; the server goes on trying"),
    }
    let on_done = Mutex::new(on_done);
    server.on_shutdown(move |deadline| {
        let _ = stop.send(());
        if let Ok(on_done) = on_done.into_inner() {
            // Ready when the keeper is gone. A registry that does not answer lets the lease run out.
            let _: Result<(), _> = on_done.recv_timeout(deadline.min(DEREGISTER_WAIT));
        }
        std::thread::sleep(settle.min(deadline));
    });
    Ok(())
}
