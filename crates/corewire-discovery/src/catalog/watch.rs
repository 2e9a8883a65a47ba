use super::service::Service;
use crate::{Endpoint, Snapshot, lock};
use futures_core::Stream;
use std::collections::VecDeque;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// One step in the life of a service, as seen by a [`Watch`].
#[derive(Debug, Clone)]
pub struct Event {
    /// The service's version after this step. It counts up by one per change; after a [`Change::Reset`] it may
    /// have jumped.
    pub version: u64,
    /// What happened.
    pub change: Change,
}

/// What happened to a service.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Change {
    /// Forget what was known, this is how it stands. The first event of every watch, and the one that takes the
    /// place of all others when the watcher was too slow to take them one by one.
    Reset(Arc<Snapshot>),
    /// A new instance.
    Added(Arc<Endpoint>),
    /// An instance changed its address, weight, zone or tags.
    Updated {
        /// As it was.
        before: Arc<Endpoint>,
        /// As it is.
        after: Arc<Endpoint>,
    },
    /// An instance is gone.
    Removed(Arc<Endpoint>),
}

/// The changes of one service, each exactly once and in order, beginning with a [`Change::Reset`].
///
/// It is a [`Stream`] that any executor can poll; [`Watch::recv_timeout`] waits without one. It ends when the
/// registry is gone. A watcher that leaves more than its capacity of events untaken gets a fresh
/// [`Change::Reset`] in their place, so that memory stays bounded.
pub struct Watch {
    service: Arc<Service>,
    subscriber: Arc<Subscriber>,
}

impl Watch {
    pub(crate) fn new(service: Arc<Service>, subscriber: Arc<Subscriber>) -> Self {
        Self { service, subscriber }
    }

    /// Name of the service watched.
    pub fn service(&self) -> &Arc<str> {
        self.service.name()
    }

    /// The next event, if one is there already.
    pub fn try_next(&mut self) -> Option<Event> {
        lock(&self.subscriber.queue).events.pop_front()
    }

    /// Waits for the next event on this thread; `None` when the time is up or the registry is gone.
    pub fn recv_timeout(&mut self, timeout: Duration) -> Option<Event> {
        let deadline = Instant::now().checked_add(timeout);
        let mut queue = lock(&self.subscriber.queue);
        loop {
            if let Some(event) = queue.events.pop_front() {
                return Some(event);
            }
            let left = match deadline {
                Some(deadline) => deadline.saturating_duration_since(Instant::now()),
                None => timeout,
            };
            if queue.closed || left.is_zero() {
                return None;
            }
            let waited = self.subscriber.arrived.wait_timeout(queue, left);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The next event; `None` when the registry is gone. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<Event> {
        std::future::poll_fn(|cx| Pin::new(&mut *self).poll_next(cx)).await
    }
}

impl Stream for Watch {
    type Item = Event;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Event>> {
        let mut queue = lock(&self.subscriber.queue);
        if let Some(event) = queue.events.pop_front() {
            return Poll::Ready(Some(event));
        }
        if queue.closed {
            return Poll::Ready(None);
        }
        match &mut queue.waker {
            Some(waker) => waker.clone_from(cx.waker()),
            None => queue.waker = Some(cx.waker().clone()),
        }
        Poll::Pending
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.service.unwatch(&self.subscriber);
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("service", self.service()).finish_non_exhaustive()
    }
}

/// The queue between a service and one watcher.
#[derive(Debug)]
pub(crate) struct Subscriber {
    capacity: usize,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Debug)]
struct Queue {
    events: VecDeque<Event>,
    waker: Option<Waker>,
    closed: bool,
}

impl Subscriber {
    pub(crate) fn new(snapshot: Arc<Snapshot>, capacity: usize) -> Self {
        let reset = Event { version: snapshot.version(), change: Change::Reset(snapshot) };
        let queue = Queue { events: VecDeque::from([reset]), waker: None, closed: false };
        Self { capacity: capacity.max(1), queue: Mutex::new(queue), arrived: Condvar::new() }
    }

    /// Called under the service's lock, so that the order of events is the order of changes.
    pub(crate) fn push(&self, event: &Event, snapshot: &Arc<Snapshot>) -> Option<Waker> {
        let mut queue = lock(&self.queue);
        if queue.events.len() < self.capacity {
            queue.events.push_back(event.clone());
        } else {
            queue.events.clear();
            let change = Change::Reset(snapshot.clone());
            queue.events.push_back(Event { version: snapshot.version(), change });
        }
        self.arrived.notify_one();
        queue.waker.take()
    }

    pub(crate) fn close(&self) {
        let mut queue = lock(&self.queue);
        queue.closed = true;
        self.arrived.notify_one();
        let waker = queue.waker.take();
        drop(queue);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
