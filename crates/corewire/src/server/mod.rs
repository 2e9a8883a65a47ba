//! Servers from a URI or a port.

mod addresses;
mod directory;
mod error;
mod handle;
mod listen;
mod protocol;
mod registry;
mod sessions;
mod settings;
mod socket_file;
mod stats;
mod task;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use corewire_driver::DriverKind;
use corewire_driver::net::StreamOptions;
use corewire_proto::codec::{Codec, RawCodec};
use corewire_proto::kcp;
#[cfg(feature = "tokio")]
use corewire_runtime::TokioContext;
use corewire_runtime::udp::UdpOptions;
use corewire_runtime::{Builder, ConnectionOptions, Handle, MemoryLimit, Protocol, RateMin, Runtime};

pub use self::error::ServerError;
pub use self::handle::{ServerHandle, ShutdownReport};
pub use self::protocol::ProtocolServer;
use self::registry::{Listed, Local, Permit};
pub use self::sessions::{Broadcast, Sessions};
pub use self::settings::Placement;
pub(crate) use self::settings::unix_path;
use self::settings::{Address, Settings, StatsLine};
pub use self::stats::ServerStats;
pub use self::task::SessionStream;
use crate::framed::Framed;
use crate::handler::{Handler, Ignore};
use crate::kcp::Key;

/// A server to be: what it listens on, how it frames, what it does, and its limits.
///
/// `C` makes the codec of each connection, `H` its handler.
///
/// | setting | default |
/// |---|---|
/// | codec | none: each piece that arrives is a frame |
/// | workers | one for each processor |
/// | sessions at most | 1,000,000; a connection above that is closed at once and counted |
/// | connections of a peer address at most | no limit but that of sessions |
/// | idle timeout | 20 minutes; of UDP sessions 2 minutes |
/// | UDP and KCP sessions at most | 65,536; of a flood of new UDP peers the newest replace one another |
/// | high / low water of a session's send queue | 256 KiB / 64 KiB |
/// | limit of a session's send queue | 64 MiB |
/// | close timeout | 10 s |
/// | backlog | 4,096 |
#[derive(Debug)]
#[must_use = "a server does nothing before `start` or `run`"]
pub struct NetServer<C = fn() -> RawCodec, H = fn() -> Ignore> {
    codec: C,
    handler: H,
    settings: Settings,
}

impl NetServer {
    /// A server that listens on a URI such as `tcp://127.0.0.1:7777`, `tcp://*:7777` (all addresses, IPv4 and IPv6),
    /// `tcp://[::1]:7777`, `udp://*:7777`, `kcp://*:7777`, `unix:///run/echo.sock` or
    /// `tls://*:7777?cert=server.pem&key=server.key` (see [`tls`](crate::tls)). Port 0: the system chooses, and all addresses get the same.
    /// The file of a Unix-domain socket goes when the server does; one that a dead server left behind is replaced.
    ///
    /// What is wrong with the URI is said by [`start`](NetServer::start).
    pub fn bind(uri: impl Into<String>) -> Self {
        Self::new(Address::Uri(uri.into()))
    }

    /// A server that listens on a port of all addresses, IPv4 and IPv6, TCP and UDP. Port 0: the system chooses.
    pub fn on_port(port: u16) -> Self {
        Self::new(Address::Port(port))
    }

    fn new(address: Address) -> Self {
        Self { codec: || RawCodec, handler: || Ignore, settings: Settings::new(address) }
    }
}

impl<C, H> NetServer<C, H> {
    /// Frames connections by the codec that this makes for each.
    pub fn codec<C2, D>(self, codec: D) -> NetServer<D, H>
    where
        D: Fn() -> C2 + Send + Sync + 'static,
        C2: Codec,
    {
        NetServer { codec, handler: self.handler, settings: self.settings }
    }

    /// Serves each session by the handler that this makes for it: push style, the fastest.
    pub fn handler<H2, G>(self, handler: G) -> NetServer<C, G>
    where
        G: Fn() -> H2 + Send + Sync + 'static,
        H2: Handler,
    {
        NetServer { codec: self.codec, handler, settings: self.settings }
    }

