//! A channel on its worker: its connections, and who waits for one.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use corewire_runtime::{CloseReason, Sleep, WorkerHandle, sleep_until};
use slab::Slab;

use super::connect;
use super::connection::ClientConnection;
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
    seats: RefCell<Vec<Seat>>,
    /// The last connection of each seat.
    connections: RefCell<Vec<Weak<ClientConnection>>>,
    next: Cell<usize>,
    waiting: RefCell<Wakers>,
    /// Timers of the calls that wait to begin.
    sleeps: RefCell<Slab<Sleep>>,
    is_closed: Cell<bool>,
    /// Thousandths of tokens for retries.
    pub(super) budget: Cell<u64>,
    weak: Weak<Self>,
}

/// A place in the pool.
pub(super) enum Seat {
    Empty,
    Connecting,
    /// A connect failed, and the next one is not due.
    Waiting(Status),
    Up(Rc<Link>),
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
        let seats = settings.pool;
        Rc::new_cyclic(|weak| Self::with(settings, home, group, seats, weak))
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
        let seats = settings.pool;
        Rc::new_cyclic(|weak| Self { parent: Some(parent), ..Self::with(settings, home, group, seats, weak) })
    }

    fn with(settings: Settings, home: WorkerHandle, group: Group, seats: usize, weak: &Weak<Self>) -> Self {
        let budget = settings.retry.map_or(0, |retry| u64::from(retry.budget) * 1_000);
        Self {
            settings,
            home,
            group,
            discovered: None,
            parent: None,
            seats: RefCell::new((0..seats).map(|_| Seat::Empty).collect()),
            connections: RefCell::new((0..seats).map(|_| Weak::new()).collect()),
            next: Cell::new(0),
            waiting: RefCell::default(),
            sleeps: RefCell::default(),
            is_closed: Cell::new(false),
            budget: Cell::new(budget),
            weak: weak.clone(),
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.is_closed.get()
    }

    /// A connection for the next call, in turn; `None`: none stands, wait.
    ///
    /// # Errors
    /// The channel is closed; or none stands and the call does not wait for one.
    #[inline]
    pub(super) fn pick(&self, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        let seats = self.seats.borrow();
        let start = self.next.get();
        self.next.set(if start + 1 >= seats.len() { 0 } else { start + 1 });
        if let Seat::Up(link) = &seats[start] {
            return Ok(Some(link.clone()));
        }
        drop(seats);
        self.pick_other(start, is_fail_fast)
    }

    #[cold]
    fn pick_other(&self, start: usize, is_fail_fast: bool) -> Result<Option<Rc<Link>>, Status> {
        if self.is_closed() {
            return Err(Status::closed());
        }
        let is_empty = matches!(self.seats.borrow()[start], Seat::Empty);
        if is_empty {
            self.connect(start);
        }
        let seats = self.seats.borrow();
        let (front, back) = seats.split_at(start);
        let order = || back.iter().chain(front);
        let up = order().find_map(|seat| if let Seat::Up(link) = seat { Some(link.clone()) } else { None });
        if up.is_some() || !is_fail_fast {
            return Ok(up);
        }
        // A connect that goes on may still succeed.
        let failed = order().map(|seat| if let Seat::Waiting(why) = seat { Some(why.clone()) } else { None });
        failed.collect::<Option<Vec<_>>>().and_then(|mut all| all.pop()).map_or(Ok(None), Err)
    }

    /// Begins to connect for a seat.
    pub(super) fn connect(&self, seat: usize) {
        let Some(this) = self.weak.upgrade() else { return };
        self.set_seat(seat, Seat::Connecting);
        drop(corewire_runtime::spawn_local(connect::keep_trying(this, seat)));
    }

    pub(super) fn set_seat(&self, seat: usize, now: Seat) {
        let is_news = !matches!(now, Seat::Connecting);
        let before = std::mem::replace(&mut self.seats.borrow_mut()[seat], now);
        drop(before);
        self.wake_all();
        if is_news && let Some(parent) = self.parent.as_ref().and_then(Weak::upgrade) {
            parent.wake_all();
        }
    }

    pub(super) fn wake_all(&self) {
        let waiting = self.waiting.borrow_mut().take();
        waiting.for_each(Waker::wake);
    }

    /// Somebody waits for a connection.
    pub(super) fn is_wanted(&self) -> bool {
        self.parent.is_some() || !self.waiting.borrow().is_empty()
    }

    /// What stands at a seat now.
    pub(super) fn note(&self, seat: usize, connection: &Rc<ClientConnection>) {
        self.connections.borrow_mut()[seat] = Rc::downgrade(connection);
    }

    /// Begins to connect wherever nothing stands.
    pub(super) fn connect_all(&self) {
        let is_empty = |seat: &usize| matches!(self.seats.borrow()[*seat], Seat::Empty);
        let empty: Vec<usize> = (0..self.settings.pool).filter(is_empty).collect();
        empty.into_iter().for_each(|seat| self.connect(seat));
    }

    /// No new calls; connections close when their last call is over.
    pub(super) fn drain(&self) {
        self.is_closed.set(true);
        let connections = self.connections.borrow().clone();
        connections.iter().filter_map(Weak::upgrade).for_each(|connection| connection.drain());
    }

    /// A connect goes on.
    pub(super) fn is_connecting(&self) -> bool {
        self.seats.borrow().iter().any(|seat| matches!(seat, Seat::Connecting))
    }

    /// A connection stands.
    pub(super) fn has_connections(&self) -> bool {
        self.seats.borrow().iter().any(|seat| matches!(seat, Seat::Up(_)))
    }

    /// The link takes no more calls: another connection is made when one is needed.
    pub(super) fn retire(&self, seat: usize, link: &Rc<Link>) {
        let is_current = matches!(&self.seats.borrow()[seat], Seat::Up(current) if Rc::ptr_eq(current, link));
        if is_current {
            self.set_seat(seat, Seat::Empty);
        }
    }

    pub(super) fn wait(&self, context: &Context<'_>) {
        self.waiting.borrow_mut().add(context.waker());
    }

    /// Ready when the time is over. The place is that of the call's timer, which it gets the first time.
    pub(super) fn poll_deadline(
        &self,
        place: &mut Option<usize>,
        deadline: Instant,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut sleeps = self.sleeps.borrow_mut();
        let place = *place.get_or_insert_with(|| sleeps.insert(sleep_until(deadline)));
        Pin::new(&mut sleeps[place]).poll(context)
    }

    pub(super) fn drop_sleep(&self, place: usize) {
        let sleep = self.sleeps.borrow_mut().try_remove(place);
        drop(sleep);
    }

    /// Ends for good: calls in flight fail, nothing new begins.
    pub(super) fn close(&self) {
        self.is_closed.set(true);
        let seats: Vec<Seat> =
            self.seats.borrow_mut().iter_mut().map(|seat| std::mem::replace(seat, Seat::Empty)).collect();
        for seat in seats {
            if let Seat::Up(link) = seat {
                close_link(&link);
            }
        }
        if let Some(discovered) = &self.discovered {
            discovered.close();
        }
        self.wake_all();
    }
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
