use super::published::Published;
use super::watch::{Event, Subscriber, Watch};
use crate::snapshot::{Snapshot, next_series};
use crate::{Change, Endpoint, EndpointError, RegistryError, lock};
use hashbrown::{DefaultHashBuilder, HashTable};
use smallvec::SmallVec;
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Waker;
use std::time::Duration;

/// The endpoints of one service: a snapshot for readers, and behind a lock what changes need.
#[derive(Debug)]
pub(crate) struct Service {
    name: Arc<str>,
    catalog: u64,
    published: Published,
    retired: AtomicBool,
    pins: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// The published snapshot.
    snapshot: Arc<Snapshot>,
    /// One that is no longer published, to be made anew for the next change if no reader has it any more.
    spare: Option<Arc<Snapshot>>,
    index: HashTable<Entry>,
    hasher: DefaultHashBuilder,
    last_holder: u64,
    /// The endpoint that was given back last: it is likely to come back.
    released: Option<Arc<Endpoint>>,
    subscribers: Vec<Arc<Subscriber>>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    position: usize,
    holder: Holder,
    deadline: Option<Duration>,
}

/// Says which registration an endpoint is from, so that an older lease cannot touch a newer registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Holder(u64);

/// The service was taken out of its catalog; look it up again.
#[derive(Debug)]
pub(crate) struct Retired;

/// Why an endpoint was not put.
#[derive(Debug)]
pub(crate) enum PutError {
    Retired,
    Full,
    Endpoint(EndpointError),
}

impl From<EndpointError> for PutError {
    fn from(error: EndpointError) -> Self {
        Self::Endpoint(error)
    }
}

/// What became of a lease that was asked about.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Expiry {
    Removed,
    NotYet(Duration),
    Gone,
}

/// Wakers to call once the service's lock is released: a waker may come back into the registry.
type Wakers = SmallVec<[Waker; 2]>;

impl Service {
    pub(crate) fn new(name: Arc<str>, catalog: u64) -> Self {
        let snapshot = Arc::new(Snapshot::empty(name.clone(), next_series()));
        Self {
            name,
            catalog,
            published: Published::new(snapshot.clone()),
            retired: AtomicBool::new(false),
            pins: AtomicUsize::new(0),
            state: Mutex::new(State {
                snapshot,
                spare: None,
                index: HashTable::new(),
                hasher: DefaultHashBuilder::default(),
                last_holder: 0,
                released: None,
                subscribers: Vec::new(),
            }),
        }
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.name
    }

    pub(crate) fn catalog(&self) -> u64 {
        self.catalog
    }

    #[inline]
    pub(crate) fn is_newer_than(&self, snapshot: &Snapshot) -> bool {
        self.published.version() > snapshot.version()
    }

    pub(crate) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn snapshot(&self) -> Arc<Snapshot> {
        self.published.load()
    }

    /// Adds or updates an endpoint; an older registration of the instance loses its hold on it.
    pub(crate) fn put(
        &self,
        endpoint: Arc<Endpoint>,
        deadline: Option<Duration>,
        limit: usize,
    ) -> Result<Holder, PutError> {
        self.put_locked(lock(&self.state), endpoint, deadline, limit)
    }

    /// As [`Service::put`], of an endpoint with nothing but names. One that was given back is put as it was, without
    /// allocation.
    pub(crate) fn put_named(
        &self,
        instance: &str,
        address: &str,
        limit: usize,
    ) -> Result<(Arc<Endpoint>, Holder), PutError> {
        let state = lock(&self.state);
        let endpoint = match &state.released {
            Some(known) if known.is_plain(instance, address) => known.clone(),
            _ => Arc::new(Endpoint::new(self.name.clone(), instance, address)?),
        };
        let holder = self.put_locked(state, endpoint.clone(), None, limit)?;
        Ok((endpoint, holder))
    }

    fn put_locked(
        &self,
        mut state: MutexGuard<'_, State>,
        endpoint: Arc<Endpoint>,
        deadline: Option<Duration>,
        limit: usize,
    ) -> Result<Holder, PutError> {
        if self.is_retired() {
            return Err(PutError::Retired);
        }
        state.last_holder += 1;
        let holder = Holder(state.last_holder);
        let hash = state.hash(endpoint.instance());
        let Some(entry) = state.entry(hash, endpoint.instance()) else {
            if state.index.len() >= limit {
                return Err(PutError::Full);
            }
            let pending = state.add(hash, endpoint, Entry { position: 0, holder, deadline });
            pending.publish(self, state);
            return Ok(holder);
        };
        entry.holder = holder;
        entry.deadline = deadline;
        let position = entry.position;
        if let Some(change) = state.update(position, endpoint) {
            change.publish(self, state);
        }
        Ok(holder)
    }

