//! A server's datagram socket: a connection for each peer.

use std::cell::RefCell;
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use corewire_driver::Socket;
use corewire_driver::udp::{Datagram, Run, UdpError, UdpOptions};
use corewire_proto::recency::Recency;
use slab::Slab;

use super::super::{MakeProtocol, Transport, make_protocol};
use super::{Owner, UdpPeer, hand_over};
use crate::conn::{CloseReason, ConnId, ConnectionOptions};
use crate::udp::{UdpPort, UdpProtocol};
use crate::warning::WarningLimit;

/// Serves the peers of a socket: each, known by its address, is a connection from its first datagram on.
///
/// There are `peers_max` at the most. At the limit a new peer takes the place of the one that makes room by [`Recency`]: one
/// that has sent little, whose address may be forged, before those that talk, and of these the one not heard for longest.
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
    let peers = Rc::new(Peers::new(peers_max.max(1)));
    let server = Server { options, make, peers, refused: WarningLimit::default() };
    UdpPort::open(socket, udp, server)
}

struct Server {
    options: Rc<ConnectionOptions>,
    make: MakeProtocol,
    peers: Rc<Peers>,
    refused: WarningLimit,
}

/// The peers of a socket, each with a place in a table.
pub(super) struct Peers {
    places_max: usize,
    table: RefCell<Table>,
}

struct Table {
    by_address: HashMap<SocketAddr, u32>,
    places: Slab<(SocketAddr, ConnId)>,
    recency: Recency,
    /// Datagrams come in runs from one peer.
    last: Option<u32>,
}

impl Table {
    fn remove(&mut self, place: u32) -> Option<(SocketAddr, ConnId)> {
        let (address, id) = self.places.try_remove(place as usize)?;
        self.by_address.remove(&address);
        self.recency.remove(place);
        if self.last == Some(place) {
            self.last = None;
        }
        Some((address, id))
    }
}

impl Peers {
    fn new(places_max: usize) -> Self {
        let table = Table {
            by_address: HashMap::new(),
            places: Slab::new(),
            recency: Recency::new(places_max),
            last: None,
        };
        Self { places_max, table: RefCell::new(table) }
    }

    /// The connection of a peer that was heard just now.
    #[inline]
    fn find(&self, now_ms: u64, from: SocketAddr) -> Option<ConnId> {
        let table = &mut *self.table.borrow_mut();
        let is_last =
            |place: &u32| table.places.get(*place as usize).is_some_and(|(address, _)| *address == from);
        let place = match table.last.filter(is_last) {
            Some(place) => place,
            None => *table.by_address.get(&from)?,
        };
        table.last = Some(place);
        table.recency.heard(now_ms, place);
        table.places.get(place as usize).map(|(_, id)| *id)
    }

    fn insert(&self, now_ms: u64, address: SocketAddr, id: ConnId) {
        let table = &mut *self.table.borrow_mut();
        // Fewer than 2³²: each has a connection.
        let place = table.places.insert((address, id)) as u32;
        table.by_address.insert(address, place);
        table.recency.insert(now_ms, place);
    }

    /// Takes the peer out that has to make room, if all places are taken.
    fn make_room(&self) -> Option<ConnId> {
        let table = &mut *self.table.borrow_mut();
        if table.places.len() < self.places_max {
            return None;
        }
        let place = table.recency.first_out()?;
        table.remove(place).map(|(_, id)| id)
    }

    /// The connection of a peer is over. Its address may have a new one by now.
    pub(super) fn forget(&self, address: SocketAddr, id: ConnId) {
        let table = &mut *self.table.borrow_mut();
        let place = table.by_address.get(&address).copied();
        if let Some(place) = place
            && table.places.get(place as usize).is_some_and(|(_, listed)| *listed == id)
        {
            table.remove(place);
        }
    }

    /// Takes all out.
    fn take(&self) -> Vec<ConnId> {
        let mut table = self.table.replace(Self::new(self.places_max).table.into_inner());
        table.places.drain().map(|(_, id)| id).collect()
    }
}

impl Server {
    /// The connection of a peer from which something came.
    #[inline]
    fn peer(&self, port: &UdpPort, from: SocketAddr) -> Option<ConnId> {
        let now_ms = port.now_ms();
        self.peers.find(now_ms, from).or_else(|| self.admit(port, now_ms, from))
    }

    /// Opens a connection for a new peer.
    fn admit(&self, port: &UdpPort, now_ms: u64, from: SocketAddr) -> Option<ConnId> {
        if port.core.refuses_datagram_peer(&self.options) {
            return None;
        }
        let Some(protocol) = make_protocol(&port.core, &self.make) else { return self.refuse(from) };
        if let Some(id) = self.peers.make_room() {
            let reason = "a new peer takes the place of the one not heard for longest";
            port.core.abort(id, CloseReason::Protocol(reason.to_owned()));
        }
        let owner = Owner::Server(self.peers.clone());
        let transport = Transport::UdpPeer(Box::new(UdpPeer { socket: port.token, address: from, owner }));
        let connection = port.core.open_established(transport, self.options.clone(), protocol, |id| {
            self.peers.insert(now_ms, from, id);
        });
        Some(connection.id)
    }

    #[cold]
    fn refuse(&self, from: SocketAddr) -> Option<ConnId> {
        if let Some(refused) = self.refused.note(1) {
            tracing::warn!(%from, refused, "datagrams of new peers are dropped: the server ends, or cannot make handlers");
        }
        None
    }
}

impl UdpProtocol for Server {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from() else { return };
        let Some(id) = self.peer(port, from) else { return port.count_dropped(1) };
        hand_over(port, id, &datagram.to_bytes(), datagram.payload().len(), datagram.is_truncated());
    }

    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        let Some(from) = run.from() else { return };
        let Some(id) = self.peer(port, from) else {
            return port.count_dropped(run.count() as u64);
        };
        hand_over(port, id, &run.to_bytes(), run.segment_size(), run.is_truncated());
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram to a peer was refused");
    }

    fn on_closed(&mut self, port: &UdpPort) {
        self.peers.take().into_iter().for_each(|id| port.core.abort(id, CloseReason::Shutdown));
    }
}
