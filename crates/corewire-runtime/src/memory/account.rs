//! What one connection holds.

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use super::holders::{Holders, Place};
use super::{Budget, MemoryKind};
use crate::conn::ConnId;

/// What is charged to one connection, by kind: to the budget of its worker, and to that of its server if that has a limit
/// of its own.
#[derive(Debug)]
pub(crate) struct Account {
    id: ConnId,
    of_worker: Share,
    of_server: Option<Share>,
    kinds: [Cell<usize>; MemoryKind::COUNT],
    standing: Cell<Standing>,
}

/// One budget that it is charged to, and its place among those who hold something of it.
#[derive(Debug)]
struct Share {
    budget: Rc<Budget>,
    place: Cell<Option<Place>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Open,
    /// Its connection is gone: closing it would give nothing back.
    Gone,
}

impl Share {
    fn new(budget: Rc<Budget>) -> Self {
        Self { budget, place: Cell::new(None) }
    }

    fn change(&self, kind: MemoryKind, before: usize, bytes: usize) {
        if bytes > before {
            self.budget.charge(kind, bytes - before);
        } else {
            self.budget.release(kind, before - bytes);
        }
    }

    fn with_place(&self, change: impl FnOnce(&mut Holders<ConnId>, &mut Option<Place>)) {
        let mut place = self.place.get();
        change(&mut self.budget.holders(), &mut place);
        self.place.set(place);
    }
}

impl Account {
    pub(crate) fn new(id: ConnId, of_worker: Rc<Budget>, of_server: Option<Rc<Budget>>) -> Rc<Self> {
        Rc::new(Self {
            id,
            of_worker: Share::new(of_worker),
            of_server: of_server.map(Share::new),
            kinds: std::array::from_fn(|_| Cell::new(0)),
            standing: Cell::new(Standing::Open),
        })
    }

    /// Of a connection that is gone.
    pub(crate) fn gone(id: ConnId, of_worker: Rc<Budget>) -> Rc<Self> {
        let account = Self::new(id, of_worker, None);
        account.standing.set(Standing::Gone);
        account
    }

    /// Bytes charged.
    fn held(&self) -> usize {
        self.kinds.iter().map(Cell::get).sum()
    }

    fn shares(&self) -> impl Iterator<Item = &Share> {
        std::iter::once(&self.of_worker).chain(&self.of_server)
    }

    #[inline]
    fn set(&self, kind: MemoryKind, before: usize, bytes: usize) {
        if bytes != before {
            self.of_worker.change(kind, before, bytes);
            self.note(kind, before, bytes);
        }
    }

    /// The send queue holds so much. The worker counts its queues by itself, all together.
    pub(crate) fn set_send_queue(&self, bytes: usize) {
        let before = self.kinds[MemoryKind::SendQueue as usize].get();
        if bytes != before {
            self.note(MemoryKind::SendQueue, before, bytes);
        }
    }

    fn note(&self, kind: MemoryKind, before: usize, bytes: usize) {
        let of_kind = &self.kinds[kind as usize];
        of_kind.set(of_kind.get() - before + bytes);
        if let Some(share) = &self.of_server {
            share.change(kind, before, bytes);
        }
        if self.standing.get() == Standing::Open {
            let held = self.held();
            self.shares()
                .for_each(|share| share.with_place(|holders, place| holders.set(place, self.id, held)));
        }
    }

    /// Its connection is gone; what is still charged is counted, and nobody makes room for it.
    pub(crate) fn close(&self) {
        self.set_send_queue(0);
        self.standing.set(Standing::Gone);
        self.shares().for_each(|share| share.with_place(|holders, place| holders.remove(place)));
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
        let account = Account::new(ConnId::of_test(0), budget.clone(), None);
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
        assert_eq!(budget.holders().held(), 0);
    }

    #[test]
    fn a_send_queue_is_charged_to_the_server_and_listed_by_both() {
        let budgets = [(); 2].map(|()| Rc::new(Budget::new(SharedBudget::new(1 << 20, 1))));
        let [of_worker, of_server] = &budgets;
        let account = Account::new(ConnId::of_test(0), of_worker.clone(), Some(of_server.clone()));
        account.set_send_queue(1000);
        let inbox = Charge::new(account.clone(), MemoryKind::Inbox, 50);
        assert_eq!((of_worker.held(), of_server.held()), (50, 1050), "the worker counts its queues itself");
        assert_eq!(budgets.each_ref().map(|budget| budget.holders().held()), [1050, 1050]);
        account.close();
        assert_eq!((of_worker.held(), of_server.held()), (50, 50), "the charge lives");
        assert_eq!(budgets.each_ref().map(|budget| budget.holders().held()), [0, 0]);
        drop(inbox);
        assert_eq!((of_worker.held(), of_server.held()), (0, 0));
    }
}