    /// Removes an instance, whoever registered it. Says whether it was there.
    pub(crate) fn remove(&self, instance: &str) -> bool {
        let mut state = lock(&self.state);
        let hash = state.hash(instance);
        let change = state.take(hash, instance);
        let was_there = change.is_some();
        if let Some(change) = change {
            change.publish(self, state);
        }
        was_there
    }

    /// Removes what a lease holds, and remembers it: it is likely to come back. Says whether it was still held.
    pub(crate) fn release(&self, endpoint: &Arc<Endpoint>, holder: Holder) -> bool {
        let mut state = lock(&self.state);
        let hash = state.hash(endpoint.instance());
        if state.entry(hash, endpoint.instance()).is_none_or(|entry| entry.holder != holder) {
            return false;
        }
        if state.released.as_ref().is_none_or(|known| !Arc::ptr_eq(known, endpoint)) {
            state.released = Some(endpoint.clone());
        }
        if let Some(change) = state.take(hash, endpoint.instance()) {
            change.publish(self, state);
        }
        true
    }

    /// Sets the deadline of a registration. Says whether it still holds its endpoint.
    pub(crate) fn renew(&self, instance: &str, holder: Holder, deadline: Duration) -> bool {
        let mut state = lock(&self.state);
        let hash = state.hash(instance);
        match state.entry(hash, instance) {
            Some(entry) if entry.holder == holder => {
                entry.deadline = Some(deadline);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn is_held_by(&self, instance: &str, holder: Holder) -> bool {
        let mut state = lock(&self.state);
        let hash = state.hash(instance);
        state.entry(hash, instance).is_some_and(|entry| entry.holder == holder)
    }

    /// Removes a registration whose deadline has come.
    pub(crate) fn expire(&self, instance: &str, holder: Holder, now: Duration) -> Expiry {
        let mut state = lock(&self.state);
        let hash = state.hash(instance);
        let Some(entry) = state.entry(hash, instance).filter(|entry| entry.holder == holder) else {
            return Expiry::Gone;
        };
        match entry.deadline {
            Some(deadline) if deadline > now => return Expiry::NotYet(deadline),
            Some(_) => {}
            None => return Expiry::Gone,
        }
        if let Some(change) = state.take(hash, instance) {
            change.publish(self, state);
        }
        Expiry::Removed
    }

    /// Begins a watch with the published snapshot.
    pub(crate) fn watch(self: &Arc<Self>, capacity: usize, limit: usize) -> Result<Watch, WatchError> {
        let mut state = lock(&self.state);
        if self.is_retired() {
            return Err(WatchError::Retired);
        }
        if state.subscribers.len() >= limit {
            let full = RegistryError::Full { what: "watches of one service", limit };
            return Err(WatchError::Refused(full));
        }
        let subscriber = Arc::new(Subscriber::new(state.snapshot.clone(), capacity));
        state.subscribers.push(subscriber.clone());
        Ok(Watch::new(self.clone(), subscriber))
    }

    pub(crate) fn unwatch(&self, subscriber: &Arc<Subscriber>) {
        lock(&self.state).subscribers.retain(|other| !Arc::ptr_eq(other, subscriber));
    }

    /// Ends every watch: no change will ever come.
    pub(crate) fn close(&self) {
        let subscribers = std::mem::take(&mut lock(&self.state).subscribers);
        for subscriber in subscribers {
            subscriber.close();
        }
    }

    /// Keeps the service in its catalog for as long as the pin is held.
    pub(crate) fn pin(&self) -> Result<(), Retired> {
        let _state = lock(&self.state);
        if self.is_retired() {
            return Err(Retired);
        }
        self.pins.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(crate) fn unpin(&self) {
        self.pins.fetch_sub(1, Ordering::Relaxed);
    }

    /// Marks the service as taken out if nobody has an interest in it.
    pub(crate) fn retire_if_idle(&self) -> bool {
        let mut state = lock(&self.state);
        let idle =
            state.index.is_empty() && state.subscribers.is_empty() && self.pins.load(Ordering::Relaxed) == 0;
        if idle {
            self.retired.store(true, Ordering::Release);
            // A new version, so that those who remember the last one come to see that it is over.
            let next = state.change(|_| {});
            Pending { next, change: None }.publish(self, state);
        }
        idle
    }
}

/// Why a watch was not begun.
#[derive(Debug)]
pub(crate) enum WatchError {
    Retired,
    Refused(RegistryError),
}

impl State {
    fn hash(&self, instance: &str) -> u64 {
        self.hasher.hash_one(instance)
    }

    fn entry(&mut self, hash: u64, instance: &str) -> Option<&mut Entry> {
        let snapshot = &self.snapshot;
        self.index.find_mut(hash, |entry| is_instance(snapshot, entry.position, instance))
    }

    /// The next version, with a change made to it that nobody sees yet.
    fn change(&mut self, change: impl FnOnce(&mut Snapshot)) -> Arc<Snapshot> {
        if let Some(mut spare) = self.spare.take()
            && let Some(next) = Arc::get_mut(&mut spare)
        {
            next.become_successor_of(&self.snapshot);
            change(next);
            return spare;
        }
        let mut next = self.snapshot.successor();
        change(&mut next);
        Arc::new(next)
    }

    fn add(&mut self, hash: u64, endpoint: Arc<Endpoint>, entry: Entry) -> Pending {
        let change = self.is_watched().then(|| Change::Added(endpoint.clone()));
        let position = self.snapshot.len();
        let next = self.change(|next| next.push(endpoint));
        let hasher = &self.hasher;
        self.index.insert_unique(hash, Entry { position, ..entry }, |entry| {
            next.get(entry.position).map_or(0, |endpoint| hasher.hash_one(&**endpoint.instance()))
        });
        Pending { next, change }
    }

    /// `None` when the endpoint is what it was.
    fn update(&mut self, position: usize, endpoint: Arc<Endpoint>) -> Option<Pending> {
        let before = self.snapshot.get(position)?;
        if Arc::ptr_eq(before, &endpoint) || *before == endpoint {
            return None;
        }
        let updated = || Change::Updated { before: before.clone(), after: endpoint.clone() };
        let change = self.is_watched().then(updated);
        let next = self.change(|next| next.replace(position, endpoint));
        Some(Pending { next, change })
    }

    fn take(&mut self, hash: u64, instance: &str) -> Option<Pending> {
        let snapshot = &self.snapshot;
        let find = |entry: &Entry| is_instance(snapshot, entry.position, instance);
        let (entry, _) = self.index.find_entry(hash, find).ok()?.remove();
        let last = snapshot.len().checked_sub(1)?;
        if entry.position != last {
            let moved_hash = self.hasher.hash_one(&**snapshot.get(last)?.instance());
            self.index.find_mut(moved_hash, |entry| entry.position == last)?.position = entry.position;
        }
        let removed = snapshot.get(entry.position)?;
        let change = self.is_watched().then(|| Change::Removed(removed.clone()));
        let next = self.change(|next| next.swap_remove(entry.position));
        Some(Pending { next, change })
    }

    fn is_watched(&self) -> bool {
        !self.subscribers.is_empty()
    }
}

fn is_instance(snapshot: &Snapshot, position: usize, instance: &str) -> bool {
    snapshot.get(position).is_some_and(|endpoint| **endpoint.instance() == *instance)
}

/// A change that is made but not yet seen by anybody.
struct Pending {
    next: Arc<Snapshot>,
    /// To tell watchers; `None` when there are none.
    change: Option<Change>,
}

impl Pending {
    /// Shows the change to readers and watchers, in this order, before any later change can be made.
    fn publish(self, service: &Service, mut state: MutexGuard<'_, State>) {
        let Self { next, change } = self;
        let version = next.version();
        let replaced = service.published.store(next.clone());
        let before = std::mem::replace(&mut state.snapshot, next);
        let unused = state.spare.replace(replaced);
        let mut wakers = Wakers::new();
        if let Some(change) = change {
            let event = Event { version, change };
            for subscriber in &state.subscribers {
                wakers.extend(subscriber.push(&event, &state.snapshot));
            }
        }
        drop(state);
        // Freed outside the lock: the last holder of a large snapshot pays for all of it.
        drop((before, unused));
        for waker in wakers {
            waker.wake();
        }
    }
}
