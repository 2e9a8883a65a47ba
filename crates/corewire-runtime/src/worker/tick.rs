//! The tick: one turn of a worker's loop.

use std::rc::Rc;
use std::time::Duration;

use corewire_driver::{Event, Parking};

use super::finishing::Life;
use super::quota::Meter;
use super::{Command, Core, TimerAction};
use crate::conn::CloseReason;
use crate::mailbox::Mailbox;
use crate::stats::Counters;
use crate::task_quota::with_task_quota;

impl Parking for Mailbox<Command> {
    fn has_mail(&self) -> bool {
        self.has_mail()
    }

    fn prepare_park(&self) -> bool {
        self.prepare_park()
    }
}

impl Core {
    /// Turns until `done` or a stop.
    pub(crate) fn run(self: &Rc<Self>, mut done: impl FnMut() -> bool) {
        let mut commands = Vec::new();
        let mut is_done = done();
        while !is_done && !self.life.get().is_ending() {
            // Asked once a tick: a main future that goes on in the next one finds done what it asked for by mail.
            self.tick(&mut commands, None, &mut || {
                is_done = done();
                is_done
            });
        }
    }

    /// One turn: wait, take what has happened, run what can run, fire what is due, send what is queued, end what is
    /// to end.
    fn tick(
        self: &Rc<Self>,
        commands: &mut Vec<Command>,
        wait_max: Option<Duration>,
        main: &mut dyn FnMut() -> bool,
    ) {
        let wait = self.waiting_time(wait_max);
        let turned = self.driver.borrow_mut().turn_or_park(wait, &self.shared.mailbox);
        self.shared.mailbox.unpark();
        if let Err(error) = turned {
            tracing::error!(%error, "the event loop of a worker has failed; the worker stops");
            self.life.set(Life::Ending { until: None });
            return;
        }
        self.timers.read_clock();
        Counters::add(&self.counters.ticks, 1);
        self.take_events();
        self.open_accepted();
        self.serve_handshakes();
        let mut meter = Meter::new();
        self.drain_mailbox(commands, || meter.is_used(0));
        self.wake_woken();
        if self.tasks.aborted.get() > 0 {
            self.reap_aborted();
        }
        self.run_ready(main);
        self.fire_timers();
        self.call_before_flush();
        if self.others_wait_to_send() {
            self.flush_dirty();
        }
        self.serve_turns();
        self.settle_input();
        self.call_before_flush();
        self.flush_dirty();
        self.flush_udp();
        self.call_drained();
        self.reap_closed();
        self.wake_woken();
        if self.tasks.aborted.get() > 0 {
            self.reap_aborted();
        }
        self.watch_memory();
        self.counters.publish(&self.shared.counters);
    }

    /// Answers to those who sent little do not wait for those who sent much.
    fn others_wait_to_send(&self) -> bool {
        let turns = self.turns.waiting.borrow();
        let Some(first) = turns.front() else { return false };
        turns.len() > 1 || self.senders.dirty.borrow().iter().any(|id| id != first)
    }

    /// How long the driver may wait: not at all when there is work left.
    fn waiting_time(&self, wait_max: Option<Duration>) -> Option<Duration> {
        let work_left = self.tasks.has_work()
            || self.turns.has_work()
            || self.senders.has_work()
            || !self.conns.closed.borrow().is_empty()
            || self.listeners.has_accepted()
            || self.handshakes.has_work()
            || self.udp.has_work()
            || self.driver.borrow().has_pending();
        if work_left {
            return Some(Duration::ZERO);
        }
        match (self.timers.until_next(), wait_max) {
            (Some(timer), Some(most)) => Some(timer.min(most)),
            (timer, most) => timer.or(most),
        }
    }

    #[inline]
    fn take_events(self: &Rc<Self>) {
        let mut meter = Meter::new();
        loop {
            let event = self.driver.borrow_mut().next_event();
            let Some(event) = event else { return };
            let mut bytes = 0;
            match event {
                Event::Received { token, data } => {
                    bytes = data.len();
                    self.received(token, data);
                }
                Event::DatagramReadable { token } => {
                    bytes = Meter::BYTES;
                    self.udp_readable(token);
                }
                Event::DatagramWritable { token } => self.udp_writable(token),
                Event::Writable { token } => self.socket_writable(token),
                Event::Ready { token, readable, writable } => {
                    self.watched_ready(token, readable, writable);
                }
                Event::ReadClosed { token } => self.read_closed(token),
                Event::Accepted { listener, socket } => self.accepted(listener, socket),
                Event::AcceptFailed { listener, error } => self.accept_failed(listener, &error),
                Event::Connected { token } => self.connected(token),
                Event::Failed { token, error } => self.failed(token, error),
                other => tracing::debug!(?other, "an event that this runtime does not know"),
            }
            if meter.is_used(bytes) {
                // The driver keeps the rest for the next tick.
                return;
            }
        }
    }

    /// Does what others have sent, in the order in which it came, until the budget is used.
    fn drain_mailbox(self: &Rc<Self>, incoming: &mut Vec<Command>, mut is_used: impl FnMut() -> bool) {
        self.shared.mailbox.drain_into(incoming);
        self.tasks.commands.borrow_mut().extend(incoming.drain(..));
        while let Some(command) = { self.tasks.commands.borrow_mut().pop_front() } {
            match command {
                Command::Run(runnable) => self.tasks.ready.borrow_mut().push_back(runnable),
                Command::Job(job) => self.guard(job),
                Command::Stop(until) => self.life.set(Life::Ending { until }),
            }
            if is_used() {
                return;
            }
        }
    }

