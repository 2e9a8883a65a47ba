//! Servers: services and routes on a port.

mod connection;
mod context;
mod ending;
mod gauges;
mod interceptor;
mod listing;
mod method;
mod pools;
mod routes;
mod serve;
mod service;
mod task;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corewire::server::ProtocolServer;
use corewire::{DriverKind, NetServer, ServerError, ServerHandle, SettingError, ShutdownReport};
use corewire_proto::rpc::{Settings, Version};
use corewire_runtime::driver::net::StreamOptions;
use corewire_runtime::{Builder, Handle};

use self::connection::Endpoint;
pub(crate) use self::connection::millis_up;
pub use self::context::Context;
use self::ending::HALF_CLOSE_TIMEOUT;
pub use self::gauges::ServerGauges;
pub use self::interceptor::ServerInterceptor;
use self::routes::Plan;
pub use self::service::Service;
use self::service::{Registered, route};
use crate::limits;
use crate::sink::Sink;
use crate::status::Status;
use crate::stream::Streaming;

/// A server to be: where it listens, its services, its limits. It speaks versions 1 (galay-rpc) and 2 on one port.
///
/// | setting | default |
/// |---|---|
/// | body, calls in flight, streams, window | those of [`Settings`] |
/// | time of a call without a deadline | no limit |
/// | time of calls whose client has closed its sending side | 10 s |
/// | `SO_KEEPALIVE` | after 30 s: a client that is gone without an end is noticed after 5 minutes |
/// | connections, idle timeout, water marks, backlog | those of [`NetServer`] |
///
/// ```
/// use bytes::Bytes;
/// use corewire_rpc::{Channel, Context, RpcServer, Service};
///
/// let server = RpcServer::bind("tcp://127.0.0.1:0")
///     .service(Service::new("EchoService").unary("echo", |request: Bytes, _: Context| async move { Ok(request) }))
///     .workers(1)
///     .start()?;
///
/// let channel = Channel::to(server.uri()).build()?;
/// let reply = corewire::block_on(channel.unary("EchoService/echo", "Hello"))?;
/// assert_eq!(&reply[..], b"Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a server does nothing before `start` or `run`"]
pub struct RpcServer {
    net: NetServer,
    methods: Vec<Registered>,
    interceptors: Vec<Box<dyn ServerInterceptor>>,
    settings: Settings,
    call_timeout: Option<Duration>,
    half_close_timeout: Duration,
    gauges: ServerGauges,
    on_start: Vec<Box<dyn OnStart>>,
    is_listed: bool,
}

/// What is done with a server that has begun to listen.
pub(crate) trait OnStart: Send {
    /// `services`: the names of all that it offers.
    fn on_start(self: Box<Self>, server: &mut ServerHandle, services: &[String]) -> Result<(), ServerError>;
}

impl RpcServer {
    /// A server that listens on a URI, as [`NetServer::bind`] does.
    pub fn bind(uri: impl Into<String>) -> Self {
        Self {
            net: NetServer::bind(uri).stream_options(stream_options()),
            methods: Vec::new(),
            interceptors: Vec::new(),
            settings: Settings::default(),
            call_timeout: None,
            half_close_timeout: HALF_CLOSE_TIMEOUT,
            gauges: ServerGauges::new(),
            on_start: Vec::new(),
            is_listed: false,
        }
    }

    /// Adds a service. Of methods registered twice in the same mode the later one is served.
    pub fn service(mut self, service: impl Into<Service>) -> Self {
        self.methods.extend(service.into().into_methods());
        self
    }

    /// Adds a route of the `STREAM_*` family: a stream of messages each way, opened by the client.
    pub fn stream_route<F, Fut>(
        mut self,
        service: impl Into<String>,
        method: impl Into<String>,
        handler: F,
    ) -> Self
    where
        F: Fn(Streaming<Bytes>, Sink<Bytes>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
    {
        self.methods.push(route(service.into(), method.into(), handler));
        self
    }

    /// Tells who asks which services and methods there are, in which modes: see [`listing`](crate::listing).
    pub fn listing(mut self) -> Self {
        self.is_listed = true;
        self
    }

    /// Has each call pass this interceptor, behind those added before.
    pub fn interceptor(mut self, interceptor: impl ServerInterceptor) -> Self {
        self.interceptors.push(Box::new(interceptor));
        self
    }

    /// A handle by which to ask, while the server runs, what it holds: calls, streams, bytes.
    pub fn gauges(&self) -> ServerGauges {
        self.gauges.clone()
    }

    /// The protocol's limits: body, calls, streams, window, floods.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// The versions of the protocol that it speaks; default both. A client of another one is told so: see
    /// [`Versions`](crate::Versions).
    pub fn versions(mut self, versions: impl IntoIterator<Item = Version>) -> Self {
        self.settings.versions = versions.into_iter().collect();
        self
    }

    /// The most time that a call gets, whatever its client allows; default no limit.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = Some(timeout);
        self
    }

    /// How long the calls of a client that has closed its sending side may go on; default 10 s. They are answered, then
    /// the connection is closed; requests that the client had not ended fail. With zero the connection is closed at once.
    ///
    /// A client of version 1 that has died looks the same: its handlers run that long. One of version 2 is pinged, and
    /// its handlers are dropped about a second after its death.
    pub fn half_close_timeout(mut self, timeout: Duration) -> Self {
        self.half_close_timeout = timeout;
        self
    }

