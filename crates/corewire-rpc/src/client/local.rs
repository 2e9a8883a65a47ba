//! A channel on its worker: its connections, and who waits for one.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use corewire::client::{ClientConnection, Connector, State};
use corewire_runtime::{CloseReason, Sleep, WorkerHandle, sleep_until};
use slab::Slab;

use super::connect::WeakSlot;
use super::connection::ChannelConnection;
use super::discovered::Discovered;
use super::settings::Settings;
use crate::link::{Group, Link, Wakers};
use crate::status::Status;

pub(super) struct LocalChannel {
    pub(super) settings: Settings,
    pub(super) home: WorkerHandle,
    pub(super) group: Group,
    /// What it follows, if its connections are not its own.
    pub(super) discovered: Option<Rc<Discovered>>,
    /// The channel that it makes connections for, if that is another.
    parent: Option<Weak<Self>>,
    pool: Box<[PoolSlot]>,
    next: Cell<usize>,
    waiting: RefCell<Wakers>,
    /// Timers of the calls that wait to begin.
    sleeps: RefCell<Slab<Sleep>>,
    is_closed: Cell<bool>,
    /// When the worker's clock was 0; known once a call has begun.
    pub(super) epoch: OnceCell<Instant>,
    /// Thousandths of tokens for retries and hedges.
    budget: Cell<u64>,
    weak: Weak<Self>,
}

