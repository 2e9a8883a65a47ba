use crate::catalog::{Expiry, Holder, Service};
use crate::clock::ForwardTime;
use crate::{Clock, Endpoint, RegistryError, lock};
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

/// The leases with a time to live, in order of when to look at them next.
///
/// A renewal only moves the deadline kept with the endpoint; the queue finds out when the old one comes. Its lock
/// and a service's lock are never held together.
#[derive(Debug)]
pub(super) struct ExpiryQueue {
    clock: Arc<dyn Clock>,
    drive: Drive,
    state: Mutex<State>,
    changed: Condvar,
}

/// Who calls [`ExpiryQueue::expire_due`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drive {
    /// A thread that sleeps until the next deadline; the clock must run like the system's.
    Thread,
    /// The registry's user.
    Caller,
}

/// Stands for one scheduled lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Ticket(u64);

#[derive(Debug, Default)]
struct State {
    time: ForwardTime,
    due: BTreeMap<(Duration, Ticket), Scheduled>,
    scheduled_at: HashMap<Ticket, Duration>,
    last_ticket: u64,
    thread_started: bool,
    closed: bool,
}

#[derive(Debug)]
struct Scheduled {
    service: Weak<Service>,
    endpoint: Arc<Endpoint>,
    holder: Holder,
}

impl ExpiryQueue {
    pub(super) fn new(clock: Arc<dyn Clock>, drive: Drive) -> Self {
        Self { clock, drive, state: Mutex::default(), changed: Condvar::new() }
    }

    /// Time on the clock, counted forward only.
    pub(super) fn now(&self) -> Duration {
        lock(&self.state).time.read(&*self.clock)
    }

    /// Starts the thread if there is to be one and it does not run yet.
    pub(super) fn start(self: &Arc<Self>) -> Result<(), RegistryError> {
        let mut state = lock(&self.state);
        if self.drive == Drive::Caller || state.thread_started {
            return Ok(());
        }
        let queue = self.clone();
        let thread = std::thread::Builder::new().name("corewire-leases".into());
        thread.spawn(move || queue.run()).map_err(|error| RegistryError::Refused {
            kind: "local",
            reason: format!("the thread that ends leases cannot be started: {error}"),
        })?;
        state.thread_started = true;
        Ok(())
    }

    pub(super) fn schedule(
        &self,
        deadline: Duration,
        service: &Arc<Service>,
        endpoint: &Arc<Endpoint>,
        holder: Holder,
    ) -> Ticket {
        let scheduled = Scheduled { service: Arc::downgrade(service), endpoint: endpoint.clone(), holder };
        let mut state = lock(&self.state);
        state.last_ticket += 1;
        let ticket = Ticket(state.last_ticket);
        state.insert(deadline, ticket, scheduled);
        if state.due.first_key_value().is_some_and(|(first, _)| first.1 == ticket) {
            self.changed.notify_one();
        }
        ticket
    }

    pub(super) fn forget(&self, ticket: Ticket) {
        let mut state = lock(&self.state);
        if let Some(deadline) = state.scheduled_at.remove(&ticket) {
            state.due.remove(&(deadline, ticket));
        }
    }

    pub(super) fn expire_due(&self) -> usize {
        let mut removed = 0;
        loop {
            let mut state = lock(&self.state);
            let now = state.time.read(&*self.clock);
            let Some((ticket, scheduled)) = state.pop_due(now) else { return removed };
            drop(state);
            let Some(service) = scheduled.service.upgrade() else { continue };
            match service.expire(scheduled.endpoint.instance(), scheduled.holder, now) {
                Expiry::Removed => removed += 1,
                Expiry::NotYet(deadline) => lock(&self.state).insert(deadline, ticket, scheduled),
                Expiry::Gone => {}
            }
        }
    }

    pub(super) fn close(&self) {
        lock(&self.state).closed = true;
        self.changed.notify_all();
    }

    fn run(&self) {
        loop {
            self.expire_due();
            let mut state = lock(&self.state);
            if state.closed {
                return;
            }
            let now = state.time.read(&*self.clock);
            let wait = match state.due.first_key_value() {
                Some(((deadline, _), _)) => deadline.saturating_sub(now),
                None => IDLE_WAIT,
            };
            if !wait.is_zero() {
                drop(self.changed.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// How long the thread sleeps when there is no lease; a new one wakes it.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

impl State {
    fn insert(&mut self, deadline: Duration, ticket: Ticket, scheduled: Scheduled) {
        self.scheduled_at.insert(ticket, deadline);
        self.due.insert((deadline, ticket), scheduled);
    }

    fn pop_due(&mut self, now: Duration) -> Option<(Ticket, Scheduled)> {
        let first = self.due.first_entry().filter(|first| first.key().0 <= now)?;
        let ((_, ticket), scheduled) = first.remove_entry();
        self.scheduled_at.remove(&ticket);
        Some((ticket, scheduled))
    }
}
