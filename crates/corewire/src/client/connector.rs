//! One attempt to connect: over all addresses of a server, each in its time.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::net::{StreamOptions, connect_tcp, connect_unix};
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol, SettingError, lookup, timeout};
use futures_channel::oneshot;

use super::error::ConnectError;
use super::settings::Reconnect;
use crate::datagram::{self, DatagramKind, DatagramSettings, reachable};
use crate::server::unix_path;
use crate::tls::{ClientTls, ServerName, name_of, system_client};
use crate::uri::{Host, NetUri, Scheme};

/// How a client connects, and connects again.
#[derive(Debug, Clone)]
pub(super) struct ConnectSettings {
    /// For each address.
    pub(super) timeout: Duration,
    /// `None`: the client ends with its first connection.
    pub(super) reconnect: Option<Reconnect>,
    pub(super) connection: ConnectionOptions,
    pub(super) stream: StreamOptions,
    pub(super) datagram: DatagramSettings,
    pub(super) tls: Option<ClientTls>,
}

impl Default for ConnectSettings {
    fn default() -> Self {
        let mut connection = ConnectionOptions::default();
        // Its user decides what it sends and waits for: holding back replies could stop both sides for good.
        connection.pause_receive_on_backlog = false;
        Self {
            timeout: Duration::from_secs(5),
            reconnect: Some(Reconnect::default()),
            connection,
            stream: StreamOptions::default(),
            datagram: DatagramSettings::default(),
            tls: None,
        }
    }
}

impl ConnectSettings {
    /// Refuses settings with which nothing could ever be connected to.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.connection.check()?;
        SettingError::if_zero("the connect timeout", self.timeout)?;
        self.reconnect.as_ref().map_or(Ok(()), Reconnect::check)
    }
}

/// A server to connect to, and how: for those who speak a [`Protocol`] of their own. Made by
/// [`ClientBuilder::connector`](super::ClientBuilder::connector).
#[derive(Debug, Clone)]
pub struct Connector {
    pub(super) uri: NetUri,
    pub(super) settings: ConnectSettings,
}

impl Connector {
    pub(super) const fn new(uri: NetUri, settings: ConnectSettings) -> Self {
        Self { uri, settings }
    }

    /// Takes the settings of KCP that the URI names, and reads its keys, or its certificates, unless there are some already.
    /// Blocks.
    ///
    /// # Errors
    /// A key or a certificate cannot be read.
    pub fn load_secrets(mut self) -> Result<Self, ConnectError> {
        self.uri.kcp_parameters().apply(&mut self.settings.datagram)?;
        if let (Scheme::Tls, None) = (self.uri.scheme(), &self.settings.tls) {
            self.settings.tls = Some(match self.uri.tls_files() {
                Some(files) => files.client()?,
                None => system_client()?,
            });
        }
        Ok(self)
    }

    /// The server.
    pub const fn uri(&self) -> &NetUri {
        &self.uri
    }

    /// Tries each address until one answers. `make` gives the protocol of each, which says by its [`Attempt`] when the
    /// connection is established or has failed. An attempt that is given up, because its time is over or this future is
    /// dropped, is ended at once.
    ///
    /// # Errors
    /// The name has no address, or none of its addresses answers: why the last one did not.
    ///
    /// # Panics
    /// Outside a worker.
    pub async fn connect<P: Protocol>(&self, mut make: impl FnMut(Attempt) -> P) -> Result<(), ConnectError> {
        let mut last = ConnectError::Stopped;
        for target in self.targets().await? {
            match self.connect_to(&target, &mut make).await {
                Ok(()) => return Ok(()),
                Err(error) => last = error,
            }
        }
        // A URI resolves to at least one address.
        Err(last)
    }

    async fn targets(&self) -> Result<Vec<Target>, ConnectError> {
        let kind = match self.uri.scheme() {
            Scheme::Unix => {
                let path = unix_path(self.uri.host()).ok_or(ConnectError::Scheme(Scheme::Unix))?;
                return Ok(vec![Target::Unix(path)]);
            }
            Scheme::Tcp | Scheme::Tls => None,
            Scheme::Udp => Some(DatagramKind::Udp),
            Scheme::Kcp => Some(DatagramKind::Kcp),
            other => return Err(ConnectError::Scheme(other)),
        };
        let tls = self.target_tls()?;
        let uri = self.uri.clone();
        let resolved = match uri.host() {
            Host::Name(_) => lookup(move || uri.resolve()).await.map_err(|_| ConnectError::Stopped)??,
            _ => uri.resolve()?,
        };
        let target = |address| match kind {
            Some(kind) => Target::Datagram(kind, reachable(address)),
            None => match &tls {
                Some((tls, name)) => Target::Tls(address, tls.clone(), name.clone()),
                None => Target::Tcp(address),
            },
        };
        Ok(resolved.into_iter().map(target).collect())
    }

