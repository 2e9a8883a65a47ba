//! One conversation, as its connection sees it.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::Token;
use corewire_proto::kcp::{Kcp, SessionId};

use super::endpoint::Endpoint;
use crate::worker::Core;

/// A conversation on a datagram socket. It keeps what was sent until the peer has it, and what has arrived until it is
/// read; meanwhile the peer's window, or ours, closes.
pub(crate) struct Conversation {
    endpoint: Rc<Endpoint>,
    socket: Token,
    session: SessionId,
    peer: SocketAddr,
}

impl Conversation {
    pub(super) const fn new(
        endpoint: Rc<Endpoint>,
        socket: Token,
        session: SessionId,
        peer: SocketAddr,
    ) -> Self {
        Self { endpoint, socket, session, peer }
    }

    pub(crate) const fn socket(&self) -> Token {
        self.socket
    }

    pub(crate) const fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Takes as many bytes as there is room for, and says how many; they leave at the end of the tick.
    pub(crate) fn write(&self, core: &Core, slices: &[IoSlice<'_>]) -> usize {
        let taken = self.endpoint.write(self.session, slices);
        // One that has no room is tried again at each flush: asking for another would keep the worker from sleeping.
        if taken > 0 {
            core.udp.request_flush(self.socket);
        }
        taken
    }

    #[inline]
    pub(crate) fn is_readable(&self) -> bool {
        self.endpoint.sessions.borrow().peek(self.session).is_some_and(|kcp| kcp.is_readable())
    }

    /// Segments that the peer has not acknowledged.
    pub(crate) fn unacknowledged(&self) -> usize {
        self.endpoint.sessions.borrow().peek(self.session).map_or(0, |kcp| kcp.waiting_send())
    }

    pub(crate) fn is_at_end(&self) -> bool {
        self.endpoint.sessions.borrow().peek(self.session).is_some_and(|kcp| kcp.is_at_end())
    }

    pub(crate) fn read(&self, core: &Core) -> Option<Bytes> {
        let piece = self.endpoint.read(self.session)?;
        // The peer is told that its window has opened.
        core.udp.request_flush(self.socket);
        Some(piece)
    }

    /// Ends this side behind what was written. True if the conversation is over already.
    pub(crate) fn finish(&self, core: &Core) -> bool {
        core.udp.request_flush(self.socket);
        let mut sessions = self.endpoint.sessions.borrow_mut();
        let kcp = sessions.session(self.session);
        kcp.map(|kcp| kcp.close(core.timers.now_ms())).is_none()
    }

    pub(crate) fn taken_at(&self) -> Option<u64> {
        self.endpoint.sessions.borrow().peek(self.session)?.acknowledged_at()
    }

    pub(crate) fn is_delivered(&self) -> bool {
        self.endpoint.sessions.borrow().peek(self.session).is_some_and(Kcp::is_delivered)
    }

    pub(crate) fn release(&self, core: &Core) {
        self.endpoint.forget(self.session);
        if let Some(kcp) = self.endpoint.sessions.borrow_mut().session(self.session) {
            // The peer is told, if it is not over already.
            kcp.abort();
        }
        // As long as something waits to be read, the conversation keeps its place.
        while self.endpoint.read(self.session).is_some() {}
        core.udp.request_flush(self.socket);
    }
}
