//! Who waits for room to send, or for something to receive.

use std::task::Waker;

use corewire_driver::Token;
use slab::Slab;

use super::table::ConnId;
use crate::worker::{Core, WorkerId};

/// The wakers of those who wait, each under a key that its [`Waiter`] holds. Costs nothing until somebody waits.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    waiting: Option<Box<Waiting>>,
}

#[derive(Debug, Default)]
struct Waiting {
    wakers: Slab<Waker>,
    /// Changes when all are woken: keys of before name nobody any more.
    round: u32,
}

/// A place among the waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct WaiterKey {
    key: u32,
    round: u32,
}

impl Waiters {
    /// Adds a waker, or puts it in the place of the one that the key names.
    pub(crate) fn add(&mut self, key: Option<WaiterKey>, waker: &Waker) -> WaiterKey {
        let Waiting { wakers, round } = &mut **self.waiting.get_or_insert_default();
        if let Some(key) = key.filter(|key| key.round == *round)
            && let Some(known) = wakers.get_mut(key.key as usize)
        {
            known.clone_from(waker);
            return key;
        }
        // There are never as many wakers as there are bytes in 4 GiB.
        WaiterKey { key: wakers.insert(waker.clone()) as u32, round: *round }
    }

    /// All were woken since this key was given.
    pub(crate) fn was_woken(&self, key: WaiterKey) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.round != key.round)
    }

    /// Takes out the waker of one who waits no more.
    pub(crate) fn remove(&mut self, key: WaiterKey) -> Option<Waker> {
        let Waiting { wakers, round } = self.waiting.as_deref_mut()?;
        if key.round != *round {
            return None;
        }
        wakers.try_remove(key.key as usize)
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.as_ref().is_none_or(|waiting| waiting.wakers.is_empty())
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.waiting.as_ref().map_or(0, |waiting| waiting.wakers.len())
    }

    /// Takes all, to be woken when nothing is borrowed.
    pub(crate) fn take_into(&mut self, woken: &mut Vec<Waker>) {
        if let Some(Waiting { wakers, round }) = self.waiting.as_deref_mut() {
            *round = round.wrapping_add(1);
            woken.extend(wakers.drain());
        }
    }
}

/// What a future that waits holds: its waker is taken back when this is dropped, so that a future given up
/// leaves nothing behind. One for each future (or for each half of a stream); it may be used again for the next wait.
#[derive(Debug, Default)]
pub struct Waiter {
    place: Option<Place>,
}

#[derive(Debug, Clone, Copy)]
struct Place {
    worker: WorkerId,
    of: WaitsFor,
    key: WaiterKey,
}

/// What it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitsFor {
    /// A connection's send queue.
    Connection(ConnId),
    /// A datagram socket that tasks receive from.
    Datagrams(Token),
    /// The same, to send.
    DatagramRoom(Token),
}

impl Waiter {
    /// Waits for nothing yet.
    pub const fn new() -> Self {
        Self { place: None }
    }

    /// Has the waker woken by `waiters`, which are those of `of`.
    pub(crate) fn wait(&mut self, worker: WorkerId, of: WaitsFor, waiters: &mut Waiters, waker: &Waker) {
        let known = self.place.filter(|place| place.worker == worker && place.of == of);
        let key = waiters.add(known.map(|place| place.key), waker);
        self.place = Some(Place { worker, of, key });
    }
}

impl Drop for Waiter {
    #[inline]
    fn drop(&mut self) {
        if let Some(place) = self.place {
            place.leave();
        }
    }
}

impl Place {
    #[cold]
    fn leave(self) {
        // On another thread nothing can be taken back; it is woken for nothing when there is room.
        let waker = Core::with_current(|core| {
            let core = core.filter(|core| core.id() == self.worker)?;
            core.remove_waiter(self.of, self.key)
        });
        drop(waker);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_who_waits_again_keeps_its_place() {
        let mut waiters = Waiters::default();
        let key = waiters.add(None, Waker::noop());
        for _ in 0..100 {
            assert_eq!(waiters.add(Some(key), Waker::noop()), key);
        }
        assert_eq!(waiters.len(), 1);
        assert!(waiters.remove(key).is_some());
        assert!(waiters.is_empty());
        assert!(waiters.remove(key).is_none());
    }

    #[test]
    fn a_key_of_before_a_wake_takes_nobody_elses_place() {
        let mut waiters = Waiters::default();
        let old = waiters.add(None, Waker::noop());
        let mut woken = Vec::new();
        waiters.take_into(&mut woken);
        assert_eq!((woken.len(), waiters.len()), (1, 0));
        let new = waiters.add(None, Waker::noop());
        assert!(waiters.remove(old).is_none(), "the place is another's by now");
        assert_ne!(waiters.add(Some(old), Waker::noop()), new);
        assert_eq!(waiters.len(), 2);
    }
}
