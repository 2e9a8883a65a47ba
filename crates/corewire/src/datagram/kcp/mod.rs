//! KCP on a UDP socket: conversations as connections.

mod link;
mod node;
mod seal;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::Socket;
use corewire_proto::kcp::{CloseReason as KcpReason, Envelope, SessionsConfig};
use corewire_runtime::udp::{Datagram, UdpError, UdpPort, UdpProtocol};
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol};

use self::node::{Accept, Node};
use self::seal::Seal;
use super::{DatagramSettings, DatagramSetup, MakeSession, open_for};

pub(super) fn serve(socket: Socket, setup: DatagramSetup, make: MakeSession) -> io::Result<UdpPort> {
    let mut config = sessions_config(&setup.settings, &setup.options);
    config.sessions_max = setup.sessions_max;
    let idle_timeout = setup.options.idle_timeout;
    let node = Node::new(config, false, idle_timeout, seal(&setup.settings)?)?;
    let udp = setup.settings.udp.clone();
    let options = timeless(&setup.options);
    UdpPort::open(socket, &udp, Kcp { node, accept: Some(Accept { options, make }) })
}

pub(super) fn connect(
    peer: SocketAddr,
    settings: &DatagramSettings,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    let mut config = sessions_config(settings, &options);
    config.accept = false;
    let node = Node::new(config, true, options.idle_timeout, seal(settings)?)?;
    let socket = open_for(peer, &settings.udp)?;
    socket.connect(peer)?;
    let port = UdpPort::open(socket, &settings.udp, Kcp { node: node.clone(), accept: None })?;
    // As kcp-go's clients do. A number that somebody else uses at this address is of another socket.
    let conversation = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), peer) as u32;
    let carried = node.connect(&port, peer, conversation, timeless(&options), protocol);
    let carried = carried.inspect_err(|_| port.close())?;
    carried.opened();
    Ok(carried.connection())
}

fn sessions_config(settings: &DatagramSettings, options: &ConnectionOptions) -> SessionsConfig {
    let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 4);
    let reserved = if settings.key.is_some() { Envelope::OVERHEAD } else { 0 };
    SessionsConfig {
        conversation: settings.kcp.clone().reserve(reserved),
        sessions_max: settings.sessions_max,
        idle_timeout_ms: options.idle_timeout.map_or(u64::MAX / 4, millis),
        answer_timeout_ms: millis(settings.answer_timeout),
        ..SessionsConfig::default()
    }
}

/// Conversations know themselves when something was received last: their connections need not be told each time.
fn timeless(options: &ConnectionOptions) -> Rc<ConnectionOptions> {
    let mut options = options.clone();
    options.idle_timeout = None;
    Rc::new(options)
}

fn seal(settings: &DatagramSettings) -> io::Result<Option<Seal>> {
    settings.key.as_ref().map(|key| Seal::new(key, &settings.senders)).transpose()
}

fn reason_of(reason: KcpReason, idle_timeout: Option<Duration>) -> CloseReason {
    match reason {
        KcpReason::Finished | KcpReason::Unanswered => CloseReason::PeerClosed,
        KcpReason::Aborted => CloseReason::Local,
        KcpReason::Reset => CloseReason::Io(io::ErrorKind::ConnectionReset.into()),
        KcpReason::MessageTooLong => CloseReason::Protocol(reason.to_string()),
        KcpReason::Idle => CloseReason::IdleTimeout(idle_timeout.unwrap_or_default()),
        other => CloseReason::Io(io::Error::new(io::ErrorKind::TimedOut, other.to_string())),
    }
}

/// The conversations of one socket as its worker calls them.
struct Kcp {
    node: Rc<Node>,
    /// `None`: a client's.
    accept: Option<Accept>,
}

impl UdpProtocol for Kcp {
    #[inline]
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        if let Some(from) = datagram.from() {
            self.node.receive(port, from, datagram.payload());
        }
    }

    fn on_batch(&mut self, port: &UdpPort) {
        self.node.take_events(port, self.accept.as_ref());
        port.request_flush();
    }

    fn on_flush(&mut self, port: &UdpPort) {
        self.node.read_resumed();
        self.node.transmit(port);
        self.node.take_events(port, self.accept.as_ref());
    }

    fn on_timer(&mut self, port: &UdpPort) {
        self.node.timer_fired();
        self.on_flush(port);
    }

    fn on_drained(&mut self, port: &UdpPort) {
        self.on_flush(port);
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram of KCP was refused");
        if self.accept.is_none() && matches!(error, UdpError::Refused) {
            self.node.end_all(|| CloseReason::Io(io::ErrorKind::ConnectionRefused.into()));
        }
    }

    fn on_closed(&mut self, _: &UdpPort) {
        self.node.end_all(|| CloseReason::Shutdown);
    }
}
