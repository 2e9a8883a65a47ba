//! The conversations of one socket.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corewire_proto::kcp::{
    CloseReason as KcpReason, OpenError, Opened, SealError, SessionEvent, SessionId, Sessions,
    SessionsConfig, Transmit,
};

use super::super::{MakeProtocol, Transport, make_protocol};
use super::conversation::Conversation;
use super::seal::Seal;
use crate::conn::{CloseReason, ConnId, Connection, ConnectionOptions};
use crate::memory::{Charge, MemoryKind};
use crate::protocol::Protocol;
use crate::udp::UdpPort;
use crate::warning::WarningLimit;
use crate::worker::Meter;

/// Datagrams of one session that leave before another has its turn.
const RUN: usize = 64;
/// What a connection is given at once at the most, in bytes.
pub(crate) const PIECE_MAX: usize = 16 * 1024;

/// What new peers get.
pub(super) struct Accept {
    pub(super) options: Rc<ConnectionOptions>,
    pub(super) make: MakeProtocol,
}

/// The connection of a conversation.
struct Served {
    id: ConnId,
    /// For what the conversation holds; made when it is more than a little.
    charge: Option<Charge>,
}

pub(super) struct Endpoint {
    pub(super) sessions: RefCell<Sessions<SocketAddr>>,
    connections: RefCell<HashMap<SessionId, Served>>,
    /// Conversations that had no room for all that was written.
    blocked: RefCell<Vec<SessionId>>,
    /// Datagrams on their way.
    out: RefCell<Vec<u8>>,
    /// Where conversations are read into; shared with whoever keeps a piece.
    inbox: Cell<Bytes>,
    seal: Option<RefCell<Seal>>,
    /// It has one conversation, with the peer that its socket is connected to.
    is_client: bool,
    /// When the socket's timer fires, in ms; `u64::MAX`: it is not set.
    timer_at: Cell<u64>,
    /// Datagrams that could not be opened.
    unopened: WarningLimit,
}