    /// Low and high water of a connection's send queue in bytes; default 64 KiB and 256 KiB. Over the high mark nothing
    /// more is read from its client, and sinks wait.
    pub fn water_marks(mut self, low: usize, high: usize) -> Self {
        self.net = self.net.water_marks(low, high);
        self
    }

    /// How many workers; see [`NetServer::workers`].
    pub fn workers(self, workers: usize) -> Self {
        self.net(|net| net.workers(workers))
    }

    /// Which processors; see [`NetServer::cpus`].
    pub fn cpus(self, cpus: impl Into<Vec<usize>>) -> Self {
        self.net(|net| net.cpus(cpus))
    }

    /// Which driver; see [`NetServer::driver`].
    pub fn driver(self, kind: DriverKind) -> Self {
        self.net(|net| net.driver(kind))
    }

    /// Has the workers enter tokio's context, so that what is made for tokio works in handlers; see [`NetServer::tokio`].
    #[cfg(feature = "tokio")]
    pub fn tokio(self, context: impl Into<corewire::TokioContext>) -> Self {
        self.net(|net| net.tokio(context))
    }

    /// All settings of the runtime that [`start`](Self::start) makes.
    pub fn runtime(self, builder: Builder) -> Self {
        self.net(|net| net.runtime(builder))
    }

    /// How it speaks TLS on `tls://`, instead of by the files that the URI names.
    #[cfg(feature = "tls")]
    pub fn tls(self, tls: corewire::tls::ServerTls) -> Self {
        self.net(|net| net.tls(tls))
    }

    /// Changes the settings of the server below: placement, connections, idle timeout, sockets.
    pub fn net(mut self, change: impl FnOnce(NetServer) -> NetServer) -> Self {
        self.net = change(self.net);
        self
    }

    /// Starts workers of its own and listens. Dropping the handle stops the server at once;
    /// [`ServerHandle::shutdown`] sends GOAWAY, lets calls finish and cuts at the deadline what is left.
    ///
    /// # Errors
    /// The URI or a setting is wrong, the address cannot be had, the workers cannot be started, or a registry refuses the server.
    pub fn start(mut self) -> Result<ServerHandle, ServerError> {
        let on_start = self.take_on_start();
        on_start(self.build()?.start()?)
    }

    /// Listens on the workers of a runtime that exists.
    ///
    /// # Errors
    /// The URI or a setting is wrong, the address cannot be had, or the workers have stopped.
    pub fn start_on(mut self, runtime: &Handle) -> Result<ServerHandle, ServerError> {
        let on_start = self.take_on_start();
        on_start(self.build()?.start_on(runtime)?)
    }

    /// Serves until SIGINT or SIGTERM; then lets calls finish, for 10 s at most, and says what it cut.
    ///
    /// # Errors
    /// As [`start`](Self::start), or signals cannot be received.
    pub fn run(mut self) -> Result<ShutdownReport, ServerError> {
        let on_start = self.take_on_start();
        self.build()?.run_with(on_start)
    }

    /// Has this done once the server listens.
    pub(crate) fn add_on_start(&mut self, act: impl OnStart + 'static) {
        self.on_start.push(Box::new(act));
    }

    /// What is done once it listens.
    fn take_on_start(&mut self) -> impl FnOnce(ServerHandle) -> Result<ServerHandle, ServerError> + use<> {
        let acts = std::mem::take(&mut self.on_start);
        let mut services: Vec<String> = self.methods.iter().map(|method| method.service.clone()).collect();
        services.sort_unstable();
        services.dedup();
        move |mut server| {
            for act in acts {
                act.on_start(&mut server, &services)?;
            }
            Ok(server)
        }
    }

    fn build(mut self) -> Result<ProtocolServer<impl Fn() -> Endpoint + Send + Sync + 'static>, ServerError> {
        limits::check(&self.settings)?;
        if self.is_listed {
            let listing = listing::service(&self.methods);
            self.methods.extend(listing.into_methods());
        }
        if let Some(timeout) = self.call_timeout {
            SettingError::if_zero("the most time of a call", timeout)?;
        }
        let plan = Arc::new(Plan {
            group: self.gauges.group(),
            workers: self.gauges.workers().clone(),
            methods: self.methods,
            interceptors: self.interceptors.into(),
            settings: self.settings,
            call_timeout: self.call_timeout,
            half_close_timeout: self.half_close_timeout,
            high_water: self.net.connection_settings().high_water,
        });
        Ok(self.net.protocol(move || Endpoint::new(plan.clone())))
    }
}

/// Those of connections: the kernel looks whether a silent client is still there, since a client of version 1 cannot be
/// asked by a ping, and one of version 2 is not while it has nothing to say.
fn stream_options() -> StreamOptions {
    let mut options = StreamOptions::default();
    options.keep_alive = Some(Duration::from_secs(30));
    options
}

impl fmt::Debug for RpcServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let methods = self.methods.iter().map(|method| format!("{}/{}", method.service, method.method));
        f.debug_struct("RpcServer")
            .field("net", &self.net)
            .field("methods", &methods.collect::<Vec<_>>())
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
