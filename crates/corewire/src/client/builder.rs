//! What clients of any kind are told before they connect.

use std::time::Duration;

use corewire_driver::net::StreamOptions;
use corewire_proto::codec::{Codec, RawCodec};
use corewire_proto::kcp;
use corewire_runtime::udp::UdpOptions;
use corewire_runtime::{ConnectionOptions, SettingError, WorkerHandle};

use super::connect::{self, shared_worker};
use super::connector::{ConnectSettings, Connector};
use super::settings::{Reconnect, Settings};
use super::{ConnectError, NetClient};
use crate::handler::{Handler, Ignore};
use crate::kcp::Key;
use crate::uri::NetUri;

/// A client to be: how it connects, and the limits of its connections. `K` is what it speaks: the frames of a [`NetClient`]
/// ([`Framing`], made by [`NetUri::client`]), or a protocol of its own ([`OwnProtocol`]), as the channels of `corewire-rpc`.
///
/// | setting | default |
/// |---|---|
/// | connect timeout | 5 s for each address |
/// | reconnect | for ever, after 50 ms to 5 s (exponential, with jitter); 250 ms at the most while something waits |
/// | high / low water of the send queue | 256 KiB / 64 KiB |
/// | worker | the current one, or one that all clients outside of workers share |
/// | codec of a `NetClient` | none: pieces of the stream; no requests |
/// | request timeout of a `NetClient` | 15 s |
/// | calls in flight of a `NetClient` | 256 by sequence (SRMP), 65,536 in order |
#[derive(Debug, Clone)]
#[must_use = "a client does nothing before `connect`"]
pub struct ClientBuilder<K = Framing> {
    connect: ConnectSettings,
    worker: Option<WorkerHandle>,
    kind: K,
}

/// A [`NetClient`] to be: `C` makes the codec of each connection, `H` its handler.
#[derive(Debug, Clone)]
pub struct Framing<C = fn() -> RawCodec, H = fn() -> Ignore> {
    uri: NetUri,
    codec: C,
    handler: H,
    request_timeout: Duration,
    max_in_flight: Option<usize>,
    inbox: Option<usize>,
}

/// A client that gives its connections a [`Protocol`](corewire_runtime::Protocol) of its own, by a [`Connector`].
#[derive(Debug, Clone, Copy, Default)]
pub struct OwnProtocol;

impl NetUri {
    /// A client of the server at this URI, with settings to choose.
    pub fn client(&self) -> ClientBuilder {
        let kind = Framing {
            uri: self.clone(),
            codec: (|| RawCodec) as fn() -> RawCodec,
            handler: (|| Ignore) as fn() -> Ignore,
            request_timeout: Duration::from_secs(15),
            max_in_flight: None,
            inbox: None,
        };
        ClientBuilder { connect: ConnectSettings::default(), worker: None, kind }
    }

    /// Connects with the default settings: no codec, so bytes go out as they are given and there are no requests.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect(&self) -> Result<NetClient, ConnectError> {
        self.client().connect().await
    }
}

impl<K> ClientBuilder<K> {
    /// How long to try each address; default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect.timeout = timeout;
        self
    }

    /// What to do when the connection is lost; default [`Reconnect::default`].
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.connect.reconnect = Some(reconnect);
        self
    }

    /// Low and high water of the send queue in bytes; default 64 KiB and 256 KiB.
    pub fn water_marks(mut self, low: usize, high: usize) -> Self {
        (self.connect.connection.low_water, self.connect.connection.high_water) = (low, high);
        self
    }

    /// All limits and times of the connection.
    pub fn connection_options(mut self, options: ConnectionOptions) -> Self {
        self.connect.connection = options;
        self
    }

    /// Options of the socket.
    pub fn stream_options(mut self, options: StreamOptions) -> Self {
        self.connect.stream = options;
        self
    }

    /// Options of a UDP or KCP socket; default: 8 MiB to receive, 2 MiB to send, with offload.
    pub fn udp_options(mut self, options: UdpOptions) -> Self {
        self.connect.datagram.udp = options;
        self
    }

    /// How it speaks TLS with servers on `tls://` (of a channel that follows a registry, with all endpoints on it), instead of
    /// by the files that their URIs name.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::ClientTls) -> Self {
        self.connect.tls = Some(tls);
        self
    }

    /// Settings of a KCP conversation; default: [`kcp::Config::turbo`] in stream mode with windows of 1,024 segments. How long
    /// to wait for a first answer is told by [`connect_timeout`](Self::connect_timeout).
    pub fn kcp_config(mut self, config: kcp::Config) -> Self {
        self.connect.datagram.kcp = config;
        self
    }

    /// Encrypts KCP with a key that the server knows too. It comes before the `key-file` or `key-env` of the URI, and is
    /// that of all servers if there are several. Default: no encryption. With another key than the server's nothing is
    /// answered: a [`NetClient`] ends its calls after the connect timeout with
    /// [`CallError::ConnectionLost`](super::CallError::ConnectionLost).
    pub fn kcp_key(mut self, key: Key) -> Self {
        self.connect.datagram.key = Some(key);
        self
    }

    /// Lives on this worker; default: the current one, outside of workers one of a runtime that all such clients
    /// share.
    pub fn worker(mut self, worker: WorkerHandle) -> Self {
        self.worker = Some(worker);
        self
    }

    /// The worker that it is to live on, by [`worker`](Self::worker) or the default.
    ///
    /// # Errors
    /// It is to be the shared one, whose thread or event loop cannot be had.
    pub fn home(&self) -> Result<WorkerHandle, ConnectError> {
        match self.worker.clone().or_else(WorkerHandle::current) {
            Some(worker) => Ok(worker),
            None => shared_worker(),
        }
    }
}

