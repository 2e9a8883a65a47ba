//! One conversation as a connection's carrier.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use corewire_proto::kcp::{Kcp, Mode, SendError as KcpSendError, SessionId};
use corewire_runtime::udp::{Carrier, UdpPort};
use corewire_runtime::{ConnectionOptions, SendError};

use super::node::Node;

/// Carries one conversation.
pub(super) struct Link {
    node: Rc<Node>,
    port: UdpPort,
    id: SessionId,
    peer: SocketAddr,
    waiting: Rc<Waiting>,
}

impl Link {
    pub(super) fn new(
        node: Rc<Node>,
        port: UdpPort,
        id: SessionId,
        peer: SocketAddr,
        waiting: Rc<Waiting>,
    ) -> Self {
        Self { node, port, id, peer, waiting }
    }

    /// Has the conversation given what waits at the end of the tick.
    fn list(&self) {
        if !self.waiting.is_listed.replace(true) {
            self.node.list(self.id);
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

    #[inline]
    fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let mut bytes = self.waiting.bytes.borrow_mut();
        let mut sessions = self.node.sessions.borrow_mut();
        // In its turn only, and only where pieces need not be put together first.
        let mut kcp = if bytes.is_empty() { sessions.session(self.id) } else { None };
        kcp = kcp.filter(|kcp| kcp.config().has_mode(Mode::Stream));
        for mut part in parts {
            if let Some(kcp) = &mut kcp
                && bytes.is_empty()
            {
                part = &part[kcp.write(part).unwrap_or(0)..];
            }
            bytes.extend_from_slice(part);
        }
        if bytes.is_empty() {
            self.port.request_flush();
            return Ok(());
        }
        if bytes.len() >= self.waiting.high_water {
            self.waiting.was_high.set(true);
        }
        self.list();
        Ok(())
    }

    #[inline]
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
            self.node.resume(self.id);
            self.port.request_flush();
        }
    }

    fn forget(&self) {
        self.node.forget(self.id);
        if let Some(kcp) = self.node.sessions.borrow_mut().session(self.id) {
            // The peer is told, if it is not over already.
            kcp.abort();
            self.port.request_flush();
        }
        if self.node.is_client {
            self.port.close();
        }
    }
}

/// What was sent and has found no room in the conversation yet, and how it goes on.
pub(super) struct Waiting {
    bytes: RefCell<BytesMut>,
    is_listed: Cell<bool>,
    is_ending: Cell<bool>,
    /// Nothing is read: the peer's window fills.
    is_paused: Cell<bool>,
    high_water: usize,
    low_water: usize,
    was_high: Cell<bool>,
}

/// What came of [`Waiting::fill`].
pub(super) struct Filled {
    /// Some still waits.
    pub(super) is_left: bool,
    /// It was over the high-water mark and has fallen to the low one.
    pub(super) is_drained: bool,
}

impl Waiting {
    pub(super) fn new(options: &ConnectionOptions) -> Self {
        Self {
            bytes: RefCell::default(),
            is_listed: Cell::default(),
            is_ending: Cell::default(),
            is_paused: Cell::default(),
            high_water: options.high_water,
            low_water: options.low_water,
            was_high: Cell::default(),
        }
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.get()
    }

    /// Gives the conversation what it takes, and its end after the last byte.
    pub(super) fn fill(&self, kcp: &mut Kcp, now: u64) -> Filled {
        let mut bytes = self.bytes.borrow_mut();
        let is_left = !give(&mut bytes, kcp);
        if !is_left && self.is_ending.get() {
            kcp.close(now);
        }
        let is_drained = self.was_high.get() && bytes.len() <= self.low_water;
        if is_drained {
            self.was_high.set(false);
        }
        self.is_listed.set(is_left);
        Filled { is_left, is_drained }
    }
}

/// True when nothing is left.
fn give(bytes: &mut BytesMut, kcp: &mut Kcp) -> bool {
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