    /// Serves each session by a task of its own, which ends the session when it ends.
    ///
    /// ```
    /// use corewire::{NetServer, StandardCodec};
    ///
    /// let server = NetServer::bind("tcp://127.0.0.1:0")
    ///     .codec(StandardCodec::default)
    ///     .serve(|mut session| async move {
    ///         while let Some(message) = session.next().await {
    ///             if session.reply(&message, b"OK").await.is_err() {
    ///                 break;
    ///             }
    ///         }
    ///     })
    ///     .workers(1)
    ///     .start()?;
    /// # drop(server);
    /// # Ok::<(), corewire::ServerError>(())
    /// ```
    pub fn serve<F, Fut>(
        self,
        serve: F,
    ) -> NetServer<C, impl Fn() -> task::TaskHandler<F> + Send + Sync + 'static>
    where
        F: Fn(SessionStream) -> Fut + Clone + Send + Sync + 'static,
        Fut: Future<Output = ()> + 'static,
    {
        self.handler(move || task::TaskHandler::new(serve.clone()))
    }

    /// How many workers; see [`Builder::workers`].
    pub fn workers(mut self, workers: usize) -> Self {
        self.settings.runtime = self.settings.runtime.workers(workers);
        self
    }

    /// Which processors; see [`Builder::cpus`].
    pub fn cpus(mut self, cpus: impl Into<Vec<usize>>) -> Self {
        self.settings.runtime = self.settings.runtime.cpus(cpus);
        self
    }

    /// The most memory held for the peers of this server together, in bytes, at least 1 MiB for each worker; default a
    /// quarter of what the process may use. Over seven eighths of it the sessions that hold most are paused and new
    /// connections refused ([`ServerStats::refused`]), over it those that hold most are closed
    /// ([`CloseReason::MemoryLimit`](crate::CloseReason::MemoryLimit)). It is that of the runtime that
    /// [`start`](Self::start) makes. A server that is started by [`start_on`](Self::start_on) has it beside the limit of
    /// that runtime ([`Builder::memory_limit`]), which it shares with all that runs there; default there: none of its own.
    pub fn memory_limit(mut self, bytes: usize) -> Self {
        self.settings.memory_limit = Some(bytes);
        self
    }

    /// Which driver; see [`Builder::driver`].
    pub fn driver(mut self, kind: DriverKind) -> Self {
        self.settings.runtime = self.settings.runtime.driver(kind);
        self
    }

    /// Has the workers enter tokio's context, so that what is made for tokio (sqlx, reqwest, redis,
    /// `tokio::time::sleep`) works in handlers and tasks; see [`Builder::tokio`]. It is a setting of the runtime that
    /// [`start`](Self::start) makes.
    ///
    /// ```
    /// use std::time::Duration;
    /// use corewire::{NetServer, StandardCodec, TokioContext};
    ///
    /// let server = NetServer::bind("tcp://127.0.0.1:0")
    ///     .codec(StandardCodec::default)
    ///     .serve(|mut session| async move {
    ///         while let Some(message) = session.next().await {
    ///             tokio::time::sleep(Duration::from_millis(1)).await;
    ///             let _ = session.reply(&message, b"slept").await;
    ///         }
    ///     })
    ///     .tokio(TokioContext::own()) // or the `Handle` of a runtime that you have
    ///     .workers(1)
    ///     .start()?;
    /// # drop(server);
    /// # Ok::<(), corewire::ServerError>(())
    /// ```
    #[cfg(feature = "tokio")]
    pub fn tokio(mut self, context: impl Into<TokioContext>) -> Self {
        self.settings.runtime = self.settings.runtime.tokio(context);
        self
    }

    /// All settings of the runtime that [`start`](Self::start) makes.
    pub fn runtime(mut self, builder: Builder) -> Self {
        self.settings.runtime = builder;
        self
    }

    /// Where connections go; default [`Placement::ReusePort`] (on Unix-domain sockets, which lack it,
    /// [`Placement::RoundRobin`]).
    pub fn placement(mut self, placement: Placement) -> Self {
        self.settings.placement = placement;
        self
    }

    /// Keeps a table of sessions, by which [`Sessions::send_to`] finds one and
    /// broadcasts find all; default true.
    /// Without it those reach nobody.
    pub fn session_table(mut self, keep: bool) -> Self {
        self.settings.session_table = keep;
        self
    }

