//! Channels that follow a registry.

use std::fmt;
use std::time::Duration;

use corewire::ConnectError;
use corewire_discovery::{Balancer, OutlierConfig, PanicConfig, RegistryError, TwoChoices, ZoneAware};

use super::health;
use super::source::RegistrySource;
use crate::client::{Channel, ChannelBuilder, Discovery, WatchHealth};

/// A channel to be that calls whatever endpoints of a service a registry knows. Made by [`Channel::discover`].
///
/// | setting | default |
/// |---|---|
/// | balancer | [`TwoChoices`]: weights, calls in flight and latency |
/// | zone | none preferred |
/// | outliers | out after 5 failures in a row, for 5 s and longer, half of the endpoints at most ([`OutlierConfig`]) |
/// | panic threshold | while fewer than half of the endpoints are listed that were, of 3 or more, the others are used on ([`PanicConfig`]) |
/// | health check (version 2) | an endpoint is used once it has answered a ping, and pinged after 5 s of silence; 2 s to answer |
/// | health service | not asked ([`health_service`](Self::health_service)) |
/// | connections per endpoint | 1, made when the balancer first chooses the endpoint |
/// | connect timeout | 2 s for each address |
/// | no endpoint, or none that is ready | calls wait for one |
/// | retries of calls marked idempotent | [`Retry::default`](crate::Retry): 3 attempts, each at another endpoint |
/// | all else | that of [`ChannelBuilder`] |
///
/// Connections follow the registry: an endpoint that goes away gets no new calls, its connections close when its calls
/// in flight are over. One that moves to another address is another endpoint. Broken ones are connected to again, with a
/// growing wait of 5 s at the most, and are used as soon as they answer.
///
/// A call that certainly never reached a server (no connection, or a server that is going away refused it) goes to
/// another endpoint, whether it is marked idempotent or not. Calls with streams are placed when they begin; when their
/// endpoint is lost they fail.
#[must_use = "a channel is made by `build`"]
pub struct DiscoverBuilder {
    source: RegistrySource,
    service: String,
    channel: ChannelBuilder,
    balancer: Box<dyn Balancer>,
    zone: Option<Box<str>>,
    zone_min: usize,
    outliers: Option<OutlierConfig>,
    panic: Option<PanicConfig>,
    is_eager: bool,
    health: Option<WatchHealth>,
}

/// Why there is no channel.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// The registry cannot be opened or asked; see [`connect`](super::connect) for one that is away.
    #[error(transparent)]
    Registry(#[from] RegistryError),
    /// No worker can be had.
    #[error(transparent)]
    Channel(#[from] ConnectError),
}

impl Channel {
    /// A channel to the endpoints of a service that a registry knows, with settings to choose. The registry is an address
    /// as [`discover::connect`](crate::discover::connect) takes it, or one that is open already.
    ///
    /// ```
    /// use corewire_rpc::discover::registry::{Endpoint, LocalRegistry};
    /// use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
    ///
    /// let registry = LocalRegistry::new();
    /// let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
    /// let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).register(&registry).workers(1).start()?;
    ///
    /// let reply = corewire::block_on(async {
    ///     let channel = Channel::discover(&registry, "Echo").build().await?;
    ///     Ok::<_, Box<dyn std::error::Error>>(channel.unary("Echo/echo", "Hello").await?)
    /// })?;
    /// assert_eq!(reply, "Hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn discover(registry: impl Into<RegistrySource>, service: impl Into<String>) -> DiscoverBuilder {
        DiscoverBuilder::new(registry.into(), service.into())
    }
}

impl DiscoverBuilder {
    fn new(source: RegistrySource, service: String) -> Self {
        Self {
            source,
            service,
            channel: ChannelBuilder::for_discovery(),
            balancer: Box::new(TwoChoices::new()),
            zone: None,
            zone_min: 1,
            outliers: Some(OutlierConfig::default()),
            panic: Some(PanicConfig::default()),
            is_eager: false,
            health: None,
        }
    }

    /// Chooses the endpoint of each call by this. What it knows of endpoints outlasts changes of the others.
    pub fn balancer(mut self, balancer: impl Balancer + 'static) -> Self {
        self.balancer = Box::new(balancer);
        self
    }

