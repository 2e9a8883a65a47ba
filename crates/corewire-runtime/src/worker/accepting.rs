//! Listeners: what they accept, and what happens while they cannot.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::{Socket, Token};

use super::{Core, Meter, TimerAction};
use crate::listen::AfterAccept;
use crate::panic::guarded;
use crate::stats::Counters;
use crate::warning::WarningLimit;

/// Accepted connections that are opened in a tick, at the most, after what has arrived for others.
pub(super) const OPENED_IN_TICK_MAX: usize = 64;

/// Accepted connections that wait to be opened at which their listener accepts no more; others are in the backlog.
const ACCEPTED_MAX: usize = 4 * OPENED_IN_TICK_MAX;

/// How long a listener waits after it could not accept.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

/// A shortage of descriptors that lasts no longer costs nobody the connection.
const SHORTAGE_GRACE_MS: u64 = 1000;

/// Connections refused at once; there are others to serve.
const REFUSED_AT_ONCE_MAX: usize = 64;

/// Takes a socket that a listener accepted.
type AcceptFn = Rc<RefCell<dyn FnMut(Socket) -> AfterAccept>>;

/// The listeners of a worker.
#[derive(Default)]
pub(crate) struct Listeners {
    entries: RefCell<Vec<Entry>>,
    /// Accepted and not opened yet, each with its listener.
    accepted: RefCell<VecDeque<(Token, Socket)>>,
    failures: WarningLimit,
    refusals: WarningLimit,
}

struct Entry {
    token: Token,
    accept: AcceptFn,
    intake: Intake,
    /// Since when there were no descriptors to accept with, in the worker's milliseconds.
    short_since: Option<u64>,
}

/// Whether a listener accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Intake {
    On,
    /// Until those that it has accepted are opened.
    Throttled,
    /// Until its owner resumes it.
    Paused,
}

impl Listeners {
    pub(super) fn has_accepted(&self) -> bool {
        !self.accepted.borrow().is_empty()
    }

    /// Drops all, and what they have accepted; their own sockets are the driver's.
    pub(super) fn clear(&self) {
        drop(self.accepted.take());
        let entries = self.entries.take();
        // Not while the list is held: a closure may own another listener.
        drop(entries);
    }
}

impl Core {
    pub(crate) fn listen(
        &self,
        socket: Socket,
        accept: impl FnMut(Socket) -> AfterAccept + 'static,
    ) -> io::Result<Token> {
        let token = self.driver.borrow_mut().add_listener(socket)?;
        let accept: AcceptFn = Rc::new(RefCell::new(accept));
        self.listeners.entries.borrow_mut().push(Entry {
            token,
            accept,
            intake: Intake::On,
            short_since: None,
        });
        Ok(token)
    }

    pub(crate) fn close_listener(&self, token: Token) {
        let closed = {
            let mut entries = self.listeners.entries.borrow_mut();
            let at = entries.iter().position(|entry| entry.token == token);
            at.map(|at| entries.swap_remove(at))
        };
        drop(self.driver.borrow_mut().close(token));
        // Not while the list is held: the closure may own another listener.
        drop(closed);
    }

    pub(crate) fn pause_listener(&self, token: Token) {
        self.with_listener(token, |entry| entry.intake = Intake::Paused);
        self.driver.borrow_mut().pause_receive(token);
    }

    pub(crate) fn resume_listener(&self, token: Token) {
        self.with_listener(token, |entry| entry.intake = Intake::On);
        self.driver.borrow_mut().resume_receive(token);
    }

