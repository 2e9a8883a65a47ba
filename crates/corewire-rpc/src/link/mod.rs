//! One connection as calls see it, the same for clients and servers: the state machine, what waits to be taken, who
//! waits for what, and deadlines.

mod held;
mod ops;
mod out;
mod receive;
mod registry;
mod replies;
mod retained;
mod slot;
mod wakers;

use std::cell::{OnceCell, RefCell};
use std::rc::Weak;
use std::task::Waker;
use std::time::Duration;

use corewire_proto::rpc::{CallKey, Connection as Machine};
use corewire_runtime::Connection;
use slab::Slab;

use self::held::Held;
pub(crate) use self::out::Kept;
use self::out::Out;
pub(crate) use self::registry::{Group, Home, gauges, with_link};
pub(crate) use self::replies::{Part, Replies, Reply};
pub(crate) use self::retained::Retained;
use self::retained::Retainer;
use self::slot::Entry;
use self::slot::More;
pub(crate) use self::slot::Slot;
pub(crate) use self::wakers::Wakers;
use crate::gauges::Gauges;
use crate::status::Status;

/// A connection on its worker.
pub(crate) struct Link {
    /// Names it among the links of its worker.
    pub(crate) id: usize,
    pub(crate) home: Home,
    /// The server or channel that it belongs to.
    pub(crate) group: Group,
    state: RefCell<State>,
    owner: OnceCell<Weak<dyn Owner>>,
}

/// Who feeds a link.
pub(crate) trait Owner {
    /// There is room again for what was not read.
    fn go_on(&self);

    /// Bytes of a frame that has not arrived whole, or that are not read yet.
    fn unread(&self) -> usize;
}

pub(crate) struct State {
    id: usize,
    pub(crate) machine: Machine,
    pub(crate) out: Out,
    pub(crate) slots: Slab<Slot>,
    /// What handlers send with their responses.
    pub(crate) replies: Replies,
    /// By the machine's index: the call there and its slot.
    by_index: Vec<Option<(CallKey, u32)>>,
    /// When the timer of the connection fires; `u64::MAX`: it is not set.
    pub(crate) timer_at: u64,
    /// What is written is handed over at the end of the worker's turn.
    will_flush: bool,
    /// Frames are being handled.
    is_receiving: bool,
    /// Reading was stopped and must be taken up again.
    is_stopped: bool,
    /// Stop reading while the peer does not read.
    stops_on_backlog: bool,
    /// Why there is no connection any more.
    pub(crate) dead: Option<Status>,
    /// Who waits until the send queue has room.
    waiting: Wakers,
    /// Bytes arrived since this was last set to false.
    pub(crate) has_heard: bool,
    /// Who was woken last while frames are handled. Tasks run after that: waking again would tell them nothing.
    woken: Option<Waker>,
    /// Memory of calls that are done with, for those to come.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<More>>,
    retainer: Retainer,
    pub(crate) held: Held,
}

/// Parts of calls kept for use again by one connection.
const SPARE_MAX: usize = 64;

impl Link {
    /// Looks at or changes the state; what is written goes to the connection at the end of the worker's turn.
    #[inline]
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut State) -> R) -> R {
        let state = &mut *self.state.borrow_mut();
        let result = act(state);
        state.settle();
        result
    }

    pub(crate) fn set_owner(&self, owner: Weak<dyn Owner>) {
        let _ = self.owner.set(owner);
    }

    /// The connection stands.
    pub(crate) fn open(&self, connection: &Connection) {
        self.with(|state| {
            state.out.open(connection);
            let State { machine, out, .. } = state;
            machine.start(out);
        });
    }

    pub(crate) fn connection(&self) -> Option<Connection> {
        self.state.borrow().out.connection().cloned()
    }

    /// Hands over what was written, since the connection is about to be closed or the turn ends.
    pub(crate) fn flush(&self) {
        let state = &mut *self.state.borrow_mut();
        state.will_flush = false;
        state.out.flush();
    }

    /// Reads on, if reading was stopped and need not be any more.
    pub(crate) fn resume(&self) {
        let is_due = {
            let state = self.state.borrow();
            state.is_stopped && !state.must_stop() && state.dead.is_none()
        };
        if is_due && let Some(owner) = self.owner.get().cloned() {
            // Not here: handlers would run inside whoever made room.
            drop(corewire_runtime::spawn_local(async move {
                if let Some(owner) = owner.upgrade() {
                    owner.go_on();
                }
            }));
        }
    }

    /// What it holds now.
    pub(crate) fn gauges(&self) -> Gauges {
        let unread = self.owner.get().and_then(Weak::upgrade).map_or(0, |owner| owner.unread());
        let state = self.state.borrow();
        Gauges {
            connections: usize::from(state.dead.is_none() && state.out.connection().is_some()),
            calls: state.machine.calls_in_flight(),
            streams: state.machine.streams_open(),
            held: state.slots.len(),
            buffered_bytes: state.held.bytes(),
            unread_bytes: unread,
            unsent_bytes: state.out.queued(),
        }
    }

    /// Forgets a link whose connection is gone and that nobody holds a call of.
    fn drop_if_done(&self) {
        let is_done = {
            let state = self.state.borrow();
            state.dead.is_some() && state.slots.is_empty()
        };
        if is_done {
            registry::remove(self.id);
        }
    }
}

