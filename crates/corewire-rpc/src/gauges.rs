//! What servers and channels hold at a moment.

use std::iter::Sum;
use std::sync::{Arc, Mutex, PoisonError};

use corewire_runtime::WorkerHandle;
use futures_channel::oneshot;

use crate::link::{self, Group};

/// What a server or a channel holds at a moment. With nothing in flight everything but `connections` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// Connections that stand.
    pub connections: usize,
    /// Calls of which a half is open, those included that this side gave up and whose end the peer still owes.
    pub calls: usize,
    /// Streams of the `STREAM_*` family of which a half is open, those included that this side gave up.
    pub streams: usize,
    /// Calls and streams that somebody here holds, even if they are over: a handler that runs, a caller that waits, an
    /// end of a stream. Unary calls that are answered at once are never held by a server.
    pub held: usize,
    /// Bytes that are held of what was received: messages that wait for who takes them, and of calls whose handler waits
    /// its request, its metadata and itself. Counted by the memory that they occupy; see [`Settings::max_buffered`].
    ///
    /// [`Settings::max_buffered`]: crate::Settings::max_buffered
    pub buffered_bytes: usize,
    /// Bytes received of frames that are not whole, or whose turn has not come.
    pub unread_bytes: usize,
    /// Bytes that wait to be sent.
    pub unsent_bytes: usize,
}

impl Gauges {
    /// Nothing is in flight, and nothing waits to be read or sent.
    pub fn is_idle(&self) -> bool {
        *self == Self { connections: self.connections, ..Self::default() }
    }
}

impl Sum for Gauges {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            connections: sum.connections + one.connections,
            calls: sum.calls + one.calls,
            streams: sum.streams + one.streams,
            held: sum.held + one.held,
            buffered_bytes: sum.buffered_bytes.saturating_add(one.buffered_bytes),
            unread_bytes: sum.unread_bytes + one.unread_bytes,
            unsent_bytes: sum.unsent_bytes + one.unsent_bytes,
        })
    }
}

/// Asks a server what it holds. Made by [`RpcServer::gauges`](crate::RpcServer::gauges) before the server starts; cheap
/// to clone, usable from any thread.
///
/// ```
/// use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
///
/// let server = RpcServer::bind("tcp://127.0.0.1:0")
///     .service(Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) }))
///     .workers(1);
/// let gauges = server.gauges();
/// let server = server.start()?;
///
/// let channel = Channel::to(server.uri()).build()?;
/// corewire::wait(channel.unary("Echo/echo", "Hello"))?;
/// let now = corewire::wait(gauges.read());
/// assert_eq!(now.connections, 1);
/// assert!(now.is_idle(), "{now:?}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct ServerGauges {
    group: Group,
    workers: Workers,
}

impl ServerGauges {
    pub(crate) fn new() -> Self {
        Self { group: Group::next(), workers: Workers::default() }
    }

    /// What the server holds now, over all workers. All 0 before it has started and after it has stopped.
    pub async fn read(&self) -> Gauges {
        let asked: Vec<_> = self.workers.all().into_iter().filter_map(|worker| self.ask(&worker)).collect();
        let mut all = Vec::with_capacity(asked.len());
        for answer in asked {
            // A worker that has stopped holds nothing.
            all.push(answer.await.unwrap_or_default());
        }
        all.into_iter().sum()
    }

    fn ask(&self, worker: &WorkerHandle) -> Option<oneshot::Receiver<Gauges>> {
        let (sender, receiver) = oneshot::channel();
        let group = self.group;
        let asked = worker.run(move || {
            // Whoever asked may have gone.
            let _ = sender.send(link::gauges(group));
        });
        asked.ok().map(|()| receiver)
    }

    pub(crate) const fn group(&self) -> Group {
        self.group
    }

    pub(crate) const fn workers(&self) -> &Workers {
        &self.workers
    }
}

/// The workers on which a server has had connections.
#[derive(Debug, Clone, Default)]
pub(crate) struct Workers(Arc<Mutex<Vec<WorkerHandle>>>);

impl Workers {
    /// Adds the one that calls, if it is not among them.
    pub(crate) fn add_current(&self) {
        let Some(current) = WorkerHandle::current() else { return };
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.iter().all(|worker| worker.id() != current.id()) {
            all.push(current);
        }
    }

    fn all(&self) -> Vec<WorkerHandle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
