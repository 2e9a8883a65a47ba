//! Clients from a URI.

mod begin;
mod call;
mod calls;
mod connect;
mod connection;
mod connector;
mod ending;
mod endpoint;
mod error;
mod inbox;
mod local;
mod object;
mod operations;
mod outbox;
mod retries;
mod settings;
mod wakers;
mod worker_client;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::net::StreamOptions;
use corewire_proto::codec::{Codec, RawCodec};
use corewire_proto::kcp;
use corewire_runtime::udp::UdpOptions;
use corewire_runtime::{ConnectionOptions, Waiter, WorkerHandle, WorkerId, current_worker, poll_with_quota};
use futures_channel::oneshot;

pub use self::call::Call;
pub use self::connect::shared_worker;
pub use self::connection::{ClientConnection, ConnectionOwner, Keep, State};
pub use self::connector::{Attempt, ConnectSettings, Connector};
pub use self::ending::{Closing, Unsent};
pub use self::error::{CallError, ClientSendError, ConnectError};
use self::inbox::Inbox;
use self::local::{SendKind, SendStatus, with_local};
pub use self::object::ObjectCallError;
pub use self::settings::Reconnect;
use self::settings::Settings;
use crate::frame::Message;
use crate::handler::{Handler, Ignore};
use crate::kcp::Key;
use crate::uri::NetUri;

/// A client to be: what it connects to, how it frames, and its limits. Made by [`NetUri::client`].
///
/// | setting | default |
/// |---|---|
/// | codec | none: pieces of the stream; no requests |
/// | connect timeout | 5 s for each address |
/// | request timeout | 15 s |
/// | reconnect | for ever, after 50 ms to 5 s (exponential, with jitter); 250 ms at the most while something waits |
/// | high / low water of the send queue | 256 KiB / 64 KiB |
/// | calls in flight | 256 by sequence (SRMP), 65,536 in order |
#[derive(Debug)]
#[must_use = "a client does nothing before `connect`"]
pub struct ClientBuilder<C = fn() -> RawCodec, H = fn() -> Ignore> {
    codec: C,
    handler: H,
    settings: Settings,
}

impl NetUri {
    /// A client of the server at this URI, with settings to choose.
    pub fn client(&self) -> ClientBuilder {
        ClientBuilder { codec: || RawCodec, handler: || Ignore, settings: Settings::new(self.clone()) }
    }

    /// Connects with the default settings: no codec, so bytes go out as they are given and there are no requests.
    ///
    /// # Errors
    /// As [`ClientBuilder::connect`].
    pub async fn connect(&self) -> Result<NetClient, ConnectError> {
        self.client().connect().await
    }
}

impl<C, H> ClientBuilder<C, H> {
    /// Frames each connection by the codec that this makes for it.
    pub fn codec<C2, D>(self, codec: D) -> ClientBuilder<D, H>
    where
        D: Fn() -> C2 + Send + 'static,
        C2: Codec,
    {
        ClientBuilder { codec, handler: self.handler, settings: self.settings }
    }

    /// Gives frames that are no replies to the handler that this makes for each connection. Its session can be used
    /// to send on the worker, push style.
    pub fn handler<H2, G>(self, handler: G) -> ClientBuilder<C, G>
    where
        G: Fn() -> H2 + Send + 'static,
        H2: Handler,
    {
        ClientBuilder { codec: self.codec, handler, settings: self.settings }
    }

    /// Keeps frames that are no replies, this many at the most, for [`NetClient::recv`]. When they are not taken the
    /// server is held back, replies included. Without it, and without a handler, they are dropped.
    pub fn inbox(mut self, messages: usize) -> Self {
        self.settings.inbox = Some(messages);
        self
    }