impl<C, H> ClientBuilder<Framing<C, H>> {
    /// Frames each connection by the codec that this makes for it.
    pub fn codec<C2, D>(self, codec: D) -> ClientBuilder<Framing<D, H>>
    where
        D: Fn() -> C2 + Send + 'static,
        C2: Codec,
    {
        let Self { connect, worker, kind } = self;
        let Framing { uri, handler, request_timeout, max_in_flight, inbox, .. } = kind;
        let kind = Framing { uri, codec, handler, request_timeout, max_in_flight, inbox };
        ClientBuilder { connect, worker, kind }
    }

    /// Gives frames that are no replies to the handler that this makes for each connection. Its session can be used
    /// to send on the worker, push style.
    pub fn handler<H2, G>(self, handler: G) -> ClientBuilder<Framing<C, G>>
    where
        G: Fn() -> H2 + Send + 'static,
        H2: Handler,
    {
        let Self { connect, worker, kind } = self;
        let Framing { uri, codec, request_timeout, max_in_flight, inbox, .. } = kind;
        let kind = Framing { uri, codec, handler, request_timeout, max_in_flight, inbox };
        ClientBuilder { connect, worker, kind }
    }

    /// Keeps frames that are no replies, this many at the most, for [`NetClient::recv`]. When they are not taken the
    /// server is held back, replies included. Without it, and without a handler, they are dropped.
    pub fn inbox(mut self, messages: usize) -> Self {
        self.kind.inbox = Some(messages);
        self
    }

    /// How long a call waits for its reply, the wait for a connection included; default 15 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.kind.request_timeout = timeout;
        self
    }

    /// Calls in flight at the most (by sequence, the codec's own limit holds as well).
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.kind.max_in_flight = Some(calls);
        self
    }

    /// Ends with its first connection.
    pub fn no_reconnect(mut self) -> Self {
        self.connect.reconnect = None;
        self
    }
}

impl<C, H, CF, HF> ClientBuilder<Framing<CF, HF>>
where
    CF: Fn() -> C + Send + 'static,
    HF: Fn() -> H + Send + 'static,
    C: Codec,
    H: Handler,
{
    /// Connects. Can be awaited on any executor.
    ///
    /// # Errors
    /// A setting is wrong, the host has no address, none of its addresses answers, or no worker can be had.
    pub async fn connect(self) -> Result<NetClient, ConnectError> {
        let home = self.home()?;
        let Framing { uri, codec, handler, request_timeout, max_in_flight, inbox } = self.kind;
        let connector = Connector::new(uri, self.connect);
        let settings = Settings { connector, request_timeout, max_in_flight, inbox };
        connect::connect(settings, home, codec, handler).await
    }

    /// Connects, blocking the calling thread.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Panics
    /// On a worker.
    pub fn connect_blocking(self) -> Result<NetClient, ConnectError> {
        crate::block_on(self.connect())
    }
}

impl ClientBuilder<OwnProtocol> {
    /// A client that speaks a protocol of its own.
    pub fn new() -> Self {
        Self { connect: ConnectSettings::default(), worker: None, kind: OwnProtocol }
    }

    /// What connects to the server at this URI. A key or certificates that the URI names are still to be [read](Connector::load_secrets).
    pub fn connector(&self, uri: NetUri) -> Connector {
        Connector::new(uri, self.connect.clone())
    }

    /// The limits and times of its connections.
    pub const fn connection_settings(&self) -> &ConnectionOptions {
        &self.connect.connection
    }

    /// How it comes back.
    pub fn reconnect_settings(&self) -> Reconnect {
        self.connect.reconnect.clone().unwrap_or_default()
    }

    /// Refuses settings with which nothing could ever be connected to.
    ///
    /// # Errors
    /// Which setting it is, its value, and what is allowed.
    pub fn check(&self) -> Result<(), SettingError> {
        self.connect.check()
    }
}

impl Default for ClientBuilder<OwnProtocol> {
    fn default() -> Self {
        Self::new()
    }
}
