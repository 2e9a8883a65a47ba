//! The connections of a channel on its worker, and who waits for one.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::task::{Context, Waker};

use corewire::ConnectError;
use corewire::client::{ClientConnection, ConnectionOwner, Connector, Keep, State};
use corewire_runtime::{WorkerHandle, WorkerId};

use super::connection::{ChannelConnection, Endpoint, Holder, PoolSlot, close_link};
use super::settings::Settings;
use crate::link::{Group, Link, Wakers};
use crate::status::Status;

pub(super) struct Pool {
    pub(super) settings: Settings,
    pub(super) home: WorkerHandle,
    pub(super) group: Group,
    /// The pool of the channel that it makes connections for, if that balances.
    parent: Option<Weak<Self>>,
    slots: Box<[Slot]>,
    next: Cell<usize>,
    waiting: RefCell<Wakers>,
    is_closed: Cell<bool>,
    weak: Weak<Self>,
}

/// One connection of the pool.
struct Slot {
    connection: ClientConnection<Rc<Link>>,
    /// The last one that was established.
    last: RefCell<Weak<ChannelConnection>>,
    /// The server that is tried next.
    next_server: Cell<usize>,
    /// Why the last attempt failed, while another is under way.
    failure: RefCell<Option<String>>,
}

impl Pool {
    /// As many connections as the settings say.
    pub(super) fn new(settings: Settings, home: WorkerHandle, group: Group) -> Rc<Self> {
        let slots = settings.pool;
        Self::with(settings, home, group, slots, None)
    }

    /// None of its own: who balances waits here for those of others.
    pub(super) fn empty(settings: Settings, home: WorkerHandle, group: Group) -> Rc<Self> {
        Self::with(settings, home, group, 0, None)
    }

    /// Connections that another channel uses.
    pub(super) fn member(settings: Settings, parent: &Self) -> Rc<Self> {
        let (home, group, slots) = (parent.home.clone(), parent.group, settings.pool);
        Self::with(settings, home, group, slots, Some(parent.weak.clone()))
    }

    fn with(
        settings: Settings,
        home: WorkerHandle,
        group: Group,
        slots: usize,
        parent: Option<Weak<Self>>,
    ) -> Rc<Self> {
        let reconnect = settings.net.reconnect_settings();
        let slot = |slot| Slot {
            connection: ClientConnection::new(&reconnect, corewire_driver::entropy::u64()),
            last: RefCell::default(),
            next_server: Cell::new(slot),
            failure: RefCell::default(),
        };
        let slots = (0..slots).map(slot).collect();
        Rc::new_cyclic(|weak| Self {
            settings,
            home,
            group,
            parent,
            slots,
            next: Cell::new(0),
            waiting: RefCell::default(),
            is_closed: Cell::new(false),
            weak: weak.clone(),
        })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    fn owner(&self, slot: usize) -> WeakSlot {
        WeakSlot { pool: self.weak.clone(), slot }
    }

    /// The server to try for a slot, in turn.
    fn next_server(&self, slot: usize) -> Connector {
        let next = self.slots[slot].next_server.get();
        self.slots[slot].next_server.set(next.wrapping_add(1));
        self.settings.servers[next % self.settings.servers.len()].clone()
    }

    /// A connection for the next call, in turn; `None`: none is established, wait.
    ///
    /// # Errors
    /// The channel is closed, or may not connect any more; or none is established and the call does not wait for one.
    #[inline]
    pub(super) fn pick(&self, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        let start = self.next.get();
        self.next.set(if start + 1 >= self.slots.len() { 0 } else { start + 1 });
        if let State::Established(link) = &*self.slots[start].connection.state() {
            return Ok(Some(link.clone()));
        }
        self.pick_other(start, is_fail_fast)
    }

    #[cold]
    fn pick_other(&self, start: usize, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        if self.is_closed() {
            return Err(Status::closed().unprocessed());
        }
        let connection = &self.slots[start].connection;
        // A member is one of many that a balancer looks at: it keeps to its back-off.
        if !self.is_member() || matches!(*connection.state(), State::Idle) {
            connection.want(&self.owner(start));
        }
        let (front, back) = self.slots.split_at(start);
        let established = back.iter().chain(front).find_map(|slot| match &*slot.connection.state() {
            State::Established(link) => Some(link.clone()),
            _ => None,
        });
        let may_connect = |slot: &Slot| !matches!(*slot.connection.state(), State::Closed);
        match established {
            None if !self.slots.iter().any(may_connect) => Err(no_more_attempts()),
            None if is_fail_fast => self.why_not_ready().map_or(Ok(None), Err),
            link => Ok(link),
        }
    }

    /// Why no call can be made; `None`: an attempt is under way that may still succeed.
    pub(super) fn why_not_ready(&self) -> Option<Status> {
        let why = |slot: &Slot| match &*slot.connection.state() {
            State::Backoff(why) => Some(Status::unavailable(why.clone()).unprocessed()),
            State::Closed => Some(no_more_attempts()),
            _ => None,
        };
        self.slots.iter().map(why).collect::<Option<Vec<_>>>()?.pop()
    }

    /// Why no call could be made until now, if anything failed.
    pub(super) fn last_failure(&self) -> Option<Status> {
        let before = || self.slots.iter().find_map(|slot| slot.failure.borrow().clone());
        self.why_not_ready().or_else(|| before().map(|why| Status::unavailable(why).unprocessed()))
    }

    /// Makes connections for another channel.
    const fn is_member(&self) -> bool {
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
    fn is_wanted(&self) -> bool {
        let parent = self.parent.as_ref().and_then(Weak::upgrade);
        !self.waiting.borrow().is_empty() || parent.is_some_and(|parent| parent.is_wanted())
    }

    /// Begins to connect wherever there is no connection.
    pub(super) fn connect_all(&self) {
        (0..self.slots.len()).for_each(|slot| self.slots[slot].connection.want(&self.owner(slot)));
    }

    /// No new calls; connections close when their last call is over.
    pub(super) fn drain(&self) {
        self.is_closed.set(true);
        for slot in &self.slots {
            if !matches!(*slot.connection.state(), State::Established(_)) {
                slot.connection.close();
            }
        }
        let last = self.slots.iter().filter_map(|slot| slot.last.borrow().upgrade());
        last.for_each(|connection| connection.drain());
    }

    /// An attempt to connect is under way.
    pub(super) fn is_connecting(&self) -> bool {
        self.slots.iter().any(|slot| matches!(*slot.connection.state(), State::Connecting))
    }

    /// A connection is established.
    pub(super) fn has_connections(&self) -> bool {
        self.slots.iter().any(|slot| matches!(*slot.connection.state(), State::Established(_)))
    }

    pub(super) fn wait(&self, context: &Context<'_>) {
        self.waiting.borrow_mut().add(context.waker());
    }

    /// A connection of its own that takes calls.
    #[cold]
    pub(super) fn link(&self, id: usize) -> Option<Rc<Link>> {
        self.slots.iter().find_map(|slot| match &*slot.connection.state() {
            State::Established(link) if link.id == id => Some(link.clone()),
            _ => None,
        })
    }

    /// Ends for good: calls in flight fail, nothing new begins.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        for slot in &self.slots {
            if let Some(link) = slot.connection.close() {
                close_link(&link);
            }
        }
        self.wake_all();
    }
}