    /// Wakes those whose wait is over. Wakers may be of other executors: what they do is no concern of this worker.
    pub(crate) fn wake_woken(&self) {
        if self.senders.woken.borrow().is_empty() {
            return;
        }
        let mut woken = self.senders.woken.take();
        for waker in woken.drain(..) {
            self.guard(|| waker.wake());
        }
        let mut later = self.senders.woken.borrow_mut();
        woken.append(&mut later);
        *later = woken;
    }

    /// Runs the tasks that are ready now, while the budget lasts; those that become ready meanwhile have their turn in
    /// the next tick, after what they wait for was sent.
    fn run_ready(&self, main: &mut dyn FnMut() -> bool) {
        let count = self.tasks.ready.borrow().len();
        let mut meter = Meter::new();
        self.tasks.begin_round();
        for _ in 0..count {
            let Some(runnable) = ({ self.tasks.ready.borrow_mut().pop_front() }) else { break };
            self.guard(|| {
                with_task_quota(|| runnable.run());
            });
            if meter.is_used(0) {
                break;
            }
        }
        main();
        // What is deferred is served behind the tasks: it must wake again those that have just run.
        self.tasks.begin_round();
    }

    fn fire_timers(self: &Rc<Self>) {
        let mut meter = Meter::new();
        while let Some(action) = { self.timers.expire() } {
            match action {
                TimerAction::Wake(waker) => self.guard(|| waker.wake()),
                TimerAction::Deadlines(round) => self.check_deadlines(round),
                TimerAction::CloseTimeout(id) => self.close_timed_out(id),
                TimerAction::Handshake(id) => self.handshake_timed_out(id),
                TimerAction::Protocol(id) => self.call_timer(id),
                TimerAction::Linger(socket) => self.end_linger(socket),
                TimerAction::Udp(socket) => self.udp_timer(socket),
                TimerAction::WatchMemory => self.memory.timer_fired(),
                TimerAction::ResumeAccept(listener) => self.driver.borrow_mut().resume_accept(listener),
            }
            if meter.is_used(0) {
                return;
            }
        }
    }

    fn call_before_flush(&self) {
        if self.senders.before_flush.borrow().is_empty() {
            return;
        }
        let mut calls = self.senders.before_flush.take();
        let mut meter = Meter::new();
        while let Some(call) = calls.pop_front() {
            let mut has_more = false;
            self.guard(|| has_more = call());
            if has_more {
                calls.push_back(call);
            }
            if meter.is_used(0) {
                break;
            }
        }
        let mut later = self.senders.before_flush.borrow_mut();
        // What was added meanwhile has its turn in the next tick. Keep the memory.
        calls.append(&mut later);
        *later = calls;
    }

    /// Ends all tasks and connections; nothing of this worker is left but the memory that others hold on to.
    pub(crate) fn shutdown(self: &Rc<Self>) {
        let mut commands = Vec::new();
        if !self.life.get().is_ending() {
            self.life.set(Life::Ending { until: None });
        }
        self.guard(|| self.listeners.clear());
        self.finish_sending();
        let until = corewire_driver::clock::now() + Self::SHUTDOWN_GRACE;
        let mut rounds = 0;
        while rounds < Self::SHUTDOWN_ROUNDS {
            // Open until no task is left: one that another thread has woken comes here by mail to be dropped.
            self.drain_mailbox(&mut commands, || false);
            let ids = self.conns.table.borrow().ids();
            ids.into_iter().for_each(|id| self.abort(id, CloseReason::Shutdown));
            self.reap_closed();
            // The peers of conversations are told.
            self.flush_udp();
            self.close_all_udp();
            self.wake_woken();
            // A woken task is dropped here instead of run.
            let tasks: Vec<_> =
                self.tasks.live.borrow().iter().map(|(_, entry)| entry.waker.clone()).collect();
            tasks.into_iter().for_each(|task| self.guard(|| task.wake()));
            let woken = std::mem::take(&mut *self.tasks.ready.borrow_mut());
            let none_woken = woken.is_empty();
            drop(woken);
            let no_conns = self.conns.table.borrow().len() == 0;
            if no_conns && self.tasks.live.borrow().is_empty() {
                break;
            }
            if no_conns && none_woken && corewire_driver::clock::now() < until {
                // What is left was woken elsewhere and is on its way.
                std::thread::yield_now();
            } else {
                rounds += 1;
            }
        }
        self.shared.mailbox.close(&mut commands);
        self.guard(|| drop(commands));
        self.finish_lingers();
        let timers = self.timers.take();
        self.guard(|| drop(timers));
        self.counters.publish(&self.shared.counters);
    }

    /// What a dropped task or a closed connection begins anew is ended too, but not for ever.
    const SHUTDOWN_ROUNDS: usize = 16;
    /// How long the end waits for another thread that is just handing a woken task over.
    const SHUTDOWN_GRACE: Duration = Duration::from_secs(1);
}
