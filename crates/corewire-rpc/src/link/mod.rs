//! One connection as calls see it, the same for clients and servers: the state machine, what waits to be taken, who
//! waits for what, and deadlines.

mod held;
mod ops;
mod out;
mod places;
mod progress;
mod receive;
mod registry;
mod response_metadata;
mod retained;
mod slot;
mod tasks;
mod wakers;

use std::cell::{OnceCell, RefCell};
use std::rc::Weak;
use std::task::Context;
use std::time::Duration;

use corewire_proto::rpc::CallKey;
use corewire_runtime::Connection;

use self::held::Held;
pub(crate) use self::out::Kept;
use self::out::Out;
pub(crate) use self::places::Place;
use self::places::Queue;
use self::progress::Progress;
pub(crate) use self::registry::{Group, Home, gauges, with_link};
pub(crate) use self::response_metadata::{MetadataPart, ResponseMetadata};
pub(crate) use self::retained::Retained;
use self::retained::Retainer;
use self::slot::{Entry, More};
pub(crate) use self::slot::{Incoming, Slot};
use self::tasks::Tasks;
pub(crate) use self::wakers::Wakers;
use crate::gauges::Gauges;
use crate::status::Status;

/// The state machine of a connection, with what the link keeps of each call in its table.
pub(crate) type Machine = corewire_proto::rpc::Connection<Slot>;

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
    pub(crate) closed: Option<Status>,
    /// Who waits until the send queue has room.
    waiting: Wakers,
    /// Calls that wait until one of those in flight ends, since the server takes no more.
    waiting_calls: Queue,
    /// The same for streams of the `STREAM_*` family.
    waiting_streams: Queue,
    /// Bytes arrived since this was last set to false.
    pub(crate) has_received: bool,
    /// Who waits for messages.
    tasks: Tasks,
    progress: Progress,
    /// Memory of calls that are done with, for those to come.
    #[expect(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<More>>,
    retainer: Retainer,
    pub(crate) held: Held,
    /// Calls whose handler has added metadata to its responses.
    with_metadata: usize,
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
            if state.machine.version().is_none() {
                // A server.
                Progress::opened(connection);
            }
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
        state.tasks.forget_last();
        state.out.flush();
        state.held.settle(state.out.connection());
    }

    /// Reads on, if reading was stopped and need not be any more.
    pub(crate) fn resume(&self) {
        let is_due = {
            let state = self.state.borrow();
            state.is_stopped && !state.must_stop() && state.closed.is_none()
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
            connections: usize::from(state.closed.is_none() && state.out.connection().is_some()),
            calls: state.machine.calls_in_flight(),
            streams: state.machine.streams_open(),
            held: state.machine.calls_kept(),
            buffered_bytes: state.held.bytes(),
            unread_bytes: unread,
            unsent_bytes: state.out.queued(),
        }
    }

    /// Forgets a link whose connection is gone and that nobody holds a call of.
    fn drop_if_done(&self) {
        let is_done = {
            let state = self.state.borrow();
            state.closed.is_some() && state.machine.calls_kept() == 0
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
            timer_at: u64::MAX,
            will_flush: false,
            is_receiving: false,
            is_stopped: false,
            stops_on_backlog,
            closed: None,
            waiting: Wakers::default(),
            waiting_calls: Queue::default(),
            waiting_streams: Queue::default(),
            has_received: false,
            tasks: Tasks::default(),
            progress: Progress::default(),
            spare: Vec::new(),
            retainer: Retainer::default(),
            held,
            with_metadata: 0,
        }
    }

    #[inline]
    fn settle(&mut self) {
        if self.is_receiving {
            // At the end of what is received it is told at once for all.
            return;
        }
        if !(self.waiting_calls.is_empty() && self.waiting_streams.is_empty()) {
            self.wake_waiting_calls();
        }
        if self.will_flush {
            // The same at the end of the turn.
            return;
        }
        self.held.settle(self.out.connection());
        if self.out.has_gathered() {
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

    /// Keeps a call of which more is to come. The key of what is kept: that of the call, unless it is over already.
    #[inline]
    pub(crate) fn keep(&mut self, mut call: CallKey, deadline_ms: u64, holders: u8) -> CallKey {
        if let Some(slot) = self.machine.state_mut(call) {
            // Something is kept of it for its answer already.
            (slot.holders, slot.deadline_ms) = (holders, deadline_ms);
        } else {
            let more = if holders > 1 { self.spare.pop() } else { None };
            call = self.machine.keep(call, Slot::new(deadline_ms, holders, more));
        }
        if deadline_ms < self.timer_at {
            self.arm(deadline_ms);
        }
        call
    }

    /// Keeps a call of one response that has just begun, and whose caller waits for it.
    #[inline]
    pub(crate) fn keep_awaited(&mut self, call: CallKey, deadline_ms: u64, context: &Context<'_>) -> CallKey {
        let reader = self.tasks.add(context.waker());
        let call = self.machine.keep(call, Slot::awaited(deadline_ms, reader));
        if deadline_ms < self.timer_at {
            self.arm(deadline_ms);
        }
        call
    }

    /// What is kept of a call.
    #[inline]
    pub(crate) fn slot(&mut self, call: CallKey) -> Option<&mut Slot> {
        self.machine.state_mut(call)
    }

    /// Counts what a call occupies beside its messages, until its slot is removed.
    #[inline]
    pub(crate) fn lend(&mut self, call: CallKey, bytes: usize) {
        if let Some(slot) = self.machine.state_mut(call) {
            let before = slot.lent;
            slot.lent = before.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
            self.held.lend(slot.lent - before);
        }
    }

    /// Has a message wait to be taken.
    #[inline]
    pub(crate) fn push(&mut self, call: CallKey, message: Retained, returns_credit: bool) {
        if let Some(slot) = self.machine.state_mut(call) {
            let Retained { payload, cost } = message;
            slot.push(Entry { payload, cost, returns_credit });
            self.held.queue(cost);
        }
    }

    /// The task waits for the peer's half.
    #[inline]
    pub(crate) fn wait_for_peer(&mut self, call: CallKey, context: &Context<'_>) {
        if let Some(slot) = self.machine.state_mut(call) {
            self.tasks.update(&mut slot.reader, context.waker());
        }
    }

    /// There is something of the peer's half.
    #[inline]
    fn wake_reader(&mut self, call: CallKey) {
        if let Some(task) = self.machine.state_mut(call).and_then(|slot| slot.reader.take()) {
            self.tasks.wake(task);
        }
    }

    /// The peer's half has ended, with the call or without it.
    pub(crate) fn end(&mut self, call: CallKey, how: Result<(), Status>) {
        let is_live = self.machine.is_live(call);
        if let Some(slot) = self.machine.state_mut(call) {
            slot.end(how);
            if !is_live {
                slot.wake_writer();
            }
            self.wake_reader(call);
        }
    }

    /// The call is over as a whole, and what is kept of it says why.
    pub(crate) fn lose(&mut self, call: CallKey, why: Status) {
        if let Some(slot) = self.machine.state_mut(call) {
            slot.lose(why);
            self.wake_reader(call);
        }
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
    pub(crate) fn remove(&mut self, call: CallKey) -> Option<Slot> {
        let mut slot = self.machine.take_state(call)?;
        self.held.unlend(slot.lent);
        self.held.unqueue(slot.queued());
        self.with_metadata -= usize::from(slot.response_metadata().is_some());
        if let Some(task) = slot.reader.take() {
            self.tasks.release(task);
        }
        Some(slot)
    }
}
