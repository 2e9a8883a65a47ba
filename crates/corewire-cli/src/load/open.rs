//! An open load: calls are sent when they are due, not when others have come back.

use std::cell::RefCell;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use corewire::runtime::yield_now;
use corewire::{sleep, spawn_local};

use super::schedule::{Calls, Next, Schedule};
use super::worker_state::WorkerState;
use crate::run_control::Latency;
use crate::system::monotonic_ns;

/// Timers have a resolution of a millisecond: so long before a call is due the worker does not wait any more, but looks
/// at the clock again and again.
const WATCHFUL: Duration = Duration::from_millis(2);
/// So many latencies of calls that were never sent are noted one by one; of more, each stands for several.
const NOTED_MAX: u64 = 1 << 20;

/// The calls of one connection.
#[derive(Debug)]
pub(super) struct Open {
    calls: RefCell<Calls>,
    /// Tasks that wait for a call, one for each.
    waiting: RefCell<Vec<Waker>>,
}

impl Open {
    /// The next call that is due, by its number; `Ready(None)` when there will be none.
    pub(super) fn poll_take(&self, state: &WorkerState, context: &mut Context<'_>) -> Poll<Option<u64>> {
        if !state.may_send() {
            return Poll::Ready(None);
        }
        match self.calls.borrow_mut().take(monotonic_ns()) {
            Next::Due { number, is_late } => {
                state.traffic().late.add(u64::from(is_late));
                Poll::Ready(Some(number))
            }
            Next::Over => Poll::Ready(None),
            Next::NotYet => {
                let mut waiting = self.waiting.borrow_mut();
                // One that was polled for another reason still waits.
                if !waiting.last().is_some_and(|waker| waker.will_wake(context.waker())) {
                    waiting.push(context.waker().clone());
                }
                Poll::Pending
            }
        }
    }

    pub(super) async fn take(&self, state: &WorkerState) -> Option<u64> {
        poll_fn(|context| self.poll_take(state, context)).await
    }

    /// Notes the latency of a call that is back.
    pub(super) fn record(&self, state: &WorkerState, number: u64) {
        state.record(self.calls.borrow().latency(number, monotonic_ns()));
    }

    fn wake(&self) {
        if let Some(waker) = self.waiting.borrow_mut().pop() {
            waker.wake();
        }
    }

    /// Counts what was due and never sent, with the time that it has waited.
    fn count_unsent(&self, stopped_ns: u64, latency: &mut Latency) -> u64 {
        let calls = self.calls.borrow();
        let waiting = calls.waiting(stopped_ns);
        let count = waiting.end - waiting.start;
        let each = count.div_ceil(NOTED_MAX).max(1);
        for number in waiting.step_by(usize::try_from(each).unwrap_or(usize::MAX)) {
            latency.saturating_record_n(
                calls.latency(number, stopped_ns),
                u32::try_from(each).unwrap_or(u32::MAX),
            );
        }
        count
    }
}

/// The calls of all connections of a worker.
#[derive(Debug)]
pub(super) struct Pacer {
    schedule: Schedule,
    connections: Vec<Rc<Open>>,
}

impl Pacer {
    /// Begins now; `budgets` has one for each connection of this worker.
    pub(super) fn start(state: &Rc<WorkerState>, rate: u64, thread: usize, budgets: &[u64]) -> Rc<Self> {
        let (mine, all) = (budgets.len() as u64, state.args.connections as u64);
        // Workers do not send in step.
        let begun_ns = monotonic_ns() + thread as u64 * 1_000_000_000 / rate;
        let schedule = Schedule::new(begun_ns, rate, mine, all);
        let connection = |(connection, budget): (usize, &u64)| {
            let calls = RefCell::new(Calls::new(schedule, connection as u64, mine, *budget));
            Rc::new(Open { calls, waiting: RefCell::default() })
        };
        let connections = budgets.iter().enumerate().map(connection).collect();
        let pacer = Rc::new(Self { schedule, connections });
        let (state, own) = (Rc::clone(state), Rc::clone(&pacer));
        drop(spawn_local(async move { own.run(&state).await }));
        pacer
    }

    pub(super) fn connection(&self, at: usize) -> Option<Rc<Open>> {
        self.connections.get(at).cloned()
    }

    /// Wakes a task of a connection when a call of it is due.
    async fn run(&self, state: &WorkerState) {
        let mut next = 0;
        let places = (self.connections.len() * state.args.depth) as u64;
        while state.may_send() {
            let now = monotonic_ns();
            let due = self.schedule.due(now);
            // No more than the connections can take at a time.
            for call in next.max(due.saturating_sub(places))..due {
                self.connections[(call % self.connections.len() as u64) as usize].wake();
            }
            next = due;
            let left = Duration::from_nanos(self.schedule.at(next).saturating_sub(now));
            match left.checked_sub(WATCHFUL) {
                // So that the end of the load is not waited for.
                Some(wait) => sleep(wait.min(Duration::from_millis(100))).await,
                None => yield_now().await,
            }
        }
    }

    /// The calls that were due and never sent, noted with the time that they waited.
    pub(super) fn count_unsent(&self, stopped_ns: u64, latency: &mut Latency) -> u64 {
        self.connections.iter().map(|connection| connection.count_unsent(stopped_ns, latency)).sum()
    }
}
