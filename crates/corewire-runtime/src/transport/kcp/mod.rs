//! KCP on datagram sockets: conversations as connections.
//!
//! The protocol itself is `corewire_proto::kcp`, without sockets and clocks. Here is the socket's side: datagrams in and
//! out, encryption, timers.

mod conversation;
mod endpoint;
mod seal;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::udp::{Datagram, UdpError, UdpOptions};
use corewire_driver::{Socket, entropy};
use corewire_proto::kcp::{Config, ENVELOPE_OVERHEAD, Keys, SessionsConfig};

pub(super) use self::conversation::Conversation;
pub(super) use self::endpoint::PIECE_MAX;
use self::endpoint::{Accept, Endpoint};
use self::seal::Seal;
use super::MakeProtocol;
use super::udp::open_to;
use crate::conn::{CloseReason, Connection, ConnectionOptions};
use crate::protocol::Protocol;
use crate::udp::{UdpPort, UdpProtocol};

/// Settings of the conversations of a socket.
#[derive(Clone)]
pub struct KcpOptions {
    /// Of each conversation.
    pub conversation: Config,
    /// Encrypt all datagrams; none is taken that is not.
    pub keys: Option<Keys>,
    /// How long a client's first data may stay without any answer.
    pub answer_timeout: Duration,
}

impl KcpOptions {
    fn sessions(&self, sessions_max: usize) -> SessionsConfig {
        let reserved = if self.keys.is_some() { ENVELOPE_OVERHEAD } else { 0 };
        SessionsConfig {
            conversation: self.conversation.clone().reserve(reserved),
            sessions_max,
            // A client with a key has echoed a challenge before anything of it is taken.
            validate: self.keys.is_none(),
            // Connections have their own.
            idle_timeout_ms: FAR_MS,
            answer_timeout_ms: u64::try_from(self.answer_timeout.as_millis()).unwrap_or(FAR_MS).min(FAR_MS),
            ..SessionsConfig::default()
        }
    }

    fn seal(&self, is_client: bool, sessions_max: usize) -> io::Result<Option<Seal>> {
        self.keys.as_ref().map(|keys| Seal::new(keys, is_client, sessions_max)).transpose()
    }
}

impl fmt::Debug for KcpOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KcpOptions")
            .field("conversation", &self.conversation)
            .field("is_encrypted", &self.keys.is_some())
            .field("answer_timeout", &self.answer_timeout)
            .finish_non_exhaustive()
    }
}

/// Millions of years.
const FAR_MS: u64 = u64::MAX / 4;

/// Serves the conversations of a socket, `sessions_max` at the most: each is a connection.
///
/// # Errors
/// The kernel refuses the socket, or a setting of the conversations is out of range.
///
/// # Panics
/// Outside a worker.
pub fn serve(
    socket: Socket,
    udp: &UdpOptions,
    kcp: &KcpOptions,
    options: Rc<ConnectionOptions>,
    sessions_max: usize,
    make: MakeProtocol,
) -> io::Result<UdpPort> {
    let endpoint = Endpoint::new(kcp.sessions(sessions_max), false, kcp.seal(false, sessions_max)?)?;
    UdpPort::open(socket, udp, Kcp { endpoint, accept: Some(Accept { options, make }) })
}

/// Opens a conversation with a peer, on a socket of its own. It is established at once: there is no handshake.
///
/// # Errors
/// The socket cannot be had, there is no route to the peer, or a setting of the conversation is out of range.
///
/// # Panics
/// Outside a worker.
pub fn connect(
    peer: SocketAddr,
    udp: &UdpOptions,
    kcp: &KcpOptions,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    let mut config = kcp.sessions(1);
    config.accept = false;
    let endpoint = Endpoint::new(config, true, kcp.seal(true, 1)?)?;
    let port = open_to(peer, udp, Kcp { endpoint: endpoint.clone(), accept: None })?;
    // As kcp-go's clients do. A number that somebody else uses at this address is of another socket.
    let conversation = entropy::u64() as u32;
    let connected = endpoint.connect(&port, peer, conversation, options, protocol);
    connected.inspect_err(|_| port.close())
}

/// The conversations of one socket as its worker calls them.
struct Kcp {
    endpoint: Rc<Endpoint>,
    /// `None`: a client's.
    accept: Option<Accept>,
}

impl UdpProtocol for Kcp {
    #[inline]
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        if let Some(from) = datagram.from() {
            self.endpoint.receive(port, from, datagram.payload());
        }
    }

    fn on_batch(&mut self, port: &UdpPort) {
        self.endpoint.take_events(port, self.accept.as_ref());
        port.request_flush();
    }

    fn on_flush(&mut self, port: &UdpPort) {
        self.endpoint.retry_blocked(port);
        self.endpoint.transmit(port);
        self.endpoint.take_events(port, self.accept.as_ref());
        if self.endpoint.is_done() {
            port.close();
        }
    }

    fn on_timer(&mut self, port: &UdpPort) {
        self.endpoint.timer_fired();
        self.on_flush(port);
    }

    fn on_drained(&mut self, port: &UdpPort) {
        self.on_flush(port);
    }

    fn on_error(&mut self, port: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram of KCP was refused");
        if self.accept.is_none() && matches!(error, UdpError::Refused) {
            self.endpoint.end_all(port, || CloseReason::Io(io::ErrorKind::ConnectionRefused.into()));
        }
    }

    fn on_closed(&mut self, port: &UdpPort) {
        self.endpoint.end_all(port, || CloseReason::Shutdown);
    }
}
