//! Connections that have something to send, and those who wait for them to.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::task::Waker;

use crate::conn::{Backlog, BufferPool, Conn, ConnId, Flush};

/// What is to be sent, told or woken in this tick.
pub(crate) struct Senders {
    pub(crate) pool: RefCell<BufferPool>,
    /// Connections to flush at the end of the tick.
    pub(super) dirty: RefCell<Vec<ConnId>>,
    /// Connections whose queue has fallen to its low-water mark.
    pub(super) drained: RefCell<Vec<ConnId>>,
    /// Wakers of those who have waited, to be woken when nothing is borrowed.
    pub(crate) woken: RefCell<Vec<Waker>>,
    /// What wants to be called before the next flush.
    pub(super) before_flush: RefCell<VecDeque<fn() -> bool>>,
}

impl Senders {
    pub(super) fn new() -> Self {
        Self {
            pool: RefCell::new(BufferPool::new()),
            dirty: RefCell::default(),
            drained: RefCell::default(),
            woken: RefCell::default(),
            before_flush: RefCell::default(),
        }
    }

    /// Something is left to do in the next tick.
    pub(super) fn has_work(&self) -> bool {
        !self.dirty.borrow().is_empty()
            || !self.before_flush.borrow().is_empty()
            || !self.drained.borrow().is_empty()
    }

    /// Has the queue of a connection flushed at the end of the tick.
    pub(super) fn mark_dirty(&self, conn: &mut Conn) {
        if conn.flush == Flush::Idle && !conn.state.is_connecting() && !conn.out.is_empty() {
            conn.flush = Flush::Listed;
            self.dirty.borrow_mut().push(conn.id);
        }
    }

    /// The queue of a connection has come down from its high-water mark.
    pub(super) fn note_drained(&self, conn: &mut Conn) {
        conn.backlog = Backlog::Drained;
        self.drained.borrow_mut().push(conn.id);
    }
}
