//! KCP on a UDP socket: conversations as connections.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::{Buf, BytesMut};
use corewire_driver::Socket;
use corewire_proto::kcp::{
    CloseReason as KcpReason, SendError as KcpSendError, SessionEvent, SessionId, Sessions, SessionsConfig,
};
use corewire_runtime::udp::{Carried, Carrier, Datagram, UdpError, UdpPort, UdpProtocol};
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol, SendError};

use super::{DatagramSettings, DatagramSetup, MakeSession, open_for};

/// Datagrams of one session that leave before another has its turn.
const RUN: usize = 64;

pub(super) fn serve(socket: Socket, setup: DatagramSetup, make: MakeSession) -> io::Result<UdpPort> {
    let mut config = sessions_config(&setup.settings, &setup.options);
    config.sessions_max = setup.sessions_max;
    let node = Node::new(config, false)?;
    let udp = setup.settings.udp.clone();
    let port = UdpPort::open(socket, &udp, Kcp { node, accept: Some((setup.options, make)) })?;
    Ok(port)
}

pub(super) fn connect(
    peer: SocketAddr,
    settings: &DatagramSettings,
    options: Rc<ConnectionOptions>,
    protocol: Box<dyn Protocol>,
) -> io::Result<Connection> {
    let mut config = sessions_config(settings, &options);
    config.accept = false;
    let node = Node::new(config, true)?;
    let socket = open_for(peer, &settings.udp)?;
    socket.connect(&peer.into())?;
    let port = UdpPort::open(socket, &settings.udp, Kcp { node: node.clone(), accept: None })?;
    // As kcp-go's clients do. A number that somebody else uses at this address is of another socket.
    let conversation = std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), peer) as u32;
    let id = node.sessions.borrow_mut().connect(port.now_ms(), peer, conversation);
    let id = id.map_err(io::Error::other)?;
    let carried = node.open(&port, id, peer, options, protocol);
    carried.opened();
    Ok(carried.connection())
}

fn sessions_config(settings: &DatagramSettings, options: &ConnectionOptions) -> SessionsConfig {
    let idle = options.idle_timeout.map_or(u64::MAX / 4, |idle| idle.as_millis() as u64);
    SessionsConfig {
        conversation: settings.kcp.clone(),
        sessions_max: settings.sessions_max,
        idle_timeout_ms: idle,
        ..SessionsConfig::default()
    }
}

/// The conversations of one socket.
struct Node {
    sessions: RefCell<Sessions<SocketAddr>>,
    links: RefCell<HashMap<SessionId, Rc<Entry>>>,
    /// Those with bytes that wait for room in their conversation.
    unsent: RefCell<Vec<SessionId>>,
    /// Datagrams on their way.
    out: RefCell<Vec<u8>>,
    /// Those that go on reading.
    resumed: RefCell<Vec<SessionId>>,
    /// The socket ends with its conversation.
    is_client: bool,
}

struct Entry {
    session: Rc<Carried>,
    waiting: Rc<Waiting>,
}

/// What was sent and has found no room yet.
#[derive(Default)]
struct Waiting {
    bytes: RefCell<BytesMut>,
    is_listed: Cell<bool>,
    is_ending: Cell<bool>,
    /// Nothing is read: the peer's window fills.
    is_paused: Cell<bool>,
    high_water: usize,
    low_water: usize,
    was_high: Cell<bool>,
}

impl Node {
    fn new(config: SessionsConfig, is_client: bool) -> io::Result<Rc<Self>> {
        let sessions =
            Sessions::new(config).map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        Ok(Rc::new(Self {
            sessions: RefCell::new(sessions),
            links: RefCell::default(),
            unsent: RefCell::default(),
            out: RefCell::default(),
            resumed: RefCell::default(),
            is_client,
        }))
    }

