//! The conversations of one socket.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use corewire_proto::kcp::{SessionEvent, SessionId, Sessions, SessionsConfig, Transmit};
use corewire_runtime::udp::{Carried, UdpPort};
use corewire_runtime::{CloseReason, ConnectionOptions, Protocol, WarningLimit};

use super::super::MakeSession;
use super::link::{Link, Waiting};
use super::reason_of;
use super::seal::Seal;

/// Datagrams of one session that leave before another has its turn.
const RUN: usize = 64;
/// What a connection is given at once at the most, in bytes.
const READ_MAX: usize = 64 * 1024;

/// What new peers get.
pub(super) struct Accept {
    pub(super) options: Rc<ConnectionOptions>,
    pub(super) make: MakeSession,
}

pub(super) struct Node {
    pub(super) sessions: RefCell<Sessions<SocketAddr>>,
    links: RefCell<HashMap<SessionId, Rc<Entry>>>,
    /// Those with bytes that wait for room in their conversation, or that end.
    unsent: RefCell<Vec<SessionId>>,
    /// Those whose queue has fallen to the low-water mark.
    drained: RefCell<Vec<Rc<Carried>>>,
    /// Datagrams on their way.
    out: RefCell<Vec<u8>>,
    /// Where conversations are read into; shared with whoever keeps a piece.
    inbox: Cell<Bytes>,
    /// Those that go on reading.
    resumed: RefCell<Vec<SessionId>>,
    seal: Option<RefCell<Seal>>,
    idle_timeout: Option<Duration>,
    /// The socket ends with its conversation.
    pub(super) is_client: bool,
    /// When the socket's timer fires, in ms; `u64::MAX`: it is not set.
    timer_at: Cell<u64>,
    /// Datagrams that could not be opened.
    unopened: WarningLimit,
}

struct Entry {
    session: Rc<Carried>,
    waiting: Rc<Waiting>,
}