    /// Closes a session after this time without a byte in either direction; `None`: never. Default 20 minutes.
    pub fn idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.connection.idle_timeout = timeout;
        self
    }

    /// Closes a session from which no whole frame has come after this time, and that was sent nothing; `None`: never.
    /// Default 1 minute.
    pub fn first_frame_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.connection.first_frame_timeout = timeout;
        self
    }

    /// Closes a session if a frame that has begun is not whole after this time; `None`: never. Default 10 minutes.
    pub fn frame_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.connection.frame_timeout = timeout;
        self
    }

    /// Closes a session whose peer sends less than this while a frame has begun, or takes less while something is queued
    /// for it; `None`: never. Default 100 bytes a second over 1 minute.
    pub fn rate_min(mut self, rate: Option<RateMin>) -> Self {
        self.settings.connection.rate_min = rate;
        self
    }

    /// The sessions that it will have, for handlers that send to others than their own.
    pub fn sessions(&self) -> Sessions {
        self.settings.sessions.clone()
    }

    /// UDP and KCP sessions at the most; default 65,536. When there are so many, a new peer takes the place of another: of one
    /// heard in fewer than four different milliseconds, whose address may be forged, before those that talk, and of these the
    /// one not heard for longest. Those that talk have seven eighths of the places at the most. So a flood of forged addresses
    /// neither takes memory without end, nor drives out peers that talk, nor keeps out new ones. The sockets of the workers
    /// share the number.
    pub fn max_datagram_sessions(mut self, sessions: usize) -> Self {
        self.settings.datagram.sessions_max = sessions;
        self
    }

    /// Closes a UDP session after this time without a datagram in either direction; `None`: never. Default 2 minutes.
    pub fn datagram_idle_timeout(mut self, timeout: Option<Duration>) -> Self {
        self.settings.datagram.idle_timeout = timeout;
        self
    }

    /// Options of UDP and KCP sockets; default: 8 MiB to receive, 2 MiB to send, with offload.
    pub fn udp_options(mut self, options: UdpOptions) -> Self {
        self.settings.datagram.udp = options;
        self
    }

    /// Settings of KCP conversations; default: [`kcp::Config::turbo`] in stream mode with windows of 1,024 segments.
    pub fn kcp_config(mut self, config: kcp::Config) -> Self {
        self.settings.datagram.kcp = config;
        self
    }

    /// Encrypts KCP with a key that the clients know too, and drops what was not encrypted with it; the drops are counted
    /// ([`ServerStats`], `workers.datagrams_dropped`). It comes before the `key-file` or `key-env` of the URI. Default:
    /// no encryption.
    pub fn kcp_key(mut self, key: Key) -> Self {
        self.settings.datagram.key = Some(key);
        self
    }

    /// Takes clients with this key too, while keys are changed: give all servers the new one here, then the clients the new
    /// one, then the servers that one alone. It counts only beside [`kcp_key`](Self::kcp_key).
    pub fn kcp_second_key(mut self, key: Key) -> Self {
        self.settings.datagram.second_key = Some(key);
        self
    }

    /// Connections at the most that have a descriptor each (TCP, Unix domain); one above that is closed at once and counted.
    /// Default 1,000,000. Sessions on UDP and KCP have [`max_datagram_sessions`](Self::max_datagram_sessions).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Connections at the most from one IPv4 address, or from one IPv6 prefix of 64 bits; one above that is closed at once
    /// and counted ([`ServerStats::refused_by_address`]). `None`: no limit. Default `None`, as many clients may share an
    /// address, behind a proxy or a translator. Counts TCP connections; UDP and KCP sessions, whose addresses may be
    /// forged, have [`max_datagram_sessions`](Self::max_datagram_sessions), and Unix-domain sockets have no address.
    pub fn max_connections_per_address(mut self, connections: Option<usize>) -> Self {
        self.settings.max_connections_per_address = connections;
        self
    }

    /// High and low water of a session's send queue in bytes; default 256 KiB and 64 KiB.
    pub fn water_marks(mut self, low: usize, high: usize) -> Self {
        self.settings.connection.low_water = low;
        self.settings.connection.high_water = high;
        self
    }

    /// The limit of a session's send queue in bytes; default 64 MiB.
    pub fn send_queue_limit(mut self, bytes: usize) -> Self {
        self.settings.connection.queue_limit = bytes;
        self
    }

    /// How large the block is that sockets are received into, in bytes; default 640 KiB. Each worker has one.
    pub fn receive_buffer_size(mut self, bytes: usize) -> Self {
        self.settings.receive_block_size = Some(bytes);
        self
    }

    /// All limits and times of a session's connection.
    pub fn connection_options(mut self, options: ConnectionOptions) -> Self {
        self.settings.connection = options;
        self
    }

    /// The limits and times of a session's connection, as they are set so far.
    pub const fn connection_settings(&self) -> &ConnectionOptions {
        &self.settings.connection
    }

    /// Options of accepted sockets.
    pub fn stream_options(mut self, options: StreamOptions) -> Self {
        self.settings.stream = options;
        self
    }

    /// Connections that wait to be accepted, at the most; default 4,096.
    pub fn backlog(mut self, connections: i32) -> Self {
        self.settings.backlog = connections;
        self
    }

    /// How it speaks TLS on `tls://`, instead of by the files that the URI names. Kept by the caller too, the configuration
    /// can be [replaced](crate::tls::ServerTls::replace) while the server runs.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: crate::tls::ServerTls) -> Self {
        self.settings.tls = Some(tls);
        self
    }

    /// Gives a line of statistics to `print` every `period`, such as
    /// `sessions 12 (most 40), received 1.2 M/s 38.4 MB/s, …`.
    pub fn stats_line(mut self, period: Duration, print: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.settings.stats_line = Some(StatsLine { period, print: Arc::new(print) });
        self
    }

    /// How long [`run`](Self::run) lets sessions finish after a signal; default 10 s.
    pub fn shutdown_deadline(mut self, deadline: Duration) -> Self {
        self.settings.shutdown_deadline = deadline;
        self
    }
}

