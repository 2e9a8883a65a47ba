//! Sessions on datagram sockets: UDP, each peer a session, and KCP, each conversation a session.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::Socket;
use corewire_proto::kcp::{Config, Keys, Mode};
use corewire_runtime::transport::kcp::KcpOptions;
use corewire_runtime::transport::{MakeProtocol, kcp, udp};
use corewire_runtime::udp::{UdpOptions, UdpPort};
use corewire_runtime::{Connection, ConnectionOptions, Protocol};

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
    /// What else is opened, while keys are changed.
    pub(crate) second_key: Option<Key>,
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
            second_key: None,
            answer_timeout: Duration::from_secs(5),
            sessions_max: 65_536,
            idle_timeout: Some(Duration::from_secs(120)),
        }
    }
}

impl DatagramSettings {
    fn keys(&self) -> Option<Keys> {
        let keys = Keys::new(self.key.as_ref()?.as_bytes());
        Some(match &self.second_key {
            Some(second) => keys.and(second.as_bytes()),
            None => keys,
        })
    }

    fn kcp_options(&self) -> KcpOptions {
        KcpOptions { conversation: self.kcp.clone(), keys: self.keys(), answer_timeout: self.answer_timeout }
    }
}

/// What one worker's socket of a server is told.
pub(crate) struct DatagramSetup {
    pub(crate) settings: DatagramSettings,
    pub(crate) options: Rc<ConnectionOptions>,
    /// Of this socket.
    pub(crate) sessions_max: usize,
}

/// Serves the peers of a socket.
pub(crate) fn serve(
    kind: DatagramKind,
    socket: Socket,
    setup: DatagramSetup,
    make: MakeProtocol,
) -> io::Result<UdpPort> {
    let DatagramSetup { settings, options, sessions_max } = setup;
    match kind {
        DatagramKind::Udp => udp::serve(socket, &settings.udp, options, sessions_max, make),
        DatagramKind::Kcp => {
            kcp::serve(socket, &settings.udp, &settings.kcp_options(), options, sessions_max, make)
        }
    }
}

/// Opens a connection to a server; it is established at once.
pub(crate) fn connect(
    kind: DatagramKind,
    peer: SocketAddr,
    settings: &DatagramSettings,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    match kind {
        DatagramKind::Udp => udp::connect(peer, &settings.udp, options, protocol),
        DatagramKind::Kcp => kcp::connect(peer, &settings.udp, &settings.kcp_options(), options, protocol),
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