impl Holder for Pool {
    fn settings(&self) -> &Settings {
        &self.settings
    }

    fn home(&self) -> (WorkerId, Group) {
        (self.home.id(), self.group)
    }

    fn is_open(&self) -> bool {
        !self.is_closed()
    }

    fn opened(&self, slot: usize, connection: &Rc<ChannelConnection>) {
        self.slots[slot].last.replace(Rc::downgrade(connection));
    }

    fn established(&self, slot: usize, link: &Rc<Link>) -> bool {
        let is_wanted = !self.is_closed() && self.slots[slot].connection.established(link.clone());
        if is_wanted {
            self.slots[slot].failure.take();
            self.wake_all();
        }
        is_wanted
    }

    fn retire(&self, slot: usize, link: &Rc<Link>, why: String, has_received: bool) {
        let connection = &self.slots[slot].connection;
        let is_current =
            matches!(&*connection.state(), State::Established(current) if Rc::ptr_eq(current, link));
        if is_current && self.is_closed() {
            connection.close();
        } else if is_current {
            connection.lost(&self.owner(slot), why, has_received);
        }
    }
}

/// A slot, as what keeps its connection knows it: one attempt, and when there is another.
#[derive(Clone)]
struct WeakSlot {
    pool: Weak<Pool>,
    slot: usize,
}

impl ConnectionOwner for WeakSlot {
    type Established = Rc<Link>;

    fn with<R>(&self, look: impl FnOnce(&ClientConnection<Self::Established>) -> R) -> Option<R> {
        self.pool.upgrade().map(|pool| look(&pool.slots[self.slot].connection))
    }

    async fn attempt(&self) -> Result<(), ConnectError> {
        let pool = self.pool.upgrade().ok_or(ConnectError::Stopped)?;
        let connector = pool.next_server(self.slot);
        let slot = PoolSlot { holder: self.pool.clone(), slot: self.slot };
        connector.connect(|attempt| Endpoint::new(slot.clone(), attempt)).await
    }

    fn is_wanted(&self) -> bool {
        self.pool.upgrade().is_some_and(|pool| pool.is_wanted())
    }

    fn keep(&self) -> Keep {
        let is_member = self.pool.upgrade().is_some_and(|pool| pool.is_member());
        if is_member { Keep::OnceWanted } else { Keep::WhileWanted }
    }

    fn changed(&self) {
        if let Some(pool) = self.pool.upgrade() {
            let slot = &pool.slots[self.slot];
            if let State::Backoff(why) = &*slot.connection.state() {
                slot.failure.replace(Some(why.clone()));
            }
            pool.wake_all();
        }
    }
}

fn no_more_attempts() -> Status {
    let why = "as many attempts to connect have failed in a row as `Reconnect::attempts_max` allows: make another channel";
    Status::unavailable(why).unprocessed()
}
