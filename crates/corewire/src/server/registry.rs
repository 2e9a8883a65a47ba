//! The sessions of a server: counted by all workers, listed by each for its own.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use corewire_runtime::udp::UdpPort;
use corewire_runtime::{CloseReason, ConnectionOptions, Listener, WarningLimit};
use slab::Slab;

use super::addresses::{Addresses, PeerAddress};
use super::directory::{Directory, Location};
use crate::frame::Frame;
use crate::handler::Handler;
use crate::proto::codec::DecodeError;
use crate::session::Session;

/// What all workers of a server share. Changed when sessions come and go, never on the path of a message.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) key: u64,
    limits: Limits,
    pub(super) session_table: bool,
    pub(super) options: ConnectionOptions,
    next_id: AtomicU64,
    live: AtomicUsize,
    /// Those of them that have a descriptor each, which are limited.
    connections: AtomicUsize,
    peak: AtomicUsize,
    pub(super) opened: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) refused_by_address: AtomicU64,
    addresses: Addresses,
    /// Sessions that closed without having sent all that was queued, and the bytes left.
    cut: AtomicUsize,
    cut_bytes: AtomicUsize,
    pub(super) directory: Directory,
    /// Sessions by worker, for placement.
    pub(super) by_worker: Vec<AtomicUsize>,
    pub(super) next_worker: AtomicUsize,
    last_one: Mutex<()>,
    none_left: Condvar,
}

/// The most connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) per_address: Option<usize>,
}

/// Why a connection is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refusal {
    /// The server has as many as it may.
    Connections { limit: usize },
    /// The peer has as many as it may.
    Address { limit: usize },
    /// What is held for those that there are is near the limit, in bytes.
    Memory { limit: usize },
}

