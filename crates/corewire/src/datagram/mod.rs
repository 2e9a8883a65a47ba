//! Sessions on datagram sockets: UDP, each peer a session, and KCP, each conversation a session.

mod kcp;
mod link;
mod peers;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::Socket;
use corewire_proto::kcp::{Config, Mode, Senders};
use corewire_runtime::udp::{UdpError, UdpOptions, UdpPort};
use corewire_runtime::{Connection, ConnectionOptions, Protocol, SendError};

use crate::kcp::Key;

/// What is spoken on a datagram socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DatagramKind {
    Udp,
    Kcp,
}

impl fmt::Display for DatagramKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Kcp => "kcp",
        })
    }
}

/// What servers and clients are told about datagrams.
#[derive(Debug, Clone)]
pub(crate) struct DatagramSettings {
    pub(crate) udp: UdpOptions,
    pub(crate) kcp: Config,
    /// Encrypts KCP.
    pub(crate) key: Option<Key>,
    /// Shared by the sockets of a server.
    pub(crate) senders: Senders,
    /// How long a KCP client's first data may stay without any answer.
    pub(crate) answer_timeout: Duration,
    pub(crate) sessions_max: usize,
    pub(crate) idle_timeout: Option<Duration>,
}

impl Default for DatagramSettings {
    fn default() -> Self {
        Self {
            udp: UdpOptions::default(),
            kcp: Config::turbo().windows(1024, 1024).mode(Mode::Stream),
            key: None,
            senders: Senders::default(),
            answer_timeout: Duration::from_secs(5),
            sessions_max: 65_536,
            idle_timeout: Some(Duration::from_secs(120)),
        }
    }
}

/// What one worker's socket of a server is told.
pub(crate) struct DatagramSetup {
    pub(crate) settings: DatagramSettings,
    pub(crate) options: Rc<ConnectionOptions>,
    /// Of this socket.
    pub(crate) sessions_max: usize,
}

/// Makes what serves a new peer; `None`: it is not served.
pub(crate) type MakeSession = Box<dyn Fn() -> Option<Box<dyn Protocol>>>;

/// Serves the peers of a socket.
pub(crate) fn serve(
    kind: DatagramKind,
    socket: Socket,
    setup: DatagramSetup,
    make: MakeSession,
) -> io::Result<UdpPort> {
    match kind {
        DatagramKind::Udp => peers::serve(socket, setup, make),
        DatagramKind::Kcp => kcp::serve(socket, setup, make),
    }
}

/// Opens a connection to a server; it stands at once.
pub(crate) fn connect(
    kind: DatagramKind,
    peer: SocketAddr,
    settings: &DatagramSettings,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    match kind {
        DatagramKind::Udp => link::connect(peer, settings, options, protocol),
        DatagramKind::Kcp => kcp::connect(peer, settings, options, protocol),
    }
}

/// The any-address is an address to listen on; who connects to it means this machine.
pub(crate) fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        match address {
            SocketAddr::V4(_) => address.set_ip(std::net::Ipv4Addr::LOCALHOST.into()),
            SocketAddr::V6(_) => address.set_ip(std::net::Ipv6Addr::LOCALHOST.into()),
        }
    }
    address
}

/// A socket of the system's choice that can reach the peer.
fn open_for(peer: SocketAddr, options: &UdpOptions) -> io::Result<Socket> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    corewire_runtime::udp::open(any, options)
}

fn send_error(error: UdpError) -> SendError {
    match error {
        UdpError::TooLong { len, max } => SendError::TooLong { len, max },
        UdpError::QueueFull { queued, limit } => SendError::QueueFull { queued, limit },
        _ => SendError::Closed,
    }
}
