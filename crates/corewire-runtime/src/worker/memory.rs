//! What the worker holds for peers, and how it makes room.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, TimerAction};
use crate::conn::{CloseReason, Conn, ConnId, ConnectionOptions, PauseSet};
use crate::memory::{
    Account, Budget, Excess, MemoryKind, MemoryLimit, Pressure, Relief, SharedBudget, Shortage,
};
use crate::stats::Counters;
use crate::warning::WarningLimit;

/// Room is made no more often, unless much was added since.
const LOOK_INTERVAL_MS: u64 = 10;

/// What is held for peers, and what is done at the limits.
pub(crate) struct Memory {
    pub(crate) of_worker: Watch,
    /// Of servers that have limits of their own, as long as something is held for them.
    of_servers: RefCell<Vec<Rc<Watch>>>,
    /// A timer is set, so that a worker with nothing to do looks again.
    has_timer: Cell<bool>,
}

/// One limit, and what is remembered from one look at it to the next.
pub(crate) struct Watch {
    pub(crate) budget: Rc<Budget>,
    /// Why those pause that make room.
    pause: PauseSet,
    pressure: Cell<Pressure>,
    /// When room was made, in the worker's milliseconds, and what was held then.
    looked_at: Cell<(u64, usize)>,
    shortage: Shortage,
    warnings: WarningLimit,
}

impl Memory {
    pub(super) fn new(shared: Arc<SharedBudget>) -> Self {
        let of_worker = Watch::new(shared, PauseSet::MEMORY);
        Self { of_worker, of_servers: RefCell::default(), has_timer: Cell::default() }
    }

    /// New connections are refused: what those hold that are there is near the limit.
    pub(super) fn refuses_connections(&self) -> bool {
        self.of_worker.pressure.get() >= Pressure::High
    }

    pub(crate) fn account<'a>(&self, conn: &'a mut Conn) -> &'a Rc<Account> {
        self.account_of(&mut conn.account, conn.id, &conn.options)
    }

    pub(super) fn account_of<'a>(
        &self,
        account: &'a mut Option<Rc<Account>>,
        id: ConnId,
        options: &ConnectionOptions,
    ) -> &'a Rc<Account> {
        account.get_or_insert_with(|| {
            let of_server = options.memory_limit.as_ref().map(|limit| self.of_server(limit));
            Account::new(id, self.of_worker.budget.clone(), of_server)
        })
    }

    /// This worker's budget at the limit of a server.
    fn of_server(&self, limit: &MemoryLimit) -> Rc<Budget> {
        let mut watches = self.of_servers.borrow_mut();
        if let Some(known) = watches.iter().find(|watch| watch.budget.is_of(&limit.0)) {
            return known.budget.clone();
        }
        let watch = Rc::new(Watch::new(limit.0.clone(), PauseSet::SERVER_MEMORY));
        watches.push(watch.clone());
        watch.budget.clone()
    }

    /// The timer of [`Core::watch_memory`] has fired, which follows at the end of this tick.
    pub(super) fn timer_fired(&self) {
        self.has_timer.set(false);
    }

    fn note(&self, counters: &Counters) {
        let Counters {
            send_queue_bytes,
            deferred_bytes,
            reassembly_bytes,
            inbox_bytes,
            payload_bytes,
            transport_bytes,
            ..
        } = counters;
        let gauges = [
            (MemoryKind::SendQueue, send_queue_bytes),
            (MemoryKind::Deferred, deferred_bytes),
            (MemoryKind::Reassembly, reassembly_bytes),
            (MemoryKind::Inbox, inbox_bytes),
            (MemoryKind::Payload, payload_bytes),
            (MemoryKind::Transport, transport_bytes),
        ];
        for (kind, gauge) in gauges {
            gauge.set(self.of_worker.budget.held_of(kind) as u64);
        }
    }
}

impl Watch {
    fn new(shared: Arc<SharedBudget>, pause: PauseSet) -> Self {
        Self {
            budget: Rc::new(Budget::new(shared)),
            pause,
            pressure: Cell::new(Pressure::Low),
            looked_at: Cell::default(),
            shortage: Shortage::default(),
            warnings: WarningLimit::default(),
        }
    }

    fn warn(&self, paused: usize, closed: usize) {
        let Some(times) = self.warnings.note(1) else { return };
        tracing::warn!(
            held = self.budget.held(),
            limit = self.budget.limit(),
            paused,
            closed,
            times,
            "the connections of this worker hold too much memory: those that hold most make room; if it is needed, \
             raise the memory limit"
        );
    }
}

impl Core {
    /// The end of the tick: what is held, for the budget and for whoever asks; and room is made if it is too much.
    pub(super) fn watch_memory(&self) {
        self.watch_memory_at(self.timers.now_ms());
    }

    pub(super) fn watch_memory_at(&self, now_ms: u64) {
        let memory = &self.memory;
        memory.of_worker.budget.set(MemoryKind::SendQueue, self.senders.pool.borrow().in_use());
        memory.note(&self.counters);
        let mut is_short = self.watch(&memory.of_worker, now_ms);
        if !memory.of_servers.borrow().is_empty() {
            let watches = memory.of_servers.borrow().clone();
            is_short |= watches.iter().fold(false, |is_short, watch| self.watch(watch, now_ms) | is_short);
            drop(watches);
            // What nobody has an account of is made anew when somebody does.
            memory.of_servers.borrow_mut().retain(|watch| Rc::strong_count(&watch.budget) > 1);
        }
        if is_short && !memory.has_timer.replace(true) {
            self.timers.add(Duration::from_millis(LOOK_INTERVAL_MS), TimerAction::WatchMemory);
        }
    }

    /// Looks at one limit; whether memory is short there.
    fn watch(&self, watch: &Watch, now_ms: u64) -> bool {
        let pressure = watch.budget.pressure();
        if pressure == Pressure::Low && watch.pressure.get() == Pressure::Low {
            return false;
        }
        let (looked_ms, looked_held) = watch.looked_at.get();
        let grew = watch.budget.held() > looked_held + watch.budget.part() / 16;
        let is_due = grew || now_ms >= looked_ms + LOOK_INTERVAL_MS;
        if pressure != watch.pressure.replace(pressure) || is_due {
            watch.looked_at.set((now_ms, watch.budget.held()));
            self.make_room(watch, pressure, watch.shortage.is_overdue(pressure, now_ms));
        }
        pressure != Pressure::Low
    }

    #[cold]
    fn make_room(&self, watch: &Watch, pressure: Pressure, is_overdue: bool) {
        let budget = &watch.budget;
        // What connections left behind that are gone is not given back by closing others.
        let held = budget.holders().held();
        let Excess { over_low, over_limit } = budget.excess();
        let (pressure, close_max) = match is_overdue {
            true => (Pressure::Over, over_low.saturating_sub(budget.held().saturating_sub(held))),
            false => (pressure, over_limit.min(held.saturating_sub(budget.part()))),
        };
        let excess = Excess { over_low, over_limit: close_max };
        let Relief { resume, pause, close } = budget.holders().relieve(pressure, excess);
        if !pause.is_empty() || !close.is_empty() {
            watch.warn(pause.len(), close.len());
        }
        for id in resume {
            self.resume(id, watch.pause);
        }
        for id in pause {
            self.pause(id, watch.pause);
        }
        for (id, held) in close {
            self.abort(id, CloseReason::MemoryLimit { held, limit: budget.limit() });
        }
    }
}
