//! Channels: calls to a server, or to several that are alike.

mod attempt;
mod call;
mod connect;
mod connection;
mod discovered;
mod interceptor;
mod local;
mod options;
mod remote;
mod repeat;
mod request;
mod schedule;
mod settings;
mod shape;
mod start;
mod streaming;
mod unary;

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corewire::client::{Connector, Reconnect, shared_worker};
use corewire::{ConnectError, NetUri, kcp};
use corewire_discovery::Flight;
use corewire_driver::net::StreamOptions;
use corewire_proto::rpc::{Mode, Settings as ProtocolSettings, Version};
use corewire_runtime::{ConnectionOptions, WorkerHandle, current_worker};

pub use self::call::{CallFuture, StreamingCall};
use self::discovered::{Discovered, FlightId, Outcome};
pub(crate) use self::discovered::{Discovery, Serving, WatchHealth};
pub use self::interceptor::ClientInterceptor;
use self::local::LocalChannel;
pub use self::options::{CallOptions, CallPath, IntoPath};
use self::request::Request;
use self::settings::Settings;
pub use self::settings::{Hedge, Retry};
pub use self::shape::Shape;
pub use self::streaming::{BidiStreaming, ClientStreaming, ResponseFuture, ServerStreaming};
pub use self::unary::{Unary, UnaryCall, WithMetadata};
use crate::gauges::{EndpointGauges, Gauges};
use crate::link::{self, Group};
use crate::message::Message;
use crate::status::Status;

/// Calls services, over connections that it makes when they are needed and makes again when they are lost.
///
/// `Send`, `Sync`, cheap to clone, and usable from any thread and any executor. It lives on one worker; calls made there
/// take the direct path, without memory of their own or a lock, others go by way of the worker's mailbox. When the last
/// clone is dropped, and the last call that it made is over, its connections are closed.
///
/// Every call ends exactly once: with its response, or with the [`Status`] that says what became of it.
/// When a connection dies all its calls fail at once; those that the server certainly never began are made again.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    worker: WorkerHandle,
    key: Group,
    /// Calls may be made several times.
    repeats: bool,
    interceptors: Arc<[Arc<dyn ClientInterceptor>]>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let key = self.key;
        if current_worker() == Some(self.worker.id()) {
            return local::remove(key);
        }
        // A worker that has stopped has closed its channels.
        let _ = self.worker.run(move || local::remove(key));
    }
}

