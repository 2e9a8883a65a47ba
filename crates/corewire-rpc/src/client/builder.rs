//! What channels are told before they call.

use std::sync::Arc;
use std::time::Duration;

use corewire::ConnectError;
use corewire::client::{ClientBuilder, OwnProtocol};
use corewire_proto::rpc::{Settings as ProtocolSettings, Version};
use corewire_runtime::{JoinHandle, WorkerHandle};

use super::channel::Channel;
use super::discovered::{Discovered, Discovery, Serving, WatchHealth};
use super::interceptor::ClientInterceptor;
use super::local::LocalChannel;
use super::policy::{Hedge, Retry};
use super::pool::Pool;
use super::settings::Settings;

/// A channel to be. Made by [`Channel::to`].
///
/// | setting | default |
/// |---|---|
/// | protocol | version 2 |
/// | connections | 1, made when first needed |
/// | time of a unary call | 15 s; of a call with streams no limit |
/// | keep-alive (version 2) | a ping after 30 s of silence, answered within 10 s |
/// | no connection | calls wait for one |
/// | retries, hedging | none |
/// | connect timeout, reconnect, send queue, sockets, keys, worker | those of a [`ClientBuilder`], changed by [`net`](Self::net) |
#[derive(Debug)]
#[must_use = "a channel is made by `build`"]
pub struct ChannelBuilder {
    settings: Settings,
    uris: Vec<String>,
}

impl Channel {
    /// A channel to the server at this URI, with settings to choose.
    pub fn to(uri: impl Into<String>) -> ChannelBuilder {
        ChannelBuilder { settings: Settings::new(), uris: vec![uri.into()] }
    }
}

impl ChannelBuilder {
    /// Adds a server that answers the same calls. The pool's connections go to them in turn, and a connect that fails
    /// goes on with the next one.
    pub fn and(mut self, uri: impl Into<String>) -> Self {
        self.uris.push(uri.into());
        self
    }

    /// The version of the protocol to speak; [`Version::V1`] is that of galay-rpc.
    pub fn protocol(mut self, version: Version) -> Self {
        self.settings.version = version;
        self
    }

    /// The protocol's limits.
    pub fn settings(mut self, settings: ProtocolSettings) -> Self {
        self.settings.protocol = settings;
        self
    }

    /// Connections that calls are spread over; default 1.
    pub fn connections(mut self, connections: usize) -> Self {
        self.settings.pool = connections;
        self
    }

    /// The time of a unary call that has none of its own, the wait for a connection included; default 15 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = timeout;
        self
    }

    /// Pings a server (version 2) after this time without a byte from it, and gives the connection up when nothing comes
    /// within `answer`; default 30 s and 10 s.
    pub fn keep_alive(mut self, every: Duration, answer: Duration) -> Self {
        self.settings.keep_alive = Some(every);
        self.settings.keep_alive_timeout = answer;
        self
    }

    /// Never pings.
    pub fn no_keep_alive(mut self) -> Self {
        self.settings.keep_alive = None;
        self
    }

    /// Calls fail at once while no connection can be made, or while as many are in flight as the server takes, instead of
    /// waiting for a connection or a place.
    pub fn fail_fast(mut self) -> Self {
        self.settings.fail_fast = true;
        self
    }

    /// Makes calls that are marked idempotent again when the server cannot be reached.
    pub fn retry(mut self, retry: Retry) -> Self {
        self.settings.retry = Some(retry);
        self
    }

    /// Makes a call that is marked idempotent a second time when it has taken this long ([`Hedge`] says more), and takes the
    /// first result.
    pub fn hedge(mut self, hedge: impl Into<Hedge>) -> Self {
        self.settings.hedge = Some(hedge.into());
        self
    }

    /// Has each call pass this interceptor, behind those added before.
    pub fn interceptor(mut self, interceptor: impl ClientInterceptor) -> Self {
        self.settings.interceptors.push(Arc::new(interceptor));
        self
    }

    /// The worker to live on; see [`ClientBuilder::worker`].
    pub fn worker(self, worker: WorkerHandle) -> Self {
        self.net(|net| net.worker(worker))
    }

    /// Changes the settings of the connections below: timeouts, back-off, limits, sockets, keys.
    ///
    /// ```
    /// use std::time::Duration;
    /// use corewire_rpc::Channel;
    ///
    /// let channel = Channel::to("tcp://127.0.0.1:7777")
    ///     .net(|net| net.connect_timeout(Duration::from_secs(1)).water_marks(16 * 1024, 64 * 1024))
    ///     .build()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn net(
        mut self,
        change: impl FnOnce(ClientBuilder<OwnProtocol>) -> ClientBuilder<OwnProtocol>,
    ) -> Self {
        self.settings.net = change(self.settings.net);
        self
    }

    /// Makes the channel. It connects when it is first used.
    ///
    /// # Errors
    /// A URI or a setting is wrong, the key that the URI names cannot be read, or no worker can be had.
    pub fn build(self) -> Result<Channel, ConnectError> {
        let Self { mut settings, uris } = self;
        settings.check()?;
        for uri in uris {
            let server = settings.connector(&uri)?;
            settings.servers.push(server.load_secrets()?);
        }
        Channel::install(settings, LocalChannel::new)
    }

    /// As one that makes no connections of its own yet, for a channel that follows a registry.
    pub(crate) fn for_discovery() -> Self {
        let mut settings = Settings::new();
        (settings.probes, settings.retry) = (true, Some(Retry::default()));
        settings.keep_alive = Some(Duration::from_secs(5));
        settings.keep_alive_timeout = Duration::from_secs(2);
        settings.net = settings.net.connect_timeout(Duration::from_secs(2));
        Self { settings, uris: Vec::new() }
    }

    /// A connection is of use only once it has answered a ping.
    pub(crate) fn probe(mut self, probes: bool) -> Self {
        self.settings.probes = probes;
        self
    }

    /// Makes the channel with the connections that a registry tells.
    pub(crate) fn follow(self, discovery: Discovery) -> Result<Channel, ConnectError> {
        self.settings.check()?;
        Channel::install(self.settings, |settings, home, group| {
            let pool = Pool::empty(settings, home, group);
            LocalChannel::following(pool.clone(), Discovered::new(discovery, pool))
        })
    }

    /// A channel with these settings, whatever else uses them; on its worker.
    fn alone(mut settings: Settings, worker: &WorkerHandle) -> Result<Channel, ConnectError> {
        settings.net = settings.net.worker(worker.clone());
        settings.pool = 1;
        Channel::install(settings, LocalChannel::new)
    }
}

impl WatchHealth {
    /// Starts a task that watches an endpoint over a channel to it.
    pub(crate) fn over_channel(watch: impl Fn(Channel, Serving) -> JoinHandle<()> + Send + 'static) -> Self {
        Self::new(move |settings, home, serving| {
            let channel = ChannelBuilder::alone(settings, home).ok()?;
            Some(watch(channel, serving))
        })
    }
}