impl Endpoint {
    pub(super) fn new(config: SessionsConfig, is_client: bool, seal: Option<Seal>) -> io::Result<Rc<Self>> {
        let sessions =
            Sessions::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Rc::new(Self {
            sessions: RefCell::new(sessions),
            connections: RefCell::default(),
            blocked: RefCell::default(),
            out: RefCell::default(),
            inbox: Cell::default(),
            seal: seal.map(RefCell::new),
            is_client,
            timer_at: Cell::new(u64::MAX),
            unopened: WarningLimit::default(),
        }))
    }

    pub(super) fn connect(
        self: &Rc<Self>,
        port: &UdpPort,
        peer: SocketAddr,
        conversation: u32,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> io::Result<Connection> {
        let session = self.sessions.borrow_mut().connect(port.now_ms(), peer, conversation);
        let session = session.map_err(io::Error::other)?;
        Ok(self.open(port, session, peer, options, protocol))
    }

    fn open(
        self: &Rc<Self>,
        port: &UdpPort,
        session: SessionId,
        peer: SocketAddr,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> Connection {
        let conversation = Conversation::new(self.clone(), port.token, session, peer);
        port.core.open_established(Transport::Kcp(Box::new(conversation)), options, protocol, |id| {
            self.connections.borrow_mut().insert(session, Served { id, charge: None });
        })
    }

    pub(super) fn forget(&self, session: SessionId) {
        self.connections.borrow_mut().remove(&session);
    }

    /// A client's socket ends with its conversation.
    pub(super) fn is_done(&self) -> bool {
        self.is_client && self.connections.borrow().is_empty()
    }

    fn connection(&self, session: SessionId) -> Option<ConnId> {
        self.connections.borrow().get(&session).map(|served| served.id)
    }

    #[inline]
    pub(super) fn receive(&self, port: &UdpPort, from: SocketAddr, datagram: &[u8]) {
        let received = match &self.seal {
            None => self.sessions.borrow_mut().receive(port.now_ms(), from, datagram),
            Some(seal) => {
                let mut seal = seal.borrow_mut();
                match seal.open(port.now_ms(), from, datagram) {
                    Ok(Opened::Data(opened)) => {
                        self.sessions.borrow_mut().receive(port.now_ms(), from, opened)
                    }
                    Ok(Opened::Answer(answer)) => {
                        self.send_one(port, from, answer);
                        while let Some(waiting) = seal.poll_waiting() {
                            self.send_one(port, from, waiting);
                        }
                        return;
                    }
                    Ok(Opened::Nothing) => return,
                    Err(error) => return self.note_unopened(port, from, &error),
                }
            }
        };
        if let Err(error) = received {
            tracing::trace!(%from, %error, "a datagram is of no KCP conversation");
            port.count_dropped(1);
        }
    }

    #[cold]
    fn note_unopened(&self, port: &UdpPort, from: SocketAddr, error: &OpenError) {
        port.count_dropped(1);
        if let Some(count) = self.unopened.note(1) {
            tracing::warn!(%from, count, %error, "datagrams were dropped that this key does not open");
        }
    }

    /// Tells connections what has happened to their conversations.
    pub(super) fn take_events(self: &Rc<Self>, port: &UdpPort, accept: Option<&Accept>) {
        loop {
            let event = self.sessions.borrow_mut().poll_event();
            match event {
                None => return,
                Some(SessionEvent::Opened(session)) => self.opened(port, session, accept),
                Some(SessionEvent::Readable(session)) => {
                    if let Some(id) = self.connection(session) {
                        port.core.readable(id);
                    }
                }
                Some(SessionEvent::Closed { id: session, reason, .. }) => {
                    if let Some(id) = self.connection(session) {
                        let took_all = matches!(reason, KcpReason::Finished | KcpReason::Unanswered);
                        port.core.ended(id, reason_of(reason), took_all);
                    }
                }
                Some(SessionEvent::Memory { id: session, bytes }) => self.charge(port, session, bytes),
                Some(other) => tracing::debug!(?other, "an event of KCP that this version does not know"),
            }
        }
    }

    /// A conversation holds so many bytes by now.
    fn charge(&self, port: &UdpPort, session: SessionId, bytes: usize) {
        let mut connections = self.connections.borrow_mut();
        let Some(Served { id, charge }) = connections.get_mut(&session) else { return };
        match charge {
            Some(charge) => charge.set(bytes),
            None => *charge = Some(Charge::new(port.core.account(*id), MemoryKind::Transport, bytes)),
        }
    }

    fn opened(self: &Rc<Self>, port: &UdpPort, session: SessionId, accept: Option<&Accept>) {
        let Some(peer) = self.sessions.borrow().address(session) else { return };
        let served = accept
            .filter(|accept| !port.core.refuses_datagram_peer(&accept.options))
            .and_then(|accept| Some((accept.options.clone(), make_protocol(&port.core, &accept.make)?)));
        match served {
            Some((options, protocol)) => drop(self.open(port, session, peer, options, protocol)),
            None => self.sessions.borrow_mut().remove(port.now_ms(), session),
        }
    }

    /// What can be read of a conversation now, at most [`PIECE_MAX`] bytes.
    pub(super) fn read(&self, session: SessionId) -> Option<Bytes> {
        let mut sessions = self.sessions.borrow_mut();
        let kcp = sessions.session(session).filter(|kcp| kcp.is_readable())?;
        let mut room = match self.inbox.take().try_into_mut() {
            Ok(room) if room.len() == PIECE_MAX => room,
            // Somebody keeps a piece of it.
            _ => new_inbox(),
        };
        let len = kcp.read(&mut room);
        let inbox = room.freeze();
        let piece = inbox.slice(..len);
        self.inbox.set(inbox);
        // An empty message says nothing in a stream; others may be behind it.
        Some(piece)
    }

    /// Hands bytes to a conversation, as far as there is room for them.
    pub(super) fn write(&self, session: SessionId, slices: &[IoSlice<'_>]) -> usize {
        let mut sessions = self.sessions.borrow_mut();
        let mut kcp = sessions.session(session);
        let (mut taken, mut has_room) = (0, true);
        for slice in slices {
            let mut rest: &[u8] = slice;
            while has_room && !rest.is_empty() {
                let written = kcp.as_mut().map_or(0, |kcp| {
                    let piece = rest.len().min(kcp.message_max());
                    // It fails also if the conversation is over, which an event tells.
                    kcp.write(&rest[..piece]).unwrap_or(0)
                });
                taken += written;
                has_room = written > 0;
                rest = &rest[written..];
            }
        }
        if !has_room {
            self.blocked.borrow_mut().push(session);
        }
        taken
    }

    /// Has those go on writing that found no room.
    pub(super) fn retry_blocked(&self, port: &UdpPort) {
        if self.blocked.borrow().is_empty() {
            return;
        }
        let mut blocked = self.blocked.take();
        for session in blocked.drain(..) {
            if let Some(id) = self.connection(session) {
                port.core.writable(id);
            }
        }
        let mut again = self.blocked.borrow_mut();
        blocked.append(&mut again);
        *again = blocked;
    }

    /// Sends what is due, and says when the next is.
    pub(super) fn transmit(&self, port: &UdpPort) {
        let now = port.now_ms();
        let mut out = self.out.take();
        let mut meter = Meter::new();
        // What is lost in the socket's queue would only be sent again.
        while !port.is_blocked() {
            out.clear();
            let polled = self.sessions.borrow_mut().poll_transmit(now, &mut out, RUN);
            let Some((to, transmit)) = polled else { break };
            self.send(port, to, &out, transmit);
            if meter.is_used(transmit.len) {
                // The rest leaves in the next tick: others have their turn.
                port.request_flush();
                break;
            }
        }
        self.out.replace(out);
        let Some(after) = self.sessions.borrow().next_timeout(now) else { return };
        let after = after.max(1);
        // Most times move away before they come: a timer that fires early costs less than one set anew each time.
        if now.saturating_add(after) < self.timer_at.get() {
            self.timer_at.set(now.saturating_add(after));
            port.set_timer(Some(Duration::from_millis(after)));
        }
    }

    /// The socket's timer has fired.
    pub(super) fn timer_fired(&self) {
        self.timer_at.set(u64::MAX);
    }

    fn send_one(&self, port: &UdpPort, to: SocketAddr, datagram: &[u8]) {
        self.send_segments(port, to, datagram, datagram.len());
    }

    fn send(&self, port: &UdpPort, to: SocketAddr, out: &[u8], transmit: Transmit) {
        match &self.seal {
            None => self.send_segments(port, to, &out[..transmit.len], transmit.segment_size),
            Some(seal) => match seal.borrow_mut().seal(port.now_ms(), to, out, transmit) {
                Ok(Some((sealed, segment_size))) => self.send_segments(port, to, sealed, segment_size),
                Ok(None) => {}
                Err(error @ SealError::UnknownClient) => tracing::debug!(%to, %error, "nothing is sent"),
                Err(error) => {
                    tracing::error!(%error, "the socket of KCP is closed");
                    port.close();
                }
            },
        }
    }

    fn send_segments(&self, port: &UdpPort, to: SocketAddr, datagrams: &[u8], segment_size: usize) {
        let to = (!self.is_client).then_some(to);
        if let Err(error) = port.send_segments(to, datagrams, segment_size) {
            tracing::debug!(%error, "datagrams of KCP did not leave; they will be sent again");
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self, port: &UdpPort, reason: impl Fn() -> CloseReason) {
        self.connections.borrow().values().for_each(|served| port.core.abort(served.id, reason()));
    }
}

fn reason_of(reason: KcpReason) -> CloseReason {
    match reason {
        KcpReason::Finished | KcpReason::Unanswered => CloseReason::PeerClosed,
        KcpReason::Aborted => CloseReason::Local,
        KcpReason::Reset => CloseReason::Io(io::ErrorKind::ConnectionReset.into()),
        KcpReason::MessageTooLong | KcpReason::Evicted => CloseReason::Protocol(reason.to_string()),
        other => CloseReason::Io(io::Error::new(io::ErrorKind::TimedOut, other.to_string())),
    }
}

/// Splitting makes the memory countable from the start; otherwise each piece would allocate a counter.
fn new_inbox() -> BytesMut {
    let mut room = BytesMut::zeroed(PIECE_MAX + 1);
    drop(room.split_off(PIECE_MAX));
    room
}