impl<C, H, CF, HF> NetServer<CF, HF>
where
    CF: Fn() -> C + Send + Sync + 'static,
    HF: Fn() -> H + Send + Sync + 'static,
    C: Codec,
    H: Handler,
{
    /// Starts workers of its own and listens. Dropping the handle stops the server at once.
    ///
    /// # Errors
    /// The URI or a setting is wrong, the address cannot be had, or the workers cannot be started.
    pub fn start(self) -> Result<ServerHandle, ServerError> {
        let (codec, handler) = (self.codec, self.handler);
        self.settings.start(framed(codec, handler))
    }

    /// Listens on the workers of a runtime that exists.
    ///
    /// # Errors
    /// The URI or a setting is wrong, the address cannot be had, or the workers have stopped.
    pub fn start_on(self, runtime: &Handle) -> Result<ServerHandle, ServerError> {
        let (codec, handler) = (self.codec, self.handler);
        self.settings.start_on(runtime, framed(codec, handler))
    }

    /// Serves until the process gets SIGINT (Ctrl-C) or SIGTERM; then lets sessions finish and says what it cut. On SIGHUP a
    /// server on `tls://` reads its certificates anew.
    ///
    /// # Errors
    /// As [`start`](Self::start), or signals cannot be received.
    pub fn run(self) -> Result<ShutdownReport, ServerError> {
        let deadline = self.settings.shutdown_deadline;
        run(deadline, || self.start())
    }
}

/// Makes each connection one of frames.
fn framed<C: Codec, H: Handler>(
    codec: impl Fn() -> C + Send + Sync + 'static,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> impl Fn(Rc<Local>, Permit) -> Framed<C, Listed<H>> + Send + Sync + 'static {
    move |local, permit| {
        let (id, listed) = (permit.id, Listed::new(handler(), local, permit));
        Framed::new(id, codec(), listed)
    }
}

impl Settings {
    fn start<P: Protocol>(
        mut self,
        make: impl Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
    ) -> Result<ServerHandle, ServerError> {
        self.check()?;
        let address = self.parse_address()?;
        let mut builder = self.runtime.clone();
        if let Some(size) = self.receive_block_size {
            builder = builder.receive_block_size(size);
        }
        if let Some(bytes) = self.memory_limit {
            builder = builder.memory_limit(bytes);
        }
        let runtime: Runtime = builder.build()?;
        let handle = runtime.handle().clone();
        self.own_runtime = Some(runtime);
        listen::start(address, self, &handle, make)
    }

    fn start_on<P: Protocol>(
        mut self,
        runtime: &Handle,
        make: impl Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
    ) -> Result<ServerHandle, ServerError> {
        self.check()?;
        if let Some(bytes) = self.memory_limit {
            self.connection.memory_limit = Some(MemoryLimit::new(bytes, runtime.workers())?);
        }
        let address = self.parse_address()?;
        listen::start(address, self, runtime, make)
    }
}

/// Serves until a signal comes.
fn run(
    deadline: Duration,
    start: impl FnOnce() -> Result<ServerHandle, ServerError>,
) -> Result<ShutdownReport, ServerError> {
    let mut signals =
        signal_hook::iterator::Signals::new([signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM])
            .map_err(ServerError::Signals)?;
    let server = start()?;
    if server.has_tls_files() {
        signals.add_signal(signal_hook::consts::SIGHUP).map_err(ServerError::Signals)?;
    }
    let mut ends = signals.forever().filter(|signal| {
        let reloads = *signal == signal_hook::consts::SIGHUP;
        if reloads {
            server.log_reload(server.reload_tls());
        }
        !reloads
    });
    let signal = ends.next();
    drop(ends);
    tracing::info!(?signal, "shutting down");
    Ok(server.shutdown(deadline))
}
