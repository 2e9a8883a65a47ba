//! What a worker has to run: its tasks, and what other threads have sent.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use async_task::Runnable;
use slab::Slab;

use super::Command;
use crate::task::{TaskEntry, TaskKey};

#[derive(Default)]
pub(crate) struct Tasks {
    /// What other threads have sent and was not done yet.
    pub(super) commands: RefCell<VecDeque<Command>>,
    pub(crate) ready: RefCell<VecDeque<Runnable<TaskKey>>>,
    /// The tasks that live, so that shutdown can drop them here, where they belong.
    pub(crate) live: RefCell<Slab<TaskEntry>>,
    /// Tasks that were aborted and whose futures may not be dropped yet.
    pub(crate) aborted: Cell<usize>,
    /// See [`Connection::task_round`](crate::Connection::task_round).
    pub(crate) round: Cell<u64>,
}

impl Tasks {
    pub(super) fn has_work(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.commands.borrow().is_empty()
    }

    pub(super) fn begin_round(&self) {
        self.round.set(self.round.get() + 1);
    }
}