impl Node {
    pub(super) fn new(
        config: SessionsConfig,
        is_client: bool,
        idle_timeout: Option<Duration>,
        seal: Option<Seal>,
    ) -> io::Result<Rc<Self>> {
        let sessions =
            Sessions::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Rc::new(Self {
            sessions: RefCell::new(sessions),
            links: RefCell::default(),
            unsent: RefCell::default(),
            drained: RefCell::default(),
            out: RefCell::default(),
            inbox: Cell::default(),
            resumed: RefCell::default(),
            seal: seal.map(RefCell::new),
            idle_timeout,
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
    ) -> io::Result<Rc<Carried>> {
        let id = self.sessions.borrow_mut().connect(port.now_ms(), peer, conversation);
        let id = id.map_err(io::Error::other)?;
        Ok(self.open(port, id, peer, options, protocol))
    }

    fn open(
        self: &Rc<Self>,
        port: &UdpPort,
        id: SessionId,
        peer: SocketAddr,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> Rc<Carried> {
        let waiting = Rc::new(Waiting::new(&options));
        let link = Link::new(self.clone(), port.clone(), id, peer, waiting.clone());
        let session = Carried::open(link, options, protocol);
        self.links.borrow_mut().insert(id, Rc::new(Entry { session: session.clone(), waiting }));
        session
    }

    pub(super) fn forget(&self, id: SessionId) {
        let entry = self.links.borrow_mut().remove(&id);
        drop(entry);
    }

    /// Its bytes, or its end, wait to be handed to the conversation.
    pub(super) fn list(&self, id: SessionId) {
        self.unsent.borrow_mut().push(id);
    }

    pub(super) fn resume(&self, id: SessionId) {
        self.resumed.borrow_mut().push(id);
    }

    fn entry(&self, id: SessionId) -> Option<Rc<Entry>> {
        self.links.borrow().get(&id).cloned()
    }

    #[inline]
    pub(super) fn receive(&self, port: &UdpPort, from: SocketAddr, datagram: &[u8]) {
        let mut sessions = self.sessions.borrow_mut();
        let received = match &self.seal {
            None => sessions.receive(port.now_ms(), from, datagram),
            Some(seal) => match seal.borrow_mut().open(datagram) {
                Ok(opened) => sessions.receive(port.now_ms(), from, opened),
                Err(error) => return self.note_unopened(port, from, &error),
            },
        };
        if let Err(error) = received {
            tracing::trace!(%from, %error, "a datagram is of no KCP conversation");
            port.count_dropped(1);
        }
    }

    #[cold]
    fn note_unopened(&self, port: &UdpPort, from: SocketAddr, error: &corewire_proto::kcp::OpenError) {
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
                Some(SessionEvent::Opened(id)) => self.opened(port, id, accept),
                Some(SessionEvent::Readable(id)) => self.read(id),
                Some(SessionEvent::Closed { id, reason, .. }) => {
                    if let Some(entry) = self.entry(id) {
                        entry.session.abort(reason_of(reason, self.idle_timeout));
                    }
                }
                Some(other) => tracing::debug!(?other, "an event of KCP that this version does not know"),
            }
        }
    }

    fn opened(self: &Rc<Self>, port: &UdpPort, id: SessionId, accept: Option<&Accept>) {
        let Some(peer) = self.sessions.borrow().address(id) else { return };
        let served = accept.and_then(|accept| Some((accept.options.clone(), (accept.make)()?)));
        match served {
            Some((options, protocol)) => self.open(port, id, peer, options, protocol).opened(),
            None => self.sessions.borrow_mut().remove(port.now_ms(), id),
        }
    }

    /// Reads those that were told to go on.
    pub(super) fn read_resumed(&self) {
        if self.resumed.borrow().is_empty() {
            return;
        }
        self.resumed.take().into_iter().for_each(|id| self.read(id));
    }

    fn read(&self, id: SessionId) {
        let Some(entry) = self.entry(id) else { return };
        while !entry.waiting.is_paused() {
            let Some(piece) = self.take_piece(id) else { break };
            entry.session.received(piece);
        }
        if self.sessions.borrow().peek(id).is_some_and(|kcp| kcp.is_at_end()) {
            entry.session.read_closed();
        }
    }

    /// What can be read of a conversation now, at most [`READ_MAX`] bytes.
    fn take_piece(&self, id: SessionId) -> Option<Bytes> {
        let mut sessions = self.sessions.borrow_mut();
        let kcp = sessions.session(id).filter(|kcp| kcp.is_readable())?;
        let mut room = match self.inbox.take().try_into_mut() {
            Ok(room) if room.len() == READ_MAX => room,
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

    /// Moves what waits into the conversations, as far as there is room.
    fn fill(&self, now: u64) {
        if self.unsent.borrow().is_empty() {
            return;
        }
        let mut unsent = self.unsent.take();
        let mut drained = self.drained.take();
        unsent.retain(|id| {
            let Some(entry) = self.entry(*id) else { return false };
            let mut sessions = self.sessions.borrow_mut();
            let Some(kcp) = sessions.session(*id) else { return false };
            let filled = entry.waiting.fill(kcp, now);
            if filled.is_drained {
                drained.push(entry.session.clone());
            }
            filled.is_left
        });
        // Those that were listed meanwhile are none: no user code ran.
        self.unsent.replace(unsent);
        drained.drain(..).for_each(|session| session.drained());
        self.drained.replace(drained);
    }

    /// Sends what is due, and says when the next is.
    pub(super) fn transmit(&self, port: &UdpPort) {
        let now = port.now_ms();
        self.fill(now);
        let mut out = self.out.take();
        // What is lost in the socket's queue would only be sent again.
        while !port.is_blocked() {
            out.clear();
            let polled = self.sessions.borrow_mut().poll_transmit(now, &mut out, RUN);
            let Some((to, transmit)) = polled else { break };
            let to = (!self.is_client).then_some(to);
            self.send(port, to, &out, transmit);
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

    fn send(&self, port: &UdpPort, to: Option<SocketAddr>, out: &[u8], transmit: Transmit) {
        let sent = match &self.seal {
            None => port.send_segments(to, &out[..transmit.len], transmit.segment_size),
            Some(seal) => match seal.borrow_mut().seal(out, transmit) {
                Ok((sealed, segment_size)) => port.send_segments(to, sealed, segment_size),
                Err(error) => {
                    tracing::error!(%error, "the socket of KCP is closed");
                    return port.close();
                }
            },
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "datagrams of KCP did not leave; they will be sent again");
        }
    }

    /// Ends all connections.
    pub(super) fn end_all(&self, reason: impl Fn() -> CloseReason) {
        let all: Vec<_> = self.links.borrow().values().cloned().collect();
        all.iter().for_each(|entry| entry.session.abort(reason()));
    }
}

/// Splitting makes the memory countable from the start; otherwise each piece would allocate a counter.
fn new_inbox() -> BytesMut {
    let mut room = BytesMut::zeroed(READ_MAX + 1);
    drop(room.split_off(READ_MAX));
    room
}
