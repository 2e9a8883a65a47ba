//! A server's UDP socket: one session for each peer.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::Socket;
use corewire_runtime::udp::{Carried, Carrier, Datagram, Run, SendMeta, UdpError, UdpPort, UdpProtocol};
use corewire_runtime::{CloseReason, SendError, WarningLimit};

use super::{DatagramSetup, MakeSession, send_error};

pub(super) fn serve(socket: Socket, setup: DatagramSetup, make: MakeSession) -> io::Result<UdpPort> {
    let udp = setup.settings.udp.clone();
    let peers = Rc::new(Peers::default());
    UdpPort::open(socket, &udp, Server { setup, make, peers, last: None, refused: WarningLimit::default() })
}

struct Server {
    setup: DatagramSetup,
    make: MakeSession,
    peers: Rc<Peers>,
    /// Datagrams come in runs from one peer.
    last: Option<(SocketAddr, Rc<Entry>)>,
    refused: WarningLimit,
}

#[derive(Default)]
struct Peers {
    by_address: RefCell<HashMap<SocketAddr, Rc<Entry>>>,
    /// Peers in the order of their first datagram, as long as they have sent no other: their address may be forged.
    unproven: RefCell<VecDeque<SocketAddr>>,
}

struct Entry {
    session: Rc<Carried>,
    is_proven: Cell<bool>,
}

/// Carries the session of one peer.
struct Peer {
    port: UdpPort,
    address: SocketAddr,
    peers: Rc<Peers>,
}

impl Server {
    #[inline]
    fn entry(&mut self, port: &UdpPort, from: SocketAddr) -> Option<&Entry> {
        let is_last =
            self.last.as_ref().is_some_and(|(address, entry)| *address == from && entry.session.is_open());
        if is_last {
            let (_, entry) = self.last.as_ref()?;
            entry.is_proven.set(true);
            return Some(entry);
        }
        self.look_up(port, from)
    }

    fn look_up(&mut self, port: &UdpPort, from: SocketAddr) -> Option<&Entry> {
        let known = self.peers.by_address.borrow().get(&from).cloned();
        let entry = match known {
            Some(entry) => {
                entry.is_proven.set(true);
                entry
            }
            None => self.admit(port, from)?,
        };
        let (_, entry) = self.last.insert((from, entry));
        Some(entry)
    }

    /// Opens a session for a new peer.
    fn admit(&mut self, port: &UdpPort, from: SocketAddr) -> Option<Rc<Entry>> {
        if self.peers.by_address.borrow().len() >= self.setup.sessions_max && !self.evict() {
            return self.refuse(from);
        }
        let Some(protocol) = (self.make)() else { return self.refuse(from) };
        let peer = Peer { port: port.clone(), address: from, peers: self.peers.clone() };
        let session = Carried::open(peer, self.setup.options.clone(), protocol);
        let entry = Rc::new(Entry { session, is_proven: Cell::new(false) });
        self.peers.by_address.borrow_mut().insert(from, entry.clone());
        self.peers.unproven.borrow_mut().push_back(from);
        entry.session.opened();
        Some(entry)
    }

    #[cold]
    fn refuse(&self, from: SocketAddr) -> Option<Rc<Entry>> {
        if let Some(refused) = self.refused.note(1) {
            tracing::warn!(%from, refused, "datagrams of new peers are dropped: too many sessions");
        }
        None
    }

    /// Makes room by ending the session of the peer that came first of those that have sent one datagram only.
    fn evict(&self) -> bool {
        loop {
            let Some(oldest) = ({ self.peers.unproven.borrow_mut().pop_front() }) else { return false };
            let unproven = {
                let mut peers = self.peers.by_address.borrow_mut();
                let is_unproven = peers.get(&oldest).is_some_and(|entry| !entry.is_proven.get());
                if is_unproven { peers.remove(&oldest) } else { None }
            };
            if let Some(entry) = unproven {
                let reason = "a new peer takes the place of one that has sent a single datagram";
                entry.session.abort(CloseReason::Protocol(reason.to_owned()));
                return true;
            }
        }
    }

    /// Forgets in the list those who have proven themselves or are gone.
    fn prune(&self) {
        let mut unproven = self.peers.unproven.borrow_mut();
        let peers = self.peers.by_address.borrow();
        if unproven.len() > 2 * peers.len() + 64 {
            unproven.retain(|address| peers.get(address).is_some_and(|entry| !entry.is_proven.get()));
        }
    }
}

impl UdpProtocol for Server {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from() else { return };
        if let Some(entry) = self.entry(port, from) {
            take(
                port,
                &entry.session,
                &datagram.to_bytes(),
                datagram.payload().len(),
                datagram.is_truncated(),
            );
        }
    }

    #[inline]
    fn on_run(&mut self, port: &UdpPort, run: &Run<'_>) {
        let Some(from) = run.from() else { return };
        let Some(entry) = self.entry(port, from) else { return port.count_dropped(run.count() as u64) };
        if run.count() > 1 {
            entry.is_proven.set(true);
        }
        take(port, &entry.session, &run.to_bytes(), run.segment_size(), run.is_truncated());
    }

    fn on_batch(&mut self, _: &UdpPort) {
        self.prune();
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram to a peer was refused");
    }

    fn on_drained(&mut self, _: &UdpPort) {
        let all: Vec<_> = self.peers.by_address.borrow().values().cloned().collect();
        all.iter().for_each(|entry| entry.session.drained());
    }

    fn on_closed(&mut self, _: &UdpPort) {
        let all = self.peers.by_address.take();
        all.values().for_each(|entry| entry.session.abort(CloseReason::Shutdown));
    }
}

/// Hands datagrams to their session.
#[inline]
pub(super) fn take(port: &UdpPort, session: &Carried, run: &Bytes, segment_size: usize, is_truncated: bool) {
    if is_truncated {
        port.count_dropped(1);
        tracing::debug!(len = run.len(), "a truncated datagram was dropped");
    } else if run.is_empty() {
        session.touch();
    } else {
        session.received_run(run, segment_size);
    }
}

impl Carrier for Peer {
    fn port(&self) -> &UdpPort {
        &self.port
    }

    fn peer(&self) -> SocketAddr {
        self.address
    }

    fn is_datagram(&self) -> bool {
        true
    }

    #[inline]
    fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        self.port.send_parts(Some(self.address), &parts, SendMeta::default()).map_err(send_error)
    }

    #[inline]
    fn send_within(&self, parts: [&[u8]; 3], limit: usize) -> Result<(), SendError> {
        self.port.send_parts_within(Some(self.address), &parts, limit).map_err(send_error)
    }

    fn queued(&self) -> usize {
        self.port.queued()
    }

    fn forget(&self) {
        let mut peers = self.peers.by_address.borrow_mut();
        // Its place may have gone to a new session of the same peer.
        if peers.get(&self.address).is_some_and(|entry| !entry.session.is_open()) {
            peers.remove(&self.address);
        }
    }
}