/// A channel to be. Made by [`Channel::to`].
///
/// | setting | default |
/// |---|---|
/// | protocol | version 2 |
/// | connections | 1, made when first needed |
/// | time of a unary call | 15 s; of a call with streams no limit |
/// | connect timeout | 5 s for each address |
/// | reconnect | when needed, after 50 ms to 5 s (exponential, with jitter) |
/// | keep-alive (version 2) | a ping after 30 s of silence, answered within 10 s |
/// | no connection | calls wait for one |
/// | retries, hedging | none |
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

    /// Calls a method with one request and one response. The call begins when the future is first polled.
    #[inline]
    pub fn unary(&self, path: impl IntoPath, request: impl Into<Bytes>) -> UnaryCall {
        let mut call = Request::new(path.into_path(), Mode::Unary, Some(request.into()));
        call.end = true;
        CallFuture::new(self, call)
    }

    /// As [`unary`](Self::unary), with messages of any type.
    pub fn call<Req: Message, Resp: Message>(&self, path: impl IntoPath, request: Req) -> UnaryCall<Resp> {
        CallFuture::new(self, Request::of_message(path.into_path(), Mode::Unary, request))
    }

    /// Calls a method with any number of requests and one response.
    pub fn client_stream<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
    ) -> StreamingCall<ClientStreaming<Req, Resp>> {
        CallFuture::new(self, Request::new(path.into_path(), Mode::ClientStream, None))
    }

    /// Calls a method with one request and any number of responses.
    pub fn server_stream<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
        request: Req,
    ) -> StreamingCall<ServerStreaming<Resp>> {
        CallFuture::new(self, Request::of_message(path.into_path(), Mode::ServerStream, request))
    }

    /// Calls a method with any number of requests and responses.
    pub fn bidi<Req: Message, Resp: Message>(
        &self,
        path: impl IntoPath,
    ) -> StreamingCall<BidiStreaming<Req, Resp>> {
        CallFuture::new(self, Request::new(path.into_path(), Mode::Bidi, None))
    }

    /// Opens a stream of the `STREAM_*` family on a route.
    pub fn stream(&self, path: impl IntoPath) -> StreamingCall<BidiStreaming<Bytes, Bytes>> {
        let mut request = Request::new(path.into_path(), Mode::Bidi, None);
        request.is_stream = true;
        CallFuture::new(self, request)
    }

    /// The worker that it lives on.
    pub fn worker(&self) -> &WorkerHandle {
        &self.shared.worker
    }

    /// What it holds now: calls, streams, bytes. All 0 once its worker has stopped.
    pub async fn gauges(&self) -> Gauges {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let group = self.shared.key;
        // By the mailbox also from its own worker: nothing of a call runs then.
        let asked = self.shared.worker.run(move || {
            // Whoever asked may have gone.
            let _ = sender.send(link::gauges(group));
        });
        if asked.is_err() {
            return Gauges::default();
        }
        receiver.await.unwrap_or_default()
    }

    /// The endpoints that it has now; `None` if it follows no registry, or its worker has stopped.
    pub async fn endpoints(&self) -> Option<EndpointGauges> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let key = self.shared.key;
        let asked = self.shared.worker.run(move || {
            let discovered = local::find(key).and_then(|channel| channel.discovered.clone());
            // Whoever asked may have gone.
            let _ = sender.send(discovered.map(|discovered| discovered.endpoints()));
        });
        asked.ok()?;
        receiver.await.ok()?
    }

    /// Closes its connections. Calls in flight fail, and so do later ones.
    pub fn close(&self) {
        let key = self.shared.key;
        self.run_there(move || {
            if let Some(channel) = local::find(key) {
                channel.close();
            }
        });
    }

    #[inline]
    fn key(&self) -> Group {
        self.shared.key
    }

    #[inline]
    fn is_local(&self) -> bool {
        current_worker() == Some(self.shared.worker.id())
    }

    #[inline]
    fn repeats(&self) -> bool {
        self.shared.repeats
    }

    #[inline]
    fn is_watched(&self) -> bool {
        !self.shared.interceptors.is_empty()
    }

    fn interceptors(&self) -> &[Arc<dyn ClientInterceptor>] {
        &self.shared.interceptors
    }

    /// A call that a balancer placed is over; without a result it was cancelled.
    fn on_outcome(&self, flight: FlightId, result: Option<&Result<Bytes, Status>>) {
        let outcome = Outcome::of(result);
        let key = self.shared.key;
        self.run_there(move || {
            if let Some(discovered) = local::find(key).and_then(|channel| channel.discovered.clone()) {
                discovered.end(flight, outcome);
            }
        });
    }

    /// What counts a call with streams as in flight. On the channel's worker.
    fn take_flight(&self, flight: FlightId) -> Option<Flight> {
        let discovered = local::find(self.key())?.discovered.clone()?;
        discovered.take(flight)
    }

    /// Runs on the channel's worker: now, if that is here.
    fn run_there(&self, act: impl FnOnce() + Send + 'static) {
        if self.is_local() {
            return act();
        }
        // A worker that has stopped has ended all of it.
        let _ = self.shared.worker.run(act);
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

    /// How long to try each address; default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connect.timeout = timeout;
        self
    }

    /// The bounds of the first and of the longest wait after failed connects; default 50 ms and 5 s.
    pub fn reconnect(mut self, initial: Duration, max: Duration) -> Self {
        self.settings.connect.reconnect = Some(Reconnect::between(initial, max));
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

    /// All limits and times of its connections.
    pub fn connection_options(mut self, options: ConnectionOptions) -> Self {
        self.settings.connect.connection = options;
        self
    }

    /// Options of its sockets.
    pub fn stream_options(mut self, options: StreamOptions) -> Self {
        self.settings.connect.stream = options;
        self
    }

    /// How it speaks KCP with servers on `kcp://`: conversation, socket, key. The key that a URI names is that of its server
    /// alone; one given here is for all of them and comes first. How long to wait for a first answer is told by
    /// [`connect_timeout`](Self::connect_timeout).
    pub fn kcp(mut self, options: kcp::ClientOptions) -> Self {
        self.settings.connect.kcp(options);
        self
    }

    /// The worker to live on. Default: the one that makes it, or else a worker that all such channels share.
    pub fn worker(mut self, worker: WorkerHandle) -> Self {
        self.settings.worker = Some(worker);
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
            let server = Connector::new(NetUri::parse(&uri)?, settings.connect.clone());
            settings.servers.push(server.load_key()?);
        }
        Self::install(settings, LocalChannel::new)
    }

    /// As one that makes no connections of its own yet, for a channel that follows a registry.
    pub(crate) fn for_discovery() -> Self {
        let mut settings = Settings::new();
        (settings.probes, settings.retry) = (true, Some(Retry::default()));
        settings.keep_alive = Some(Duration::from_secs(5));
        settings.keep_alive_timeout = Duration::from_secs(2);
        settings.connect.timeout = Duration::from_secs(2);
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
        Self::install(self.settings, |settings, home, group| {
            Discovered::channel(discovery, settings, home, group)
        })
    }

    /// A channel with these settings, whatever else uses them; on its worker.
    fn alone(mut settings: Settings, worker: &WorkerHandle) -> Result<Channel, ConnectError> {
        (settings.worker, settings.pool) = (Some(worker.clone()), 1);
        Self::install(settings, LocalChannel::new)
    }

    fn install(
        settings: Settings,
        make: impl FnOnce(Settings, WorkerHandle, Group) -> Rc<LocalChannel> + Send + 'static,
    ) -> Result<Channel, ConnectError> {
        let worker = match settings.worker.clone().or_else(WorkerHandle::current) {
            Some(worker) => worker,
            None => shared_worker()?,
        };
        let key = Group::next();
        let shared = Shared {
            worker: worker.clone(),
            key,
            repeats: settings.retry.is_some() || settings.hedge.is_some(),
            interceptors: settings.interceptors.clone().into(),
        };
        let home = worker.clone();
        let install = move || local::add(key, make(settings, home, key));
        if current_worker() == Some(worker.id()) {
            install();
        } else {
            worker.run(install).map_err(|_| ConnectError::Stopped)?;
        }
        Ok(Channel { shared: Arc::new(shared) })
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("worker", &self.shared.worker.id()).finish_non_exhaustive()
    }
}
