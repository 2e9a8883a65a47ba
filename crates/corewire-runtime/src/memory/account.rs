//! What one connection holds.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::{Budget, MemoryKind};

/// What is charged to one connection, by kind; all of it is charged to the worker's budget too. Not the send queue, which
/// counts what it holds by itself.
#[derive(Debug)]
pub(crate) struct Account {
    budget: Rc<Budget>,
    kinds: [Cell<usize>; MemoryKind::COUNT],
}

impl Account {
    pub(crate) fn new(budget: Rc<Budget>) -> Rc<Self> {
        Rc::new(Self { budget, kinds: std::array::from_fn(|_| Cell::new(0)) })
    }

    /// Bytes charged.
    pub(crate) fn held(&self) -> usize {
        self.kinds.iter().map(Cell::get).sum()
    }

    #[inline]
    fn set(&self, kind: MemoryKind, before: usize, bytes: usize) {
        let of_kind = &self.kinds[kind as usize];
        of_kind.set(of_kind.get() - before + bytes);
        if bytes > before {
            self.budget.charge(kind, bytes - before);
        } else if bytes < before {
            self.budget.release(kind, before - bytes);
        }
    }
}

/// Bytes held for a connection, as long as this value lives. Made by
/// [`Connection::charge`](crate::Connection::charge); to be kept beside what it stands for. It may outlive its
/// connection: the worker goes on counting it.
pub struct Charge {
    account: Rc<Account>,
    kind: MemoryKind,
    bytes: usize,
}

impl Charge {
    pub(crate) fn new(account: Rc<Account>, kind: MemoryKind, bytes: usize) -> Self {
        account.set(kind, 0, bytes);
        Self { account, kind, bytes }
    }

    /// Bytes charged now.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// What is held has grown or shrunk to this many bytes. Cheap: one `Charge` can stand for all that a queue holds.
    #[inline]
    pub fn set(&mut self, bytes: usize) {
        if bytes != self.bytes {
            self.account.set(self.kind, self.bytes, bytes);
            self.bytes = bytes;
        }
    }

    /// Takes `bytes` of this charge (all of them if there are fewer) into one of its own.
    #[must_use]
    pub fn split(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        Self { account: self.account.clone(), kind: self.kind, bytes }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.set(0);
    }
}

impl fmt::Debug for Charge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Charge").field("kind", &self.kind).field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::super::SharedBudget;
    use super::*;

    #[test]
    fn a_charge_is_released_when_it_is_dropped_whoever_is_gone_by_then() {
        let budget = Rc::new(Budget::new(SharedBudget::new(1 << 20, 1)));
        let account = Account::new(budget.clone());
        let mut inbox = Charge::new(account.clone(), MemoryKind::Inbox, 1000);
        let payload = Charge::new(account.clone(), MemoryKind::Payload, 50);
        inbox.set(600);
        let part = inbox.split(200);
        assert_eq!((inbox.bytes(), part.bytes()), (400, 200));
        assert_eq!((account.held(), budget.held()), (650, 650));
        drop(inbox);
        assert_eq!((account.held(), budget.held_of(MemoryKind::Inbox)), (250, 200));
        drop(account);
        drop(part);
        drop(payload);
        assert_eq!(budget.held(), 0);
    }
}