    /// How long to try each address; default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.settings.connector.settings.timeout = timeout;
        self
    }

    /// How long a call waits for its reply, the wait for a connection included; default 15 s.
    pub fn request_timeout(mut self, timeout: Duration) -> Self {
        self.settings.request_timeout = timeout;
        self
    }

    /// What to do when the connection is lost; default [`Reconnect::default`].
    pub fn reconnect(mut self, reconnect: Reconnect) -> Self {
        self.settings.connector.settings.reconnect = Some(reconnect);
        self
    }

    /// Ends with its first connection.
    pub fn no_reconnect(mut self) -> Self {
        self.settings.connector.settings.reconnect = None;
        self
    }

    /// Calls in flight at the most (by sequence, the codec's own limit holds as well).
    pub fn max_in_flight(mut self, calls: usize) -> Self {
        self.settings.max_in_flight = Some(calls);
        self
    }

    /// Low and high water of the send queue in bytes; default 64 KiB and 256 KiB.
    pub fn water_marks(mut self, low: usize, high: usize) -> Self {
        self.settings.connector.settings.connection.low_water = low;
        self.settings.connector.settings.connection.high_water = high;
        self
    }

    /// All limits and times of the connection.
    pub fn connection_options(mut self, options: ConnectionOptions) -> Self {
        self.settings.connector.settings.connection = options;
        self
    }

    /// Options of the socket.
    pub fn stream_options(mut self, options: StreamOptions) -> Self {
        self.settings.connector.settings.stream = options;
        self
    }

    /// Options of a UDP or KCP socket; default: 8 MiB to receive, 2 MiB to send, with offload.
    pub fn udp_options(mut self, options: UdpOptions) -> Self {
        self.settings.connector.settings.datagram.udp = options;
        self
    }

    /// Settings of a KCP conversation; default: [`kcp::Config::turbo`] in stream mode with windows of 1,024 segments.
    pub fn kcp_config(mut self, config: kcp::Config) -> Self {
        self.settings.connector.settings.datagram.kcp = config;
        self
    }

    /// Encrypts KCP with a key that the server knows too. It comes before the `key-file` or `key-env` of the URI.
    /// Default: no encryption. With another key than the server's, calls end after the connect timeout with
    /// [`CallError::ConnectionLost`].
    pub fn kcp_key(mut self, key: Key) -> Self {
        self.settings.connector.settings.datagram.key = Some(key);
        self
    }

    /// Lives on this worker; default: the current one, outside of workers one of a runtime that all such clients
    /// share.
    pub fn worker(mut self, worker: WorkerHandle) -> Self {
        self.settings.worker = Some(worker);
        self
    }
}