    fn open(
        self: &Rc<Self>,
        port: &UdpPort,
        id: SessionId,
        peer: SocketAddr,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> Rc<Carried> {
        let (high_water, low_water) = (options.high_water, options.low_water);
        let waiting = Rc::new(Waiting { high_water, low_water, ..Waiting::default() });
        let link = Link { node: self.clone(), port: port.clone(), id, peer, waiting: waiting.clone() };
        let session = Carried::open(link, options, protocol);
        self.links.borrow_mut().insert(id, Rc::new(Entry { session: session.clone(), waiting }));
        session
    }

    fn entry(&self, id: SessionId) -> Option<Rc<Entry>> {
        self.links.borrow().get(&id).cloned()
    }

    /// Tells connections what has happened to their conversations.
    fn take_events(self: &Rc<Self>, port: &UdpPort, accept: Option<&(Rc<ConnectionOptions>, MakeSession)>) {
        loop {
            let event = self.sessions.borrow_mut().poll_event();
            match event {
                None => return,
                Some(SessionEvent::Opened(id)) => self.opened(port, id, accept),
                Some(SessionEvent::Readable(id)) => self.read(id),
                Some(SessionEvent::Closed { id, reason, .. }) => {
                    if let Some(entry) = self.entry(id) {
                        entry.session.abort(reason_of(reason));
                    }
                }
                Some(other) => tracing::debug!(?other, "an event of KCP that this version does not know"),
            }
        }
    }

    fn opened(
        self: &Rc<Self>,
        port: &UdpPort,
        id: SessionId,
        accept: Option<&(Rc<ConnectionOptions>, MakeSession)>,
    ) {
        let Some(peer) = self.sessions.borrow().address(id) else { return };
        let served = accept.and_then(|(options, make)| Some((options, make()?)));
        match served {
            Some((options, protocol)) => self.open(port, id, peer, options.clone(), protocol).opened(),
            None => self.sessions.borrow_mut().remove(port.now_ms(), id),
        }
    }

    fn read(&self, id: SessionId) {
        let Some(entry) = self.entry(id) else { return };
        while !entry.waiting.is_paused.get() {
            let message = self.sessions.borrow_mut().session(id).and_then(|kcp| kcp.recv());
            match message {
                Some(bytes) if bytes.is_empty() => {}
                Some(bytes) => entry.session.received(bytes),
                None => break,
            }
        }
        if self.sessions.borrow().peek(id).is_some_and(|kcp| kcp.is_at_end()) {
            entry.session.read_closed();
        }
    }

    /// Moves what waits into the conversations, as far as there is room.
    fn fill(&self, now: u64) {
        let mut unsent = self.unsent.take();
        let mut drained = Vec::new();
        unsent.retain(|id| {
            let Some(entry) = self.entry(*id) else { return false };
            let waiting = &entry.waiting;
            let mut sessions = self.sessions.borrow_mut();
            let Some(kcp) = sessions.session(*id) else { return false };
            let is_empty = waiting.fill(kcp);
            if is_empty && waiting.is_ending.get() {
                kcp.close(now);
            }
            if waiting.was_high.get() && waiting.bytes.borrow().len() <= waiting.low_water {
                waiting.was_high.set(false);
                drained.push(entry.session.clone());
            }
            waiting.is_listed.set(!is_empty);
            !is_empty
        });
        // Those that were listed meanwhile are none: no user code ran.
        self.unsent.replace(unsent);
        drained.iter().for_each(|session| session.drained());
    }

    /// Sends what is due, and says when the next is.
    fn transmit(&self, port: &UdpPort) {
        let now = port.now_ms();
        self.fill(now);
        let mut out = self.out.take();
        loop {
            out.clear();
            if port.is_blocked() {
                // What is lost in the socket's queue would only be sent again.
                break;
            }
            let Some((to, transmit)) = self.sessions.borrow_mut().poll_transmit(now, &mut out, RUN) else {
                break;
            };
            let to = (!self.is_client).then_some(to);
            if let Err(error) = port.send_segments(to, &out[..transmit.len], transmit.segment_size) {
                tracing::debug!(%error, "datagrams of KCP did not leave; they will be sent again");
            }
        }
        self.out.replace(out);
        let next = self.sessions.borrow().next_timeout(now);
        port.set_timer(next.map(|after| Duration::from_millis(after.max(1))));
    }
}

impl Waiting {
    /// True when nothing is left.
    fn fill(&self, kcp: &mut corewire_proto::kcp::Kcp) -> bool {
        let mut bytes = self.bytes.borrow_mut();
        while !bytes.is_empty() {
            let piece = bytes.len().min(kcp.message_max());
            match kcp.write(&bytes[..piece]) {
                Ok(taken) => bytes.advance(taken),
                Err(KcpSendError::WouldBlock { .. }) => return false,
                Err(_over) => bytes.clear(),
            }
        }
        true
    }
}

fn reason_of(reason: KcpReason) -> CloseReason {
    match reason {
        KcpReason::Finished | KcpReason::Unanswered => CloseReason::PeerClosed,
        KcpReason::Aborted => CloseReason::Local,
        KcpReason::Reset => CloseReason::Io(io::ErrorKind::ConnectionReset.into()),
        KcpReason::MessageTooLong => CloseReason::Protocol(reason.to_string()),
        other => CloseReason::Io(io::Error::new(io::ErrorKind::TimedOut, other.to_string())),
    }
}

struct Kcp {
    node: Rc<Node>,
    accept: Option<(Rc<ConnectionOptions>, MakeSession)>,
}

impl UdpProtocol for Kcp {
    fn on_datagram(&mut self, port: &UdpPort, datagram: &Datagram<'_>) {
        let Some(from) = datagram.from() else { return };
        let received = self.node.sessions.borrow_mut().receive(port.now_ms(), from, datagram.payload());
        match received {
            Ok(id) => {
                if let Some(entry) = self.node.entry(id) {
                    entry.session.touch();
                }
            }
            Err(error) => tracing::trace!(%from, %error, "a datagram is of no KCP conversation"),
        }
    }