/// One connection of the pool.
pub(super) struct PoolSlot {
    pub(super) connection: ClientConnection<Rc<Link>>,
    /// The last one that was established.
    last: RefCell<Weak<ChannelConnection>>,
    /// The server that is tried next.
    next_server: Cell<usize>,
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
        let slots = settings.pool;
        Rc::new_cyclic(|weak| Self::with(settings, home, group, slots, weak))
    }

    /// A channel without connections of its own.
    pub(super) fn following(
        settings: Settings,
        home: WorkerHandle,
        group: Group,
        follow: impl FnOnce(&Weak<Self>) -> Rc<Discovered>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|weak| {
            let discovered = Some(follow(weak));
            Self { discovered, ..Self::with(settings, home, group, 0, weak) }
        })
    }

    /// Connections that another channel uses.
    pub(super) fn member(
        settings: Settings,
        home: WorkerHandle,
        group: Group,
        parent: Weak<Self>,
    ) -> Rc<Self> {
        let slots = settings.pool;
        Rc::new_cyclic(|weak| Self { parent: Some(parent), ..Self::with(settings, home, group, slots, weak) })
    }

    fn with(settings: Settings, home: WorkerHandle, group: Group, slots: usize, weak: &Weak<Self>) -> Self {
        let reconnect = settings.net.reconnect_settings();
        let slot = |slot| PoolSlot {
            connection: ClientConnection::new(&reconnect, corewire_driver::entropy::u64()),
            last: RefCell::default(),
            next_server: Cell::new(slot),
        };
        let pool = (0..slots).map(slot).collect();
        let budget = settings.budget_max();
        Self {
            settings,
            home,
            group,
            discovered: None,
            parent: None,
            pool,
            next: Cell::new(0),
            waiting: RefCell::default(),
            sleeps: RefCell::default(),
            is_closed: Cell::new(false),
            epoch: OnceCell::new(),
            budget: Cell::new(budget),
            weak: weak.clone(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    pub(super) fn slot(&self, slot: usize) -> &PoolSlot {
        &self.pool[slot]
    }

    fn owner(&self, slot: usize) -> WeakSlot {
        WeakSlot { channel: self.weak.clone(), slot }
    }

    /// The server to try for a slot, in turn.
    pub(super) fn next_server(&self, slot: usize) -> Connector {
        let next = self.pool[slot].next_server.get();
        self.pool[slot].next_server.set(next.wrapping_add(1));
        self.settings.servers[next % self.settings.servers.len()].clone()
    }

    /// A connection for the next call, in turn; `None`: none is established, wait.
    ///
    /// # Errors
    /// The channel is closed; or none is established and the call does not wait for one.
    #[inline]
    pub(super) fn pick(&self, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        let start = self.next.get();
        self.next.set(if start + 1 >= self.pool.len() { 0 } else { start + 1 });
        if let State::Established(link) = &*self.pool[start].connection.state() {
            return Ok(Some(link.clone()));
        }
        self.pick_other(start, is_fail_fast)
    }

    #[cold]
    fn pick_other(&self, start: usize, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        if self.is_closed() {
            return Err(Status::closed().unprocessed());
        }
        let connection = &self.pool[start].connection;
        // A member is one of many that a balancer looks at: it keeps to its back-off.
        if !self.is_member() || matches!(*connection.state(), State::Idle) {
            connection.want(&self.owner(start));
        }
        let (front, back) = self.pool.split_at(start);
        let established = back.iter().chain(front).find_map(|slot| match &*slot.connection.state() {
            State::Established(link) => Some(link.clone()),
            _ => None,
        });
        let may_connect = |slot: &PoolSlot| !matches!(*slot.connection.state(), State::Closed);
        match established {
            None if !self.pool.iter().any(may_connect) => Err(no_more_attempts()),
            None if is_fail_fast => self.why_not_ready().map_or(Ok(None), Err),
            link => Ok(link),
        }
    }

    /// Why no call can be made; `None`: an attempt is under way that may still succeed.
    pub(super) fn why_not_ready(&self) -> Option<Status> {
        let why = |slot: &PoolSlot| match &*slot.connection.state() {
            State::Backoff(why) => Some(Status::unavailable(why.clone()).unprocessed()),
            State::Closed => Some(no_more_attempts()),
            _ => None,
        };
        self.pool.iter().map(why).collect::<Option<Vec<_>>>()?.pop()
    }

    /// Calls can be made on this link; `false`: none is wanted any more.
    pub(super) fn established(&self, slot: usize, link: &Rc<Link>) -> bool {
        let is_wanted = !self.is_closed() && self.pool[slot].connection.established(link.clone());
        if is_wanted {
            self.wake_all();
        }
        is_wanted
    }

    /// The link takes no more calls.
    pub(super) fn retire(&self, owner: &WeakSlot, link: &Rc<Link>, why: String, has_received: bool) {
        let connection = &self.pool[owner.slot].connection;
        let is_current =
            matches!(&*connection.state(), State::Established(current) if Rc::ptr_eq(current, link));
        if is_current && self.is_closed() {
            connection.close();
        } else if is_current {
            connection.lost(owner, why, has_received);
        }
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

    /// Makes connections for another channel.
    pub(super) const fn is_member(&self) -> bool {
        self.parent.is_some()
    }

    pub(super) fn wake_all(&self) {
        let waiting = self.waiting.borrow_mut().take();
        waiting.for_each(Waker::wake);
        if let Some(parent) = self.parent.as_ref().and_then(Weak::upgrade) {
            parent.wake_all();
        }
    }

    /// Somebody waits for a connection.
    pub(super) fn is_wanted(&self) -> bool {
        let parent = self.parent.as_ref().and_then(Weak::upgrade);
        !self.waiting.borrow().is_empty() || parent.is_some_and(|parent| parent.is_wanted())
    }

    /// The connection of a slot.
    pub(super) fn note(&self, slot: usize, connection: &Rc<ChannelConnection>) {
        self.pool[slot].last.replace(Rc::downgrade(connection));
    }

    /// Begins to connect wherever there is no connection.
    pub(super) fn connect_all(&self) {
        (0..self.pool.len()).for_each(|slot| self.pool[slot].connection.want(&self.owner(slot)));
    }

    /// No new calls; connections close when their last call is over.
    pub(super) fn drain(&self) {
        self.is_closed.set(true);
        for slot in &self.pool {
            if !matches!(*slot.connection.state(), State::Established(_)) {
                slot.connection.close();
            }
        }
        let last = self.pool.iter().filter_map(|slot| slot.last.borrow().upgrade());
        last.for_each(|connection| connection.drain());
    }

    /// An attempt to connect is under way.
    pub(super) fn is_connecting(&self) -> bool {
        self.pool.iter().any(|slot| matches!(*slot.connection.state(), State::Connecting))
    }

    /// A connection is established.
    pub(super) fn has_connections(&self) -> bool {
        self.pool.iter().any(|slot| matches!(*slot.connection.state(), State::Established(_)))
    }

    pub(super) fn wait(&self, context: &Context<'_>) {
        self.waiting.borrow_mut().add(context.waker());
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

    /// A connection of its own that takes calls.
    #[cold]
    pub(super) fn link(&self, id: usize) -> Option<Rc<Link>> {
        self.pool.iter().find_map(|slot| match &*slot.connection.state() {
            State::Established(link) if link.id == id => Some(link.clone()),
            _ => None,
        })
    }

    /// Ends for good: calls in flight fail, nothing new begins.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        for slot in &self.pool {
            if let Some(link) = slot.connection.close() {
                close_link(&link);
            }
        }
        if let Some(discovered) = &self.discovered {
            discovered.close();
        }
        self.wake_all();
    }
}

fn no_more_attempts() -> Status {
    let why = "as many attempts to connect have failed in a row as `Reconnect::attempts_max` allows: make another channel";
    Status::unavailable(why).unprocessed()
}

/// Says goodbye and closes; calls in flight fail.
pub(super) fn close_link(link: &Rc<Link>) {
    use corewire_proto::rpc::Code;
    link.with(|state| state.machine.go_away(Code::OK, "", &mut state.out));
    if let Some(connection) = link.connection() {
        link.flush();
        connection.close_with(CloseReason::Local);
    }
}
