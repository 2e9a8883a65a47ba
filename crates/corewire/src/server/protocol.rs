//! Servers of protocols that cut and answer the bytes by themselves.

use std::fmt;
use std::rc::Rc;

use bytes::Bytes;
use corewire_proto::codec::RawCodec;
use corewire_runtime::{CloseReason, Connection, Handle, Protocol};

use super::error::ServerError;
use super::handle::{ServerHandle, ShutdownReport};
use super::registry::{Local, Permit};
use super::settings::Settings;
use super::{NetServer, run};
use crate::session::{Session, SessionInner};

/// A server whose connections speak a [`Protocol`] instead of frames. Made by [`NetServer::protocol`].
#[must_use = "a server does nothing before `start` or `run`"]
pub struct ProtocolServer<F> {
    factory: F,
    settings: Settings,
}

impl<C, H> NetServer<C, H> {
    /// Serves each connection by the [`Protocol`] that this makes for it, on the worker that got it. Codec and handler
    /// are not used. Connections are counted, limited, listed and shut down as those of frames are;
    /// what [`ServerHandle`] sends to them goes out as it is.
    ///
    /// A protocol needs a stream of bytes: it listens on TCP, KCP and Unix-domain sockets. On `udp://` the start fails
    /// with [`ServerError::Scheme`], and [`NetServer::on_port`] means the TCP port alone.
    pub fn protocol<P, F>(self, factory: F) -> ProtocolServer<F>
    where
        F: Fn() -> P + Send + Sync + 'static,
        P: Protocol,
    {
        let mut settings = self.settings;
        settings.streams_only = true;
        ProtocolServer { factory, settings }
    }
}

impl<F, P> ProtocolServer<F>
where
    F: Fn() -> P + Send + Sync + 'static,
    P: Protocol,
{
    /// As [`NetServer::start`].
    ///
    /// # Errors
    /// The URI is wrong, the address cannot be had, or the workers cannot be started.
    pub fn start(self) -> Result<ServerHandle, ServerError> {
        self.settings.start(listed(self.factory))
    }

    /// As [`NetServer::start_on`].
    ///
    /// # Errors
    /// The URI is wrong, the address cannot be had, or the workers have stopped.
    pub fn start_on(self, runtime: &Handle) -> Result<ServerHandle, ServerError> {
        self.settings.start_on(runtime, listed(self.factory))
    }

    /// As [`NetServer::run`].
    ///
    /// # Errors
    /// As [`start`](Self::start), or signals cannot be received.
    pub fn run(self) -> Result<ShutdownReport, ServerError> {
        self.run_with(Ok)
    }

    /// As [`run`](Self::run), with something to do once it listens.
    ///
    /// # Errors
    /// As [`run`](Self::run), or `begun` fails.
    pub fn run_with(
        self,
        begun: impl FnOnce(ServerHandle) -> Result<ServerHandle, ServerError>,
    ) -> Result<ShutdownReport, ServerError> {
        let deadline = self.settings.shutdown_deadline;
        run(deadline, || self.start().and_then(begun))
    }
}

impl<F> fmt::Debug for ProtocolServer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProtocolServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

fn listed<P: Protocol>(
    factory: impl Fn() -> P + Send + Sync + 'static,
) -> impl Fn(Rc<Local>, Permit) -> ListedProtocol<P> + Send + Sync + 'static {
    move |local, permit| ListedProtocol { protocol: factory(), local, entry: None, permit }
}

/// A protocol whose connection is listed and counted.
struct ListedProtocol<P> {
    protocol: P,
    local: Rc<Local>,
    entry: Option<(usize, Session)>,
    /// Given back here and not in `on_closed`, as that of a session is.
    permit: Permit,
}

impl<P: Protocol> Protocol for ListedProtocol<P> {
    fn on_open(&mut self, connection: &Connection) {
        let inner = SessionInner::new(self.permit.id, RawCodec, connection.clone());
        let session = Session::new(Rc::new(inner));
        self.entry = Some((self.local.list(&session), session));
        self.protocol.on_open(connection);
    }

    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        self.protocol.on_received(connection, data);
    }

    fn on_read_closed(&mut self, connection: &Connection) {
        self.protocol.on_read_closed(connection);
    }

    fn on_drained(&mut self, connection: &Connection) {
        self.protocol.on_drained(connection);
    }

    fn on_timer(&mut self, connection: &Connection) {
        self.protocol.on_timer(connection);
    }

    fn on_shutdown(&mut self, connection: &Connection) {
        self.protocol.on_shutdown(connection);
    }

    fn on_closed(&mut self, connection: &Connection, reason: &CloseReason) {
        tracing::debug!(session = self.permit.id, %reason, "session over");
        self.local.shared.note_end(reason);
        if let Some((slot, session)) = self.entry.take() {
            self.local.unlist(slot, &session);
        }
        self.protocol.on_closed(connection, reason);
    }
}
