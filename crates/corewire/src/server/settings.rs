//! What a server is told before it starts.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use corewire_driver::net::StreamOptions;
use corewire_runtime::{Builder, ConnectionOptions, RateMin, Runtime, SettingError};

use super::error::ServerError;
use super::sessions::Sessions;
use crate::datagram::{DatagramKind, DatagramSettings};
use crate::tls::{ServerTls, TlsConfigError, TlsFiles};
use crate::uri::{Host, NetUri, Scheme, UriError};

/// Which worker serves an accepted connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Placement {
    /// Each worker listens on a socket of its own and the kernel spreads connections (`SO_REUSEPORT`): no hand-over,
    /// but with few connections some workers may get none.
    #[default]
    ReusePort,
    /// One worker accepts and hands connections to all in turn.
    RoundRobin,
    /// One worker accepts and hands each connection to the worker that has the fewest.
    LeastConnections,
}

#[derive(Debug)]
pub(super) enum Address {
    Uri(String),
    Port(u16),
}

/// What there is to listen on.
#[derive(Debug)]
pub(super) enum Endpoints {
    /// At least one. The flag: all addresses were asked for, so a family that the machine lacks is left out.
    Tcp(Vec<SocketAddr>, bool),
    /// As `Tcp`.
    Tls(ServedTls, Vec<SocketAddr>, bool),
    /// As `Tcp`.
    Datagram(DatagramKind, Vec<SocketAddr>, bool),
    /// TCP and UDP under one port.
    Both(Vec<SocketAddr>, bool),
    Unix(PathBuf),
}

impl Endpoints {
    /// How TLS is served, if it is.
    pub(super) const fn tls(&self) -> Option<&ServedTls> {
        match self {
            Self::Tls(tls, ..) => Some(tls),
            _ => None,
        }
    }

    /// What the datagram sockets speak, if there are some.
    pub(super) const fn datagram_kind(&self) -> DatagramKind {
        match self {
            Self::Datagram(kind, ..) => *kind,
            _ => DatagramKind::Udp,
        }
    }
}

/// How TLS is served, and the files that it came from.
#[derive(Debug, Clone)]
pub(super) struct ServedTls {
    pub(super) tls: ServerTls,
    pub(super) files: Option<TlsFiles>,
}

impl ServedTls {
    fn new(given: Option<ServerTls>, files: Option<TlsFiles>) -> Result<Self, TlsConfigError> {
        match given {
            Some(tls) => Ok(Self { tls, files: None }),
            None => {
                let files = files.unwrap_or_default();
                Ok(Self { tls: files.server()?, files: Some(files) })
            }
        }
    }

    pub(super) fn reload(&self) -> Result<(), TlsConfigError> {
        self.files.as_ref().ok_or(TlsConfigError::NotFromFiles)?.reload(&self.tls)
    }
}

#[derive(Clone)]
pub(super) struct StatsLine {
    pub(super) period: Duration,
    pub(super) print: Arc<dyn Fn(&str) + Send + Sync>,
}

impl fmt::Debug for StatsLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsLine").field("period", &self.period).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct Settings {
    pub(super) address: Address,
    pub(super) runtime: Builder,
    pub(super) own_runtime: Option<Runtime>,
    pub(super) receive_block_size: Option<usize>,
    pub(super) memory_limit: Option<usize>,
    pub(super) placement: Placement,
    pub(super) session_table: bool,
    pub(super) sessions: Sessions,
    pub(super) max_connections: usize,
    pub(super) max_connections_per_address: Option<usize>,
    pub(super) connection: ConnectionOptions,
    pub(super) stream: StreamOptions,
    pub(super) datagram: DatagramSettings,
    pub(super) tls: Option<ServerTls>,
    /// What is served needs a stream of bytes: no UDP.
    pub(super) streams_only: bool,
    pub(super) backlog: i32,
    pub(super) stats_line: Option<StatsLine>,
    pub(super) shutdown_deadline: Duration,
}

