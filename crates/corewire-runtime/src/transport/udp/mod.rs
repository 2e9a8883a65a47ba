//! Peers on datagram sockets: those of a server, and the one of a client.

mod server;

use std::cell::Cell;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::udp::{
    Datagram, Run, SendBatch, SendMeta, UdpError, UdpOptions, open as open_socket, payload_max,
};
use corewire_driver::{Socket, Token};

use self::server::Peers;
pub use self::server::serve;
use super::Transport;
use crate::conn::{CloseReason, ConnId, Connection, ConnectionOptions};
use crate::error::SendError;
use crate::protocol::Protocol;
use crate::udp::{UdpPort, UdpProtocol};
use crate::worker::Core;

/// One peer of a datagram socket, as its connection sees it.
pub(crate) struct UdpPeer {
    socket: Token,
    address: SocketAddr,
    owner: Owner,
}

/// Whose the socket is.
enum Owner {
    /// A server's, which has many peers on it.
    Server(Rc<Peers>),
    /// A client's own: it is connected, and ends with the connection.
    Client,
}

impl UdpPeer {
    pub(crate) const fn socket(&self) -> Token {
        self.socket
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Adds a datagram to the socket's queue, if less than `limit` bytes are in it.
    #[inline]
    pub(crate) fn push(&self, out: &mut SendBatch, parts: [&[u8]; 3], limit: usize) -> Result<(), UdpError> {
        let queued = out.queued();
        if queued >= limit {
            return Err(UdpError::QueueFull { queued, limit });
        }
        let to = match self.owner {
            Owner::Server(_) => Some(self.address),
            Owner::Client => {
                let len = parts.iter().map(|part| part.len()).sum();
                let max = payload_max(self.address);
                if len > max {
                    return Err(UdpError::TooLong { len, max });
                }
                None
            }
        };
        out.push(to, &parts, SendMeta::default())
    }

    pub(super) fn release(&self, core: &Core, id: ConnId) {
        match &self.owner {
            Owner::Server(peers) => peers.forget(self.address, id),
            Owner::Client => core.close_udp(self.socket),
        }
    }
}

/// Opens a connection to a peer, with a socket of its own. It is established at once: there is no handshake.
///
/// # Errors
/// The socket cannot be had, or there is no route to the peer.
///
/// # Panics
/// Outside a worker.
pub fn connect(
    peer: SocketAddr,
    udp: &UdpOptions,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    let session = Rc::new(Cell::new(None));
    let port = open_to(peer, udp, Client { session: session.clone() })?;
    let transport = Box::new(UdpPeer { socket: port.token, address: peer, owner: Owner::Client });
    let connection = port.core.open_established(Transport::UdpPeer(transport), options, protocol, |id| {
        session.set(Some(id));
    });
    Ok(connection)
}

/// A socket that is connected to the peer.
pub(super) fn open_to(
    peer: SocketAddr,
    options: &UdpOptions,
    protocol: impl UdpProtocol,
) -> io::Result<UdpPort> {
    let any: SocketAddr = match peer {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket: Socket = open_socket(any, options)?;
    socket.connect(peer)?;
    UdpPort::open(socket, options, protocol)
}

/// A client's socket, which has one peer.
struct Client {
    session: Rc<Cell<Option<ConnId>>>,
}

impl UdpProtocol for Client {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        if let Some(id) = self.session.get() {
            let bytes = datagram.to_bytes();
            hand_over(port, id, &bytes, datagram.payload().len(), datagram.is_truncated());
        }
    }

    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        if let Some(id) = self.session.get() {
            hand_over(port, id, &run.to_bytes(), run.segment_size(), run.is_truncated());
        }
    }

    fn on_error(&mut self, port: &UdpPort, error: UdpError) {
        // Nobody answers there: calls need not wait for their time.
        if matches!(error, UdpError::Refused | UdpError::Unreachable(_))
            && let Some(id) = self.session.get()
        {
            port.core.abort(id, CloseReason::Io(error.into()));
        } else {
            tracing::debug!(%error, "a datagram to the server was refused");
        }
    }

    fn on_closed(&mut self, port: &UdpPort) {
        if let Some(id) = self.session.take() {
            port.core.abort(id, CloseReason::Local);
        }
    }
}

/// Hands datagrams to their connection.
#[inline]
fn hand_over(port: &UdpPort, id: ConnId, run: &Bytes, segment_size: usize, is_truncated: bool) {
    if is_truncated {
        port.count_dropped(1);
        tracing::debug!(len = run.len(), "a truncated datagram was dropped");
    } else if run.is_empty() {
        // It says nothing but that the peer lives.
        port.core.touch(id);
    } else {
        port.core.received_run(id, run, segment_size);
    }
}

pub(crate) fn send_error(error: UdpError) -> SendError {
    match error {
        UdpError::TooLong { len, max } => SendError::TooLong { len, max },
        UdpError::QueueFull { queued, limit } => SendError::QueueFull { queued, limit },
        _ => SendError::Closed,
    }
}
