//! Whose turn it is to be decoded, and who waits for one.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use super::quota::Quota;
use crate::conn::{Conn, ConnId, PauseSet};

pub(crate) struct Turns {
    /// Of the connection that is being called.
    pub(crate) quota: Quota,
    /// Connections that wait for their turn.
    pub(super) waiting: RefCell<VecDeque<ConnId>>,
    /// Connections whose input began to wait in this tick.
    pub(super) unsettled: RefCell<Vec<ConnId>>,
    /// The connection that is being called has handed back what it did not decode.
    pub(super) has_deferred: Cell<bool>,
    /// What it is called with lies in no receive buffer.
    pub(super) serves_owned: Cell<bool>,
}

impl Turns {
    pub(super) fn new() -> Self {
        Self {
            quota: Quota::new(),
            waiting: RefCell::default(),
            unsettled: RefCell::default(),
            has_deferred: Cell::new(false),
            serves_owned: Cell::new(false),
        }
    }

    pub(super) fn has_work(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    /// Has a connection with input wait for its turn, if nothing else holds it.
    pub(super) fn list(&self, conn: &mut Conn) {
        if conn.pauses.is_empty() {
            conn.pauses = PauseSet::QUOTA;
            self.waiting.borrow_mut().push_back(conn.id);
        }
    }
}