impl Settings {
    pub(super) fn new(address: Address) -> Self {
        let mut connection = ConnectionOptions::default();
        connection.idle_timeout = Some(Duration::from_secs(20 * 60));
        connection.first_frame_timeout = Some(Duration::from_secs(60));
        connection.frame_timeout = Some(Duration::from_secs(10 * 60));
        connection.rate_min = Some(RateMin { bytes_per_second: 100, window: Duration::from_secs(60) });
        Self {
            address,
            runtime: Builder::default(),
            own_runtime: None,
            receive_block_size: None,
            memory_limit: None,
            placement: Placement::default(),
            session_table: true,
            sessions: Sessions::default(),
            max_connections: 1_000_000,
            max_connections_per_address: None,
            connection,
            stream: StreamOptions::default(),
            datagram: DatagramSettings::default(),
            tls: None,
            streams_only: false,
            backlog: 4096,
            stats_line: None,
            shutdown_deadline: Duration::from_secs(10),
        }
    }

    /// Refuses settings with which no connection could ever be served.
    pub(super) fn check(&self) -> Result<(), SettingError> {
        self.connection.check()?;
        SettingError::if_zero("the most connections", self.max_connections)?;
        if let Some(connections) = self.max_connections_per_address {
            SettingError::if_zero("the most connections of an address", connections)?;
        }
        SettingError::if_zero("the most UDP and KCP sessions", self.datagram.sessions_max)?;
        if let Some(timeout) = self.datagram.idle_timeout {
            SettingError::if_zero("the idle timeout of UDP sessions", timeout)?;
        }
        if self.backlog < 1 {
            return Err(SettingError::new("the backlog", self.backlog, "1 or more"));
        }
        let line = self.stats_line.as_ref();
        line.map_or(Ok(()), |line| SettingError::if_zero("the period of the statistics line", line.period))
    }

    /// Resolves the address and reads the key and the certificates that it names; blocks while a name is looked up.
    pub(super) fn parse_address(&mut self) -> Result<Endpoints, ServerError> {
        let uri = match &self.address {
            Address::Port(port) => {
                let any = vec![(Ipv4Addr::UNSPECIFIED, *port).into(), (Ipv6Addr::UNSPECIFIED, *port).into()];
                return Ok(match self.streams_only {
                    true => Endpoints::Tcp(any, true),
                    false => Endpoints::Both(any, true),
                });
            }
            Address::Uri(text) => NetUri::parse(text)?,
        };
        uri.kcp_parameters().apply(&mut self.datagram)?;
        match (uri.scheme(), uri.host()) {
            (Scheme::Tls, _) => {
                let tls = ServedTls::new(self.tls.clone(), uri.tls_files().cloned())?;
                Ok(Endpoints::Tls(tls, uri.resolve()?, uri.is_any()))
            }
            (Scheme::Tcp, _) => Ok(Endpoints::Tcp(uri.resolve()?, uri.is_any())),
            (Scheme::Udp, _) if self.streams_only => Err(ServerError::Scheme(Scheme::Udp)),
            (Scheme::Udp, _) => Ok(Endpoints::Datagram(DatagramKind::Udp, uri.resolve()?, uri.is_any())),
            (Scheme::Kcp, _) => Ok(Endpoints::Datagram(DatagramKind::Kcp, uri.resolve()?, uri.is_any())),
            (Scheme::Unix, host) => unix_path(host)
                .map(Endpoints::Unix)
                .ok_or_else(|| UriError::MissingPort { uri: uri.to_string() }.into()),
            (other, _) => Err(ServerError::Scheme(other)),
        }
    }
}

/// The path of a Unix-domain socket, an abstract one with a leading `@`.
pub(crate) fn unix_path(host: &Host) -> Option<PathBuf> {
    match host {
        Host::UnixPath(path) => Some(PathBuf::from(path)),
        Host::UnixAbstract(name) => Some(PathBuf::from(format!("@{name}"))),
        _ => None,
    }
}