    fn on_batch(&mut self, port: &UdpPort) {
        self.node.take_events(port, self.accept.as_ref());
        port.request_flush();
    }

    fn on_flush(&mut self, port: &UdpPort) {
        for id in self.node.resumed.take() {
            self.node.read(id);
        }
        self.node.transmit(port);
        self.node.take_events(port, self.accept.as_ref());
    }

    fn on_timer(&mut self, port: &UdpPort) {
        self.on_flush(port);
    }

    fn on_drained(&mut self, port: &UdpPort) {
        self.on_flush(port);
    }

    fn on_error(&mut self, _: &UdpPort, error: UdpError) {
        tracing::debug!(%error, "a datagram of KCP was refused");
        if self.node.is_client && matches!(error, UdpError::Refused) {
            let all: Vec<_> = self.node.links.borrow().values().cloned().collect();
            let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
            all.iter().for_each(|entry| entry.session.abort(CloseReason::Io(refused())));
        }
    }

    fn on_closed(&mut self, _: &UdpPort) {
        let all = self.node.links.take();
        all.values().for_each(|entry| entry.session.abort(CloseReason::Shutdown));
    }
}

/// Carries one conversation.
struct Link {
    node: Rc<Node>,
    port: UdpPort,
    id: SessionId,
    peer: SocketAddr,
    waiting: Rc<Waiting>,
}

impl Link {
    fn list(&self) {
        if !self.waiting.is_listed.replace(true) {
            self.node.unsent.borrow_mut().push(self.id);
        }
        self.port.request_flush();
    }
}

impl Carrier for Link {
    fn port(&self) -> &UdpPort {
        &self.port
    }

    fn peer(&self) -> SocketAddr {
        self.peer
    }

    fn is_datagram(&self) -> bool {
        false
    }

    fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let mut bytes = self.waiting.bytes.borrow_mut();
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        if bytes.len() >= self.waiting.high_water {
            self.waiting.was_high.set(true);
        }
        drop(bytes);
        self.list();
        Ok(())
    }

    fn queued(&self) -> usize {
        self.waiting.bytes.borrow().len()
    }

    fn begin_close(&self) -> bool {
        self.waiting.is_ending.set(true);
        self.list();
        // Its end is told by the conversation.
        self.node.sessions.borrow().peek(self.id).is_none()
    }

    fn shutdown_write(&self) {
        self.begin_close();
    }

    fn set_paused(&self, paused: bool) {
        if self.waiting.is_paused.replace(paused) && !paused {
            self.node.resumed.borrow_mut().push(self.id);
            self.port.request_flush();
        }
    }

    fn forget(&self) {
        self.node.links.borrow_mut().remove(&self.id);
        let mut sessions = self.node.sessions.borrow_mut();
        if let Some(kcp) = sessions.session(self.id) {
            // The peer is told, if it is not over already.
            kcp.abort();
            self.port.request_flush();
        }
        drop(sessions);
        if self.node.is_client {
            self.port.close();
        }
    }
}