    /// Calls only the endpoints of this zone, for as long as it has one that takes work and is not out of use.
    pub fn zone(mut self, zone: impl Into<Box<str>>) -> Self {
        self.zone = Some(zone.into());
        self
    }

    /// How many endpoints of the [`zone`](Self::zone) must take work for the others to get none; default 1.
    pub fn zone_min(mut self, endpoints: usize) -> Self {
        self.zone_min = endpoints;
        self
    }

    /// When endpoints are taken out of use, and for how long. Failures are calls that ended as unavailable, with their
    /// connection, or past their deadline.
    pub fn outliers(mut self, config: OutlierConfig) -> Self {
        self.outliers = Some(config);
        self
    }

    /// Uses endpoints however often calls to them fail.
    pub fn no_outliers(mut self) -> Self {
        self.outliers = None;
        self
    }

    /// When endpoints that left the registry are used on, because most of them left at once.
    pub fn panic_threshold(mut self, config: PanicConfig) -> Self {
        self.panic = Some(config);
        self
    }

    /// Follows the registry however few endpoints it lists.
    pub fn no_panic_threshold(mut self) -> Self {
        self.panic = None;
        self
    }

    /// Has an endpoint answer a ping before it is used, and again after each `every` without a byte from it; without an
    /// answer within `answer` the connection is given up. Version 1 of the protocol has no pings: there the connect
    /// alone tells.
    pub fn health_check(mut self, every: Duration, answer: Duration) -> Self {
        self.channel = self.channel.keep_alive(every, answer).probe(true);
        self
    }

    /// Uses an endpoint only while its [`Health`](crate::health::Health) says that the service is serving; one that offers no
    /// health service is used as if it did. Each endpoint is watched over a connection of its own.
    pub fn health_service(mut self) -> Self {
        self.health = Some(health::watch(self.service.clone()));
        self
    }

    /// Never pings: an endpoint is used once it is connected to.
    pub fn no_health_check(mut self) -> Self {
        self.channel = self.channel.no_keep_alive().probe(false);
        self
    }

    /// Connections to each endpoint; default 1.
    pub fn connections_per_endpoint(mut self, connections: usize) -> Self {
        self.channel = self.channel.connections(connections);
        self
    }

    /// Connects to each endpoint as soon as the registry tells it, instead of when it is first chosen.
    pub fn eager(mut self) -> Self {
        self.is_eager = true;
        self
    }

    /// Calls fail at once while there is no endpoint, or none can be connected to, instead of waiting for one.
    pub fn fail_fast(mut self) -> Self {
        self.channel = self.channel.fail_fast();
        self
    }

    /// Changes the settings of calls and connections: protocol, timeouts, retries, hedging, interceptors, worker.
    /// Addresses that are added by it are not used.
    pub fn channel(mut self, change: impl FnOnce(ChannelBuilder) -> ChannelBuilder) -> Self {
        self.channel = change(self.channel);
        self
    }

    /// Opens the registry, if it is not open, and makes the channel. The service need not have endpoints yet.
    ///
    /// # Errors
    /// The registry cannot be opened (one that is away: see [`connect`](super::connect)), the name of the service is not
    /// valid, or no worker can be had.
    pub async fn build(self) -> Result<Channel, DiscoverError> {
        let Self { source, service, channel, balancer, zone, zone_min, outliers, panic, is_eager, health } =
            self;
        let registry = source.open().await?;
        let watch = registry.watch(&service).await?;
        let key = registry.catalog().key(&service)?;
        let balancer = match zone {
            Some(zone) => Box::new(ZoneAware::new(zone, balancer).with_local_min(zone_min)),
            None => balancer,
        };
        Ok(channel.follow(Discovery { registry, key, watch, balancer, outliers, panic, is_eager, health })?)
    }
}

impl fmt::Debug for DiscoverBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiscoverBuilder")
            .field("source", &self.source)
            .field("service", &self.service)
            .field("balancer", &self.balancer)
            .field("zone", &self.zone)
            .finish_non_exhaustive()
    }
}