impl Shared {
    pub(super) fn new(
        limits: Limits,
        session_table: bool,
        options: ConnectionOptions,
        workers: usize,
    ) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(1);
        Self {
            key: KEYS.fetch_add(1, Ordering::Relaxed),
            limits,
            session_table,
            options,
            next_id: AtomicU64::new(1),
            live: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            peak: AtomicUsize::new(0),
            opened: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            refused_by_address: AtomicU64::new(0),
            addresses: Addresses::default(),
            cut: AtomicUsize::new(0),
            cut_bytes: AtomicUsize::new(0),
            directory: Directory::default(),
            by_worker: (0..workers).map(|_| AtomicUsize::new(0)).collect(),
            next_worker: AtomicUsize::new(0),
            last_one: Mutex::new(()),
            none_left: Condvar::new(),
        }
    }

    pub(super) fn live(&self) -> usize {
        self.live.load(Ordering::Acquire)
    }

    pub(super) fn peak(&self) -> usize {
        self.peak.load(Ordering::Relaxed)
    }

    /// Whether the address of a peer has to be asked for.
    pub(super) const fn counts_addresses(&self) -> bool {
        self.limits.per_address.is_some()
    }

    /// A permit for a connection, if there is one left; it numbers its session. Without a peer its address is not counted.
    pub(super) fn admit(
        self: &Arc<Self>,
        worker: usize,
        peer: Option<SocketAddr>,
    ) -> Result<Permit, Refusal> {
        if let Some(memory) = self.options.memory_limit.as_ref().filter(|memory| memory.is_short()) {
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::Memory { limit: memory.bytes() });
        }
        let limit = self.limits.connections;
        if self.connections.fetch_add(1, Ordering::AcqRel) >= limit {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.refused.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::Connections { limit });
        }
        let counted = self.limits.per_address.zip(peer.map(PeerAddress::of));
        if let Some((limit, address)) = counted
            && !self.addresses.admit(address, limit)
        {
            self.connections.fetch_sub(1, Ordering::AcqRel);
            self.refused_by_address.fetch_add(1, Ordering::Relaxed);
            return Err(Refusal::Address { limit });
        }
        let address = counted.map(|(_, address)| Box::new(address));
        Ok(self.permit(worker, Carrier::Connection { address }))
    }

    /// A permit for a session on a datagram socket. How many there are is limited by the table of the socket, where a new one
    /// takes the place of another.
    pub(super) fn admit_datagram(self: &Arc<Self>, worker: usize) -> Permit {
        self.permit(worker, Carrier::Datagrams)
    }

    fn permit(self: &Arc<Self>, worker: usize, carrier: Carrier) -> Permit {
        let before = self.live.fetch_add(1, Ordering::AcqRel);
        self.peak.fetch_max(before + 1, Ordering::Relaxed);
        self.opened.fetch_add(1, Ordering::Relaxed);
        self.by_worker[worker].fetch_add(1, Ordering::Relaxed);
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        Permit { shared: self.clone(), id, carrier, worker: worker as u32 }
    }

    fn release(&self) {
        if self.live.fetch_sub(1, Ordering::AcqRel) == 1 {
            drop(self.last_one.lock().unwrap_or_else(PoisonError::into_inner));
            self.none_left.notify_all();
        }
    }

    /// How many sessions the close timeout has cut until now, and how many bytes it cost them.
    pub(super) fn cut(&self) -> (usize, usize) {
        (self.cut.load(Ordering::Relaxed), self.cut_bytes.load(Ordering::Relaxed))
    }

    pub(super) fn note_end(&self, reason: &CloseReason) {
        if let CloseReason::CloseTimeout { unsent, .. } = reason {
            self.cut.fetch_add(1, Ordering::Relaxed);
            self.cut_bytes.fetch_add(*unsent, Ordering::Relaxed);
        }
    }

    /// Waits until no session is left; gives up at the deadline, if there is one.
    pub(super) fn wait_until_empty(&self, deadline: Option<Instant>) {
        let mut guard = self.last_one.lock().unwrap_or_else(PoisonError::into_inner);
        while self.live() > 0 {
            let Some(deadline) = deadline else {
                guard = self.none_left.wait(guard).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = deadline.saturating_duration_since(corewire_driver::clock::now());
            if left == Duration::ZERO {
                return;
            }
            guard = self.none_left.wait_timeout(guard, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// The right to be one of the server's sessions. Counts the session as long as it exists, from its acceptance on.
#[derive(Debug)]
pub(super) struct Permit {
    shared: Arc<Shared>,
    pub(super) id: u64,
    carrier: Carrier,
    worker: u32,
}

/// What a session is on, as far as limits are concerned.
#[derive(Debug)]
enum Carrier {
    /// A socket of its own; `address` is the peer, if its connections are limited.
    Connection { address: Option<Box<PeerAddress>> },
    /// A datagram socket that it shares.
    Datagrams,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.shared.by_worker[self.worker as usize].fetch_sub(1, Ordering::Relaxed);
        if let Carrier::Connection { address } = &mut self.carrier {
            self.shared.connections.fetch_sub(1, Ordering::AcqRel);
            if let Some(address) = address.take() {
                self.shared.addresses.release(*address);
            }
        }
        self.shared.release();
    }
}

/// One worker's part of a server.
#[derive(Debug)]
pub(super) struct Local {
    pub(super) shared: Arc<Shared>,
    worker: usize,
    pub(super) options: Rc<ConnectionOptions>,
    pub(super) listeners: RefCell<Vec<Listener>>,
    pub(super) ports: RefCell<Vec<UdpPort>>,
    refusals: WarningLimit,
    /// Takes no more sessions: those that another worker accepted and handed over just now.
    pub(super) shutting_down: Cell<bool>,
    sessions: RefCell<Slab<Session>>,
}

thread_local! {
    static SERVERS: RefCell<HashMap<u64, Rc<Local>>> = RefCell::default();
}

impl Local {
    pub(super) fn install(shared: Arc<Shared>, worker: usize) -> Rc<Self> {
        let key = shared.key;
        let local = Rc::new(Self {
            options: Rc::new(shared.options.clone()),
            shared,
            worker,
            listeners: RefCell::default(),
            ports: RefCell::default(),
            refusals: WarningLimit::default(),
            shutting_down: Cell::default(),
            sessions: RefCell::default(),
        });
        SERVERS.with_borrow_mut(|servers| servers.insert(key, local.clone()));
        local
    }

    pub(super) fn uninstall(key: u64) {
        let local = SERVERS.with_borrow_mut(|servers| servers.remove(&key));
        if let Some(local) = local {
            local.ports.take().iter().for_each(UdpPort::close);
            let listeners = local.listeners.take();
            drop(listeners);
        }
    }

    /// The current worker's part of a server, as long as the server lives.
    pub(super) fn find(key: u64) -> Option<Rc<Self>> {
        SERVERS.with_borrow(|servers| servers.get(&key).cloned())
    }

    #[cold]
    pub(super) fn warn_of_refusal(&self, refusal: Refusal) {
        let Some(refused) = self.refusals.note(1) else { return };
        match refusal {
            Refusal::Connections { limit } => tracing::warn!(
                refused,
                limit,
                "connections are closed as they come: the server has as many as it may; if it is to serve more, raise \
                 max_connections"
            ),
            Refusal::Address { limit } => tracing::warn!(
                refused,
                limit,
                "connections are closed as they come: their address has as many as it may; if many clients share it, \
                 raise max_connections_per_address"
            ),
            Refusal::Memory { limit } => tracing::warn!(
                refused,
                limit,
                "connections are closed as they come: what the server holds for its peers is near its limit; if it is to \
                 hold more, raise memory_limit"
            ),
        }
    }

    /// Lists a session; the slot takes it off again.
    pub(super) fn list(&self, session: &Session) -> usize {
        let slot = self.sessions.borrow_mut().insert(session.clone());
        if self.shared.session_table {
            let location = Location { worker: self.worker as u32, slot: slot as u32 };
            self.shared.directory.insert(session.id(), location);
        }
        slot
    }

    pub(super) fn unlist(&self, slot: usize, session: &Session) {
        let listed = self.sessions.borrow_mut().try_remove(slot);
        if self.shared.session_table {
            self.shared.directory.remove(session.id());
        }
        drop(listed);
    }

    pub(super) fn all(&self) -> Vec<Session> {
        self.sessions.borrow().iter().map(|(_, session)| session.clone()).collect()
    }

    pub(super) fn listed(&self) -> Vec<Session> {
        if self.shared.session_table { self.all() } else { Vec::new() }
    }

    /// The session that the directory had in this slot, if it has not ended meanwhile.
    pub(super) fn session(&self, id: u64, slot: u32) -> Option<Session> {
        self.sessions.borrow().get(slot as usize).filter(|session| session.id() == id).cloned()
    }
}

/// A handler whose session is listed and counted.
pub(super) struct Listed<H> {
    handler: H,
    local: Rc<Local>,
    slot: Option<u32>,
    /// Given back here and not in `on_close`, which a session that never opened does not see.
    _permit: Permit,
}

impl<H> Listed<H> {
    pub(super) const fn new(handler: H, local: Rc<Local>, permit: Permit) -> Self {
        Self { handler, local, slot: None, _permit: permit }
    }
}

impl<H: Handler> Handler for Listed<H> {
    fn on_open(&mut self, session: &Session) {
        // There are never as many sessions as there are bytes in 4 GiB.
        self.slot = Some(self.local.list(session) as u32);
        self.handler.on_open(session);
    }

    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self.handler.on_frame(session, frame);
    }

    fn on_error(&mut self, session: &Session, error: &DecodeError) {
        tracing::debug!(session = session.id(), %error, "bad bytes from a peer");
        self.handler.on_error(session, error);
    }

    fn on_drained(&mut self, session: &Session) {
        self.handler.on_drained(session);
    }

    fn on_timer(&mut self, session: &Session) {
        self.handler.on_timer(session);
    }

    fn on_read_closed(&mut self, session: &Session) {
        self.handler.on_read_closed(session);
    }

    fn on_shutdown(&mut self, session: &Session) {
        self.handler.on_shutdown(session);
    }

    fn on_close(&mut self, session: &Session, reason: &CloseReason) {
        tracing::debug!(session = session.id(), %reason, "session over");
        self.local.shared.note_end(reason);
        if let Some(slot) = self.slot.take() {
            self.local.unlist(slot as usize, session);
        }
        self.handler.on_close(session, reason);
    }
}