    /// The connection waits until what has arrived for others in this tick is served.
    pub(super) fn accepted(&self, listener: Token, socket: Socket) {
        if self.memory.refuses_connections() {
            return self.note_refused(1, "the memory limit is near");
        }
        let is_full = self.listeners.accepted.borrow().len() + 1 >= ACCEPTED_MAX;
        let is_throttled = self.with_listener(listener, |entry| {
            entry.short_since = None;
            let is_throttled = is_full && entry.intake == Intake::On;
            if is_throttled {
                entry.intake = Intake::Throttled;
            }
            is_throttled
        });
        let Some(is_throttled) = is_throttled else { return };
        self.listeners.accepted.borrow_mut().push_back((listener, socket));
        if is_throttled {
            self.driver.borrow_mut().pause_receive(listener);
        }
    }

    /// Gives accepted connections to those who listen, while the budget lasts.
    pub(super) fn open_accepted(&self) {
        if !self.listeners.has_accepted() {
            return;
        }
        let mut meter = Meter::new();
        for _ in 0..OPENED_IN_TICK_MAX {
            let next = self.listeners.accepted.borrow_mut().pop_front();
            let Some((listener, socket)) = next else { break };
            self.open_one(listener, socket);
            if meter.is_used(0) {
                break;
            }
        }
        if !self.listeners.has_accepted() {
            self.end_throttle();
        }
    }

    fn open_one(&self, listener: Token, socket: Socket) {
        let Some(accept) = self.with_listener(listener, |entry| entry.accept.clone()) else { return };
        Counters::add(&self.counters.accepted, 1);
        match guarded(|| accept.borrow_mut()(socket)) {
            Ok(AfterAccept::Continue) => {}
            Ok(AfterAccept::Pause) => self.pause_listener(listener),
            Err(message) => self.note_panic(&message),
        }
    }

    fn end_throttle(&self) {
        let mut driver = self.driver.borrow_mut();
        for entry in self.listeners.entries.borrow_mut().iter_mut() {
            if entry.intake == Intake::Throttled {
                entry.intake = Intake::On;
                driver.resume_receive(entry.token);
            }
        }
    }

    #[cold]
    pub(super) fn accept_failed(&self, listener: Token, error: &io::Error) {
        Counters::add(&self.counters.accept_failures, 1);
        if let Some(failures) = self.listeners.failures.note(1) {
            tracing::warn!(
                %error,
                failures,
                "a listener cannot accept and tries again in {ACCEPT_BACKOFF:?}; if descriptors are short, raise \
                 RLIMIT_NOFILE or lower the maximum number of connections"
            );
        }
        let refused = if is_descriptor_shortage(error) { self.refuse_after_grace(listener) } else { 0 };
        // More may wait than are refused at once.
        let wait = if refused == REFUSED_AT_ONCE_MAX { Duration::ZERO } else { ACCEPT_BACKOFF };
        self.timers.add(wait, TimerAction::ResumeAccept(listener));
    }

    /// Descriptors are short. Once that has lasted, those who wait are refused, so that they know and can go elsewhere;
    /// says how many those were.
    fn refuse_after_grace(&self, listener: Token) -> usize {
        let now = self.timers.now_ms();
        let since = self.with_listener(listener, |entry| *entry.short_since.get_or_insert(now));
        if since.is_none_or(|since| now <= since + SHORTAGE_GRACE_MS) {
            return 0;
        }
        let refused = self.driver.borrow_mut().refuse_waiting(listener, REFUSED_AT_ONCE_MAX);
        if refused > 0 {
            self.note_refused(refused, "descriptors are short");
        }
        refused
    }

    pub(super) fn note_refused(&self, count: usize, reason: &'static str) {
        Counters::add(&self.counters.refused, count as u64);
        if let Some(refused) = self.listeners.refusals.note(count as u64) {
            tracing::warn!(refused, reason, "new connections are closed as they come");
        }
    }

    fn with_listener<R>(&self, token: Token, look: impl FnOnce(&mut Entry) -> R) -> Option<R> {
        self.listeners.entries.borrow_mut().iter_mut().find(|entry| entry.token == token).map(look)
    }
}

/// `EMFILE` or `ENFILE`, which have no kind of their own and the same numbers on every Unix.
fn is_descriptor_shortage(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}
