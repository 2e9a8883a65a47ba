//! Servers that make themselves known.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use corewire::ServerHandle;
use corewire_discovery::{DEFAULT_WEIGHT, Endpoint, EndpointError, RegisterOptions, RegistryError};

use super::source::RegistrySource;

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
    pub(super) services: Option<Vec<String>>,
    advertise: Option<String>,
    instance: Option<String>,
    weight: u16,
    zone: Option<String>,
    tags: Vec<String>,
    ttl: Option<Duration>,
    pub(super) settle: Duration,
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

    pub(super) fn endpoints(&self, server: &ServerHandle) -> Result<Vec<Arc<Endpoint>>, RegistrationError> {
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
