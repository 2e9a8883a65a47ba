//! What the worker holds for peers, and how it makes room.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::{Core, TimerAction};
use crate::conn::{CloseReason, PauseSet};
use crate::memory::{Budget, Excess, Holder, MemoryKind, Pressure, Relief, SharedBudget, Shortage, relief};
use crate::stats::Counters;
use crate::warning::WarningLimit;

/// The connections are looked through no more often, unless much was added since.
const LOOK_INTERVAL_MS: u64 = 10;

/// What is held for peers, and what is remembered from one look at it to the next.
pub(crate) struct Memory {
    pub(crate) budget: Rc<Budget>,
    pressure: Cell<Pressure>,
    /// When the connections were looked through, in the worker's milliseconds, and what was held then.
    looked_at: Cell<(u64, usize)>,
    /// A timer is set, so that a worker with nothing to do looks again.
    has_timer: Cell<bool>,
    shortage: Shortage,
    warnings: WarningLimit,
}

impl Memory {
    pub(super) fn new(shared: Arc<SharedBudget>) -> Self {
        Self {
            budget: Rc::new(Budget::new(shared)),
            pressure: Cell::new(Pressure::Low),
            looked_at: Cell::default(),
            has_timer: Cell::default(),
            shortage: Shortage::default(),
            warnings: WarningLimit::default(),
        }
    }

    /// New connections are refused: what those hold that are there is near the limit.
    pub(super) fn refuses_connections(&self) -> bool {
        self.pressure.get() >= Pressure::High
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
            gauge.set(self.budget.held_of(kind) as u64);
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
        self.memory.budget.set(MemoryKind::SendQueue, self.senders.pool.borrow().in_use());
        self.memory.note(&self.counters);
        let watch = &self.memory;
        let pressure = self.memory.budget.pressure();
        if pressure == Pressure::Low && watch.pressure.get() == Pressure::Low {
            return;
        }
        let (looked_ms, looked_held) = watch.looked_at.get();
        let grew = self.memory.budget.held() > looked_held + self.memory.budget.part() / 16;
        let is_due = grew || now_ms >= looked_ms + LOOK_INTERVAL_MS;
        if pressure != watch.pressure.replace(pressure) || is_due {
            watch.looked_at.set((now_ms, self.memory.budget.held()));
            self.make_room(pressure, watch.shortage.is_overdue(pressure, now_ms));
        }
        if pressure != Pressure::Low && !watch.has_timer.replace(true) {
            self.timers.add(Duration::from_millis(LOOK_INTERVAL_MS), TimerAction::WatchMemory);
        }
    }

    #[cold]
    fn make_room(&self, pressure: Pressure, is_overdue: bool) {
        let mut conns = self.conns.table.borrow_mut();
        let holders: Vec<_> = conns
            .iter()
            .filter(|conn| !conn.state.is_closed())
            .map(|conn| Holder {
                key: conn.id,
                held: conn.held(),
                is_paused: conn.pauses.contains(PauseSet::MEMORY),
            })
            .collect();
        // What connections left behind that are gone is not given back by closing others.
        let held: usize = holders.iter().map(|holder| holder.held).sum();
        let Excess { over_low, over_limit } = self.memory.budget.excess();
        let (pressure, close_max) = match is_overdue {
            true => (Pressure::Over, over_low.saturating_sub(self.memory.budget.held().saturating_sub(held))),
            false => (pressure, over_limit.min(held.saturating_sub(self.memory.budget.part()))),
        };
        let excess = Excess { over_low, over_limit: close_max };
        let Relief { resume, pause, close } = relief(pressure, excess, holders);
        if !pause.is_empty() || !close.is_empty() {
            self.memory.warn(pause.len(), close.len());
        }
        let driver = &mut *self.driver.borrow_mut();
        for id in resume {
            if let Some(conn) = conns.get_mut(id) {
                self.resume_conn(conn, PauseSet::MEMORY, driver);
            }
        }
        for id in pause {
            if let Some(conn) = conns.get_mut(id) {
                self.pause_conn(conn, PauseSet::MEMORY, driver);
            }
        }
        for id in close {
            if let Some(conn) = conns.get_mut(id) {
                let reason =
                    CloseReason::MemoryLimit { held: conn.held(), limit: self.memory.budget.limit() };
                self.close_now(conn, reason);
            }
        }
    }
}