impl<C, H, CF, HF> ClientBuilder<CF, HF>
where
    CF: Fn() -> C + Send + 'static,
    HF: Fn() -> H + Send + 'static,
    C: Codec,
    H: Handler,
{
    /// Connects. Can be awaited on any executor.
    ///
    /// # Errors
    /// The host has no address, none of its addresses answers, or no worker can be had.
    pub async fn connect(self) -> Result<NetClient, ConnectError> {
        connect::connect(self.settings, self.codec, self.handler).await
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

/// A client. Cheap to clone, usable from any thread and any executor; on its own worker its calls take the direct
/// path, without locks or messages between threads.
///
/// When the connection is lost, every call in flight fails at once with [`CallError::ConnectionLost`]; the client
/// reconnects, and what is sent meanwhile waits. It closes when the last clone is dropped.
#[derive(Clone)]
pub struct NetClient {
    shared: Arc<Shared>,
}

/// What the clones share.
struct Shared {
    /// Of `worker`: asked for each message.
    worker_id: WorkerId,
    worker: WorkerHandle,
    /// The client's place among its worker's clients.
    key: usize,
    uri: NetUri,
    inbox: Option<Arc<Inbox>>,
    /// Closed for good; what is sent from now on is refused.
    closed: Arc<AtomicBool>,
    /// Bytes on their way from other threads to the worker.
    remote_bytes: AtomicUsize,
    remote_high_water: usize,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let key = self.key;
        // A worker that has stopped has closed its clients.
        let _ = self.worker.run(move || local::remove(key));
    }
}

impl NetClient {
    /// Sends a message that expects no reply. Ready at once, unless the send queue is over its high-water mark: then it
    /// waits until the server has taken most of it. While the client reconnects it waits too.
    ///
    /// The payload is taken when the future is first polled, whole or not at all.
    #[inline]
    pub fn send<'a>(&'a self, payload: &'a [u8]) -> Sending<'a> {
        Sending::new(self, payload, SendKind::OneWay)
    }

    /// As [`send`](Self::send), sharing the payload instead of copying it (when it is more than a few KiB).
    pub async fn send_bytes(&self, payload: Bytes) -> Result<(), ClientSendError> {
        if !self.is_here() {
            let mut sent = outbox::send(self, payload, SendKind::OneWay);
            return std::future::poll_fn(|context| sent.poll(context)).await;
        }
        let mut waiter = Waiter::new();
        std::future::poll_fn(|context| {
            let status = with_local(self.shared.key, |client| match client {
                Some(client) => client.poll_send_bytes(&payload, &mut waiter, context),
                None => SendStatus::Failed(Box::new(ClientSendError::Closed)),
            });
            status.into_poll()
        })
        .await
    }

    /// The same as [`send`](Self::send), under the name that request/response protocols use.
    pub fn one_way<'a>(&'a self, payload: &'a [u8]) -> Sending<'a> {
        self.send(payload)
    }

    /// Sends bytes past the codec; else as [`send`](Self::send).
    pub fn send_raw<'a>(&'a self, bytes: &'a [u8]) -> Sending<'a> {
        Sending::new(self, bytes, SendKind::Raw)
    }

    /// Sends a request and waits for its reply, matched by the codec. Many may be in flight; when all numbers are in
    /// use the call waits for a free one. Dropping the future gives the call up: its late reply goes nowhere.
    ///
    /// The call begins when the future is first polled.
    #[inline]
    pub fn request<'a>(&'a self, payload: &'a [u8]) -> Call<'a> {
        Call::new(self, payload)
    }

    /// The next frame that is no reply, in the order of arrival; see [`ClientBuilder::inbox`]. `None` when the client
    /// is closed (or keeps no inbox).
    pub async fn recv(&self) -> Option<Message> {
        let inbox = self.shared.inbox.as_ref()?;
        let poll = |context: &mut Context<'_>| inbox.poll(&self.shared.worker, self.shared.key, context);
        std::future::poll_fn(|context| poll_with_quota(context, poll)).await
    }

    /// Waits until the kernel has taken all that was accepted by [`send`](Self::send) until now, from this thread and
    /// others; while the client reconnects, for the next connection. To be awaited before a process ends: a send says
    /// only that the message was accepted.
    ///
    /// # Errors
    /// The client is closed, or ([`ClientSendError::ConnectionLost`]) a connection was lost since the last flush with
    /// something that it had not sent.
    pub async fn flush(&self) -> Result<(), ClientSendError> {
        let mut flushed = outbox::send(self, Bytes::new(), SendKind::Flush);
        std::future::poll_fn(|context| flushed.poll(context)).await
    }

    /// Closes once what was sent before has left, or at the close timeout of the connection, whichever comes first. Calls
    /// in flight fail. It happens whether or not the result is awaited; awaited, it says what was not sent.
    pub fn close(&self) -> Closing {
        let key = self.shared.key;
        let (sender, ended) = oneshot::channel();
        // A worker that has stopped has closed its clients.
        let _ = self.shared.worker.run(move || {
            with_local(key, |client| client.map(|client| client.close(sender)));
        });
        Closing(ended)
    }

    /// What it connects to.
    pub fn uri(&self) -> &NetUri {
        &self.shared.uri
    }

    /// The worker that it lives on.
    pub fn worker(&self) -> &WorkerHandle {
        &self.shared.worker
    }

    #[inline]
    fn is_here(&self) -> bool {
        current_worker() == Some(self.shared.worker_id)
    }
}

impl fmt::Debug for NetClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetClient")
            .field("uri", &self.shared.uri.to_string())
            .field("worker", &self.shared.worker.id())
            .finish_non_exhaustive()
    }
}

/// The future of [`NetClient::send`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sending<'a> {
    client: &'a NetClient,
    payload: &'a [u8],
    kind: SendKind,
    /// From another thread.
    remote: Option<Box<outbox::Accepted>>,
    waiter: Waiter,
}

impl Future for Sending<'_> {
    type Output = Result<(), ClientSendError>;

    #[inline]
    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.client.is_here() && self.remote.is_none() {
            let Self { client, payload, kind, waiter, .. } = &mut *self;
            let status = with_local(client.shared.key, |client| match client {
                Some(client) => client.poll_send(payload, *kind, waiter, context),
                None => SendStatus::Failed(Box::new(ClientSendError::Closed)),
            });
            return status.into_poll();
        }
        self.poll_remote(context)
    }
}

impl<'a> Sending<'a> {
    #[inline]
    const fn new(client: &'a NetClient, payload: &'a [u8], kind: SendKind) -> Self {
        Self { client, payload, kind, remote: None, waiter: Waiter::new() }
    }

    #[cold]
    fn poll_remote(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ClientSendError>> {
        let Self { client, payload, kind, remote, .. } = self;
        remote
            .get_or_insert_with(|| Box::new(outbox::send(client, Bytes::copy_from_slice(payload), *kind)))
            .poll(context)
    }
}

impl fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("len", &self.payload.len()).finish_non_exhaustive()
    }
}