impl State {
    fn new(id: usize, machine: Machine, high_water: usize, stops_on_backlog: bool) -> Self {
        let held = Held::new(machine.settings().max_buffered);
        Self {
            id,
            machine,
            out: Out::new(high_water),
            slots: Slab::new(),
            replies: Replies::default(),
            by_index: Vec::new(),
            timer_at: u64::MAX,
            will_flush: false,
            is_receiving: false,
            is_stopped: false,
            stops_on_backlog,
            dead: None,
            waiting: Wakers::default(),
            has_heard: false,
            woken: None,
            spare: Vec::new(),
            retainer: Retainer::default(),
            held,
        }
    }

    #[inline]
    fn settle(&mut self) {
        self.held.settle(self.out.connection());
        if !self.will_flush && !self.is_receiving && self.out.has_gathered() {
            self.will_flush = registry::flush_later(self.id);
        }
    }

    #[inline]
    pub(crate) fn now_ms(&self) -> u64 {
        self.out.connection().map_or(0, Connection::now_ms)
    }

    #[inline]
    fn must_stop(&self) -> bool {
        self.held.is_over() || self.machine.is_receive_paused() || (self.stops_on_backlog && self.out.is_over)
    }

    /// Keeps a call of which more is to come.
    #[inline]
    pub(crate) fn keep(&mut self, key: CallKey, deadline_ms: u64, holders: u8) -> usize {
        let more = if holders > 1 { self.spare.pop() } else { None };
        let slot_index = self.slots.insert(Slot::new(key, deadline_ms, holders, more));
        let index = key.index();
        if index >= self.by_index.len() {
            self.by_index.resize(index + 1, None);
        }
        // Places are as many as there are calls at once, which are limited to far less.
        self.by_index[index] = Some((key, slot_index as u32));
        if deadline_ms < self.timer_at {
            self.arm(deadline_ms);
        }
        slot_index
    }

    /// Counts what a call occupies beside its messages, until its slot is removed.
    #[inline]
    pub(crate) fn lend(&mut self, slot_index: usize, bytes: usize) {
        if let Some(slot) = self.slots.get_mut(slot_index) {
            let before = slot.lent;
            slot.lent = before.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            self.held.lend(slot.lent - before);
        }
    }

    /// Has a message wait to be taken.
    #[inline]
    pub(crate) fn push(&mut self, slot_index: usize, message: Retained, returns_credit: bool) {
        if let Some(slot) = self.slots.get_mut(slot_index) {
            let Retained { payload, cost } = message;
            slot.push(Entry { payload, cost, returns_credit });
            self.held.queue(cost);
        }
    }

    /// The slot of a call, if somebody holds it.
    #[inline]
    fn slot_index(&self, key: CallKey) -> Option<usize> {
        match self.by_index.get(key.index()) {
            Some(&Some((kept, slot_index))) if kept == key => Some(slot_index as usize),
            _ => None,
        }
    }

    #[inline]
    fn slot_of(&mut self, key: CallKey) -> Option<&mut Slot> {
        let slot_index = self.slot_index(key)?;
        self.slots.get_mut(slot_index)
    }

    /// Has the timer fire by this time.
    pub(crate) fn arm(&mut self, at_ms: u64) {
        if at_ms >= self.timer_at {
            return;
        }
        if let Some(connection) = self.out.connection() {
            let delay = at_ms.saturating_sub(connection.now_ms()).max(1);
            connection.set_timer(Some(Duration::from_millis(delay)));
            self.timer_at = at_ms;
        }
    }

    /// Keeps the memory of a slot that is given back.
    fn recycle(&mut self, slot: &mut Slot) {
        if self.spare.len() < SPARE_MAX
            && let Some(more) = slot.more.take().and_then(More::reset)
        {
            self.spare.push(more);
        }
    }

    /// Gives a slot back once nobody holds it.
    #[inline]
    pub(crate) fn remove(&mut self, slot_index: usize) -> Option<Slot> {
        let slot = self.slots.try_remove(slot_index)?;
        self.held.unlend(slot.lent);
        self.held.unqueue(slot.queued());
        let entry = &mut self.by_index[slot.key.index()];
        if matches!(entry, Some((_, kept)) if *kept as usize == slot_index) {
            *entry = None;
        }
        Some(slot)
    }
}
