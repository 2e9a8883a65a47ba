//! A server's datagram socket: a connection for each peer.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use corewire_driver::Socket;
use corewire_driver::udp::{Datagram, Run, UdpError, UdpOptions};

use super::super::{MakeProtocol, Transport, make_protocol};
use super::{Owner, UdpPeer, hand_over};
use crate::conn::{CloseReason, ConnId, ConnectionOptions};
use crate::udp::{UdpPort, UdpProtocol};
use crate::warning::WarningLimit;

/// Serves the peers of a socket: each, known by its address, is a connection from its first datagram on.
///
/// There are `peers_max` at the most. At the limit a new peer takes the place of the oldest of those that have sent a
/// single datagram, whose address may be forged; if there is none, its datagrams are dropped and counted.
///
/// # Errors
/// The kernel refuses the socket.
///
/// # Panics
/// Outside a worker.
pub fn serve(
    socket: Socket,
    udp: &UdpOptions,
    options: Rc<ConnectionOptions>,
    peers_max: usize,
    make: MakeProtocol,
) -> io::Result<UdpPort> {
    let peers = Rc::new(Peers::default());
    let server = Server { options, peers_max, make, peers, last: None, refused: WarningLimit::default() };
    UdpPort::open(socket, udp, server)
}

struct Server {
    options: Rc<ConnectionOptions>,
    peers_max: usize,
    make: MakeProtocol,
    peers: Rc<Peers>,
    /// Datagrams come in runs from one peer, here one that is validated.
    last: Option<(SocketAddr, ConnId)>,
    refused: WarningLimit,
}

#[derive(Default)]
pub(super) struct Peers {
    by_address: RefCell<HashMap<SocketAddr, Entry>>,
    /// Peers in the order of their first datagram, as long as they have sent no other: their address may be forged. Some
    /// are validated meanwhile, or gone.
    unvalidated: RefCell<VecDeque<(SocketAddr, ConnId)>>,
}

struct Entry {
    id: ConnId,
    /// More than one datagram came from there.
    is_validated: bool,
}

impl Peers {
    /// The connection of a peer is over. Its place may be a new one's by now.
    pub(super) fn forget(&self, address: SocketAddr, id: ConnId) {
        let mut by_address = self.by_address.borrow_mut();
        if by_address.get(&address).is_some_and(|entry| entry.id == id) {
            by_address.remove(&address);
        }
    }

    /// It is still there, and has sent one datagram only. Who comes again from its address is another.
    fn is_unvalidated(&self, (address, id): &(SocketAddr, ConnId)) -> bool {
        self.by_address.borrow().get(address).is_some_and(|entry| entry.id == *id && !entry.is_validated)
    }

    /// Forgets in the list those that are validated or gone.
    fn prune(&self) {
        let mut unvalidated = self.unvalidated.borrow_mut();
        if unvalidated.len() > 2 * self.by_address.borrow().len() + 64 {
            unvalidated.retain(|peer| self.is_unvalidated(peer));
        }
    }
}

impl Server {
    /// The connection of a peer from which this many datagrams came.
    #[inline]
    fn peer(&mut self, port: &UdpPort, from: SocketAddr, datagrams: usize) -> Option<ConnId> {
        match self.last {
            Some((address, id)) if address == from && port.core.conns.is_active(id) => Some(id),
            _ => self.look_up(port, from, datagrams),
        }
    }

    fn look_up(&mut self, port: &UdpPort, from: SocketAddr, datagrams: usize) -> Option<ConnId> {
        let known = self.peers.by_address.borrow_mut().get_mut(&from).map(|entry| {
            entry.is_validated = true;
            entry.id
        });
        let id = match known {
            Some(id) => id,
            None => return self.admit(port, from, datagrams),
        };
        self.last = Some((from, id));
        Some(id)
    }

    /// Opens a connection for a new peer.
    fn admit(&self, port: &UdpPort, from: SocketAddr, datagrams: usize) -> Option<ConnId> {
        if port.core.refuses_datagram_peer() {
            return None;
        }
        if self.peers.by_address.borrow().len() >= self.peers_max && !self.evict(port) {
            return self.refuse(from);
        }
        let Some(protocol) = make_protocol(&port.core, &self.make) else { return self.refuse(from) };
        let owner = Owner::Server(self.peers.clone());
        let transport = Transport::UdpPeer(Box::new(UdpPeer { socket: port.token, address: from, owner }));
        let connection = port.core.open_established(transport, self.options.clone(), protocol, |id| {
            let entry = Entry { id, is_validated: datagrams > 1 };
            self.peers.by_address.borrow_mut().insert(from, entry);
            self.peers.unvalidated.borrow_mut().push_back((from, id));
        });
        Some(connection.id)
    }

    #[cold]
    fn refuse(&self, from: SocketAddr) -> Option<ConnId> {
        if let Some(refused) = self.refused.note(1) {
            tracing::warn!(%from, refused, "datagrams of new peers are dropped: too many sessions");
        }
        None
    }

    /// Makes room by ending the connection of the peer that came first of those that have sent one datagram only.
    fn evict(&self, port: &UdpPort) -> bool {
        loop {
            let Some(oldest) = ({ self.peers.unvalidated.borrow_mut().pop_front() }) else { return false };
            if !self.peers.is_unvalidated(&oldest) {
                continue;
            }
            let (address, id) = oldest;
            self.peers.by_address.borrow_mut().remove(&address);
            let reason = "a new peer takes the place of one that has sent a single datagram";
            port.core.abort(id, CloseReason::Protocol(reason.to_owned()));
            return true;
        }
    }
}

impl UdpProtocol for Server {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from() else { return };
        let Some(id) = self.peer(port, from, 1) else { return port.count_dropped(1) };
        hand_over(port, id, &datagram.to_bytes(), datagram.payload().len(), datagram.is_truncated());
    }

    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        let Some(from) = run.from() else { return };
        let Some(id) = self.peer(port, from, run.count()) else {
            return port.count_dropped(run.count() as u64);
        };
        hand_over(port, id, &run.to_bytes(), run.segment_size(), run.is_truncated());
    }

    fn on_batch(&mut self, _: &UdpPort) {
        self.peers.prune();
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram to a peer was refused");
    }

    fn on_closed(&mut self, port: &UdpPort) {
        let all = self.peers.by_address.take();
        all.values().for_each(|entry| port.core.abort(entry.id, CloseReason::Shutdown));
    }
}
