//! A channel on its worker.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Deref;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Instant;

use corewire_runtime::{Sleep, WorkerHandle, sleep_until};
use slab::Slab;

use super::discovered::Discovered;
use super::pool::Pool;
use super::settings::Settings;
use crate::link::Group;

/// Its connections, and what its calls share.
pub(super) struct LocalChannel {
    pool: Rc<Pool>,
    /// What it follows, if its connections are not its own.
    pub(super) discovered: Option<Rc<Discovered>>,
    /// Timers of the calls that wait to begin.
    sleeps: RefCell<Slab<Sleep>>,
    /// When the worker's clock was 0; known once a call has begun.
    pub(super) epoch: OnceCell<Instant>,
    /// Thousandths of tokens for retries and hedges.
    budget: Cell<u64>,
}

impl Deref for LocalChannel {
    type Target = Pool;

    #[inline]
    fn deref(&self) -> &Pool {
        &self.pool
    }
}

/// Keys are counted up: they are their own hash.
#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }
}

type Channels = HashMap<Group, Rc<LocalChannel>, BuildHasherDefault<Identity>>;

thread_local! {
    static CHANNELS: RefCell<Channels> = RefCell::default();
}

/// A channel of this worker.
#[inline]
pub(super) fn find(key: Group) -> Option<Rc<LocalChannel>> {
    CHANNELS.with_borrow(|channels| channels.get(&key).cloned())
}

pub(super) fn add(key: Group, channel: Rc<LocalChannel>) {
    CHANNELS.with_borrow_mut(|channels| channels.insert(key, channel));
}

/// Closes a channel and forgets it.
pub(super) fn remove(key: Group) {
    let channel = CHANNELS.with_borrow_mut(|channels| channels.remove(&key));
    if let Some(channel) = channel {
        channel.close();
    }
}

impl LocalChannel {
    pub(super) fn new(settings: Settings, home: WorkerHandle, group: Group) -> Rc<Self> {
        Self::with(Pool::new(settings, home, group), None)
    }

    /// A channel whose connections are those of the endpoints that it follows.
    pub(super) fn following(pool: Rc<Pool>, discovered: Rc<Discovered>) -> Rc<Self> {
        Self::with(pool, Some(discovered))
    }

    fn with(pool: Rc<Pool>, discovered: Option<Rc<Discovered>>) -> Rc<Self> {
        let budget = Cell::new(pool.settings.budget_max());
        Rc::new(Self { pool, discovered, sleeps: RefCell::default(), epoch: OnceCell::new(), budget })
    }

    /// Takes a token for a retry or a hedge, if there is one.
    pub(super) fn take_token(&self) -> bool {
        let left = self.budget.get().checked_sub(1_000);
        left.inspect(|left| self.budget.set(*left)).is_some()
    }

    /// Gives a part of a token back for a success.
    pub(super) fn refill_tokens(&self) {
        let refill = u64::from(self.settings.retry.unwrap_or_default().refill);
        self.budget.set((self.budget.get() + refill).min(self.settings.budget_max()));
    }

    /// Ready when the time is over. The index is that of the call's timer, which it gets the first time.
    pub(super) fn poll_deadline(
        &self,
        index: &mut Option<usize>,
        deadline: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut sleeps = self.sleeps.borrow_mut();
        let index = *index.get_or_insert_with(|| sleeps.insert(sleep_until(deadline)));
        Pin::new(&mut sleeps[index]).poll(context)
    }

    pub(super) fn drop_sleep(&self, index: usize) {
        let sleep = self.sleeps.borrow_mut().try_remove(index);
        drop(sleep);
    }

    /// Ends for good: calls in flight fail, nothing new begins.
    pub(super) fn close(&self) {
        if let Some(discovered) = &self.discovered {
            discovered.close();
        }
        self.pool.close();
    }
}