    /// How TLS is spoken with the server, and what its certificate must be for.
    fn target_tls(&self) -> Result<Option<(ClientTls, ServerName)>, ConnectError> {
        if self.uri.scheme() != Scheme::Tls {
            return Ok(None);
        }
        let tls = match &self.settings.tls {
            Some(tls) => tls.clone(),
            None => system_client()?,
        };
        let host = match self.uri.host() {
            Host::Ip(ip) => ip.to_string(),
            Host::Any => "localhost".to_owned(),
            other => other.to_string(),
        };
        let name = name_of(&tls, &host)?;
        Ok(Some((tls, name)))
    }

    async fn connect_to<P: Protocol>(
        &self,
        target: &Target,
        make: &mut impl FnMut(Attempt) -> P,
    ) -> Result<(), ConnectError> {
        let refused = |source| ConnectError::Refused { address: target.to_string(), source };
        let (sender, outcome) = oneshot::channel();
        let connection = self.open(target, make(Attempt(sender))).map_err(refused)?;
        let guard = AbortOnDrop(Some(connection));
        match timeout(self.settings.timeout, outcome).await {
            Ok(Ok(Ok(()))) => {
                guard.keep();
                Ok(())
            }
            Ok(Ok(Err(failed))) => Err(refused(failed)),
            Ok(Err(_)) => Err(refused(io::Error::other("the connection was lost at once"))),
            Err(_) => {
                Err(ConnectError::TimedOut { address: target.to_string(), timeout: self.settings.timeout })
            }
        }
    }

    fn open<P: Protocol>(&self, target: &Target, protocol: P) -> io::Result<Connection> {
        let ConnectSettings { connection, stream, datagram, .. } = &self.settings;
        let options = Rc::new(connection.clone());
        match target {
            Target::Tcp(address) => {
                Connection::open_connecting(connect_tcp(*address, stream)?, options, protocol)
            }
            Target::Tls(address, tls, name) => {
                let socket = connect_tcp(*address, stream)?;
                Connection::open_connecting_tls(socket, tls, name.clone(), options, protocol)
            }
            Target::Unix(path) => Connection::open_connecting(connect_unix(path, stream)?, options, protocol),
            Target::Datagram(kind, address) => {
                let settings = DatagramSettings { answer_timeout: self.settings.timeout, ..datagram.clone() };
                datagram::connect(*kind, *address, &settings, options, Box::new(protocol))
            }
        }
    }
}

/// By this the protocol of an attempt says what became of it. Dropped without that, the attempt has failed.
#[derive(Debug)]
pub struct Attempt(oneshot::Sender<io::Result<()>>);

impl Attempt {
    /// The connection is established.
    pub fn succeed(self) {
        // Nobody waits for it any more: the attempt's guard ends the connection.
        let _ = self.0.send(Ok(()));
    }

    /// The connection was closed before it was of use.
    pub fn fail(self, reason: &CloseReason) {
        let error = match reason {
            CloseReason::Io(error) => error
                .raw_os_error()
                .map_or_else(|| io::Error::other(error.to_string()), io::Error::from_raw_os_error),
            other => io::Error::other(other.to_string()),
        };
        // As above.
        let _ = self.0.send(Err(error));
    }
}

enum Target {
    Tcp(SocketAddr),
    Tls(SocketAddr, ClientTls, ServerName),
    Datagram(DatagramKind, SocketAddr),
    Unix(PathBuf),
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) | Self::Tls(address, ..) | Self::Datagram(_, address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

/// Ends an attempt that is given up.
struct AbortOnDrop(Option<Connection>);

impl AbortOnDrop {
    fn keep(mut self) {
        self.0 = None;
    }
}

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            connection.abort(CloseReason::Local);
        }
    }
}
