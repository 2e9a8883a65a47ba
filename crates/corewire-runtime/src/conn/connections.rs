//! All connections of a worker.

use std::cell::{Cell, RefCell};

use corewire_driver::Token;

use super::looks::Looks;
use super::table::{Conn, ConnId, ConnTable};

#[derive(Default)]
pub(crate) struct Connections {
    pub(crate) table: RefCell<ConnTable>,
    /// When their deadlines are looked at.
    pub(crate) looks: RefCell<Looks>,
    /// Those that are over and were not told yet.
    pub(crate) closed: RefCell<Vec<ConnId>>,
    /// The one whose end is told now, and the bytes that it did not send.
    pub(crate) ending: Cell<Option<(ConnId, usize)>>,
}

impl Connections {
    pub(crate) fn with<R>(&self, id: ConnId, look: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.table.borrow_mut().get_mut(id).map(look)
    }

    /// As [`with`](Self::with), for the connection that has this socket for its own.
    pub(crate) fn with_socket<R>(&self, socket: Token, look: impl FnOnce(&mut Conn) -> R) -> Option<R> {
        self.table.borrow_mut().of_socket(socket).map(look)
    }

    /// It has neither ended nor been told to.
    #[inline]
    pub(crate) fn is_active(&self, id: ConnId) -> bool {
        self.with(id, |conn| conn.state.is_active()).unwrap_or(false)
    }

    /// The socket that carries it.
    pub(crate) fn socket_of(&self, id: ConnId) -> Option<Token> {
        self.with(id, |conn| conn.transport.socket())
    }

    /// Bytes that it did not send, while its end is told.
    pub(crate) fn unsent_at_end(&self, id: ConnId) -> usize {
        self.ending.get().filter(|(ending, _)| *ending == id).map_or(0, |(_, unsent)| unsent)
    }
}
