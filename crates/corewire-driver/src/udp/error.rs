//! What can go wrong with datagrams.

use std::io;
use std::net::SocketAddr;

use crate::socket::Socket;

/// Something about a datagram, never about the socket: it goes on.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UdpError {
    /// Nothing listens at the peer's port: an earlier datagram of this connected socket was answered by ICMP.
    #[error("the peer's port is closed: an earlier datagram was refused; start the peer or check the port")]
    Refused,
    /// An earlier datagram did not reach the peer's host or network, or this one cannot.
    #[error("the peer cannot be reached: {0}; check the address and the routes")]
    Unreachable(#[source] io::Error),
    /// No datagram of this network can carry so much.
    #[error("a datagram of {len} bytes was not sent: the limit is {max}; split it, or use kcp or tcp")]
    TooLong {
        /// Its length in bytes.
        len: usize,
        /// The limit in bytes.
        max: usize,
    },
    /// An IPv4 socket cannot send to an IPv6 address, nor the reverse.
    #[error("cannot send to {to} from a socket of the other address family; bind one of the same family")]
    Family {
        /// The destination.
        to: SocketAddr,
    },
    /// The socket does not keep up: more waits than is allowed.
    #[error("{queued} bytes wait to be sent, the limit is {limit}; send less or wait until they have left")]
    QueueFull {
        /// Bytes that wait.
        queued: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The socket is closed.
    #[error("the socket is closed")]
    Closed,
    /// Sending without a destination needs a connected socket.
    #[error("the socket is not connected: give a destination")]
    NotConnected,
    /// Anything else that the kernel says.
    #[error("the kernel refuses: {0}")]
    Io(#[source] io::Error),
}

impl UdpError {
    /// Sorts what the kernel said about sending `len` bytes (or about receiving: 0).
    pub fn from_io(error: io::Error, len: usize, to: Option<SocketAddr>) -> Self {
        use io::ErrorKind as Kind;
        match error.kind() {
            Kind::ConnectionRefused => Self::Refused,
            Kind::HostUnreachable | Kind::NetworkUnreachable | Kind::NetworkDown => Self::Unreachable(error),
            Kind::NotConnected => Self::NotConnected,
            _ => match (rustix::io::Errno::from_io_error(&error), to) {
                (Some(rustix::io::Errno::MSGSIZE), _) => {
                    Self::TooLong { len, max: to.map_or(super::PAYLOAD_MAX_V4, super::payload_max) }
                }
                (Some(rustix::io::Errno::AFNOSUPPORT), Some(to)) => Self::Family { to },
                (Some(rustix::io::Errno::DESTADDRREQ), _) => Self::NotConnected,
                _ => Self::Io(error),
            },
        }
    }

    /// As [`from_io`](Self::from_io), for a socket at hand: an IPv6 socket says of an IPv4 address that its network is
    /// unreachable.
    pub fn of_send(socket: &Socket, error: io::Error, len: usize, to: Option<SocketAddr>) -> Self {
        let is_unreachable = error.kind() == io::ErrorKind::NetworkUnreachable;
        if let Some(to) = to.filter(|to| is_unreachable && to.is_ipv4())
            && socket.local_addr().is_ok_and(|local| local.as_socket().is_some_and(|local| local.is_ipv6()))
        {
            return Self::Family { to };
        }
        Self::from_io(error, len, to)
    }

    /// It tells about an earlier datagram (ICMP): the one at hand was not tried yet.
    pub const fn is_about_earlier(&self) -> bool {
        matches!(self, Self::Refused)
    }
}

impl From<UdpError> for io::Error {
    fn from(error: UdpError) -> Self {
        let kind = match &error {
            UdpError::Refused => io::ErrorKind::ConnectionRefused,
            UdpError::Unreachable(source) | UdpError::Io(source) => source.kind(),
            UdpError::TooLong { .. } | UdpError::Family { .. } => io::ErrorKind::InvalidInput,
            UdpError::QueueFull { .. } => io::ErrorKind::WouldBlock,
            UdpError::Closed | UdpError::NotConnected => io::ErrorKind::NotConnected,
        };
        Self::new(kind, error)
    }
}
