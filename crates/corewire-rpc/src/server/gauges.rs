//! What a server holds, over all its workers.

use std::sync::{Arc, Mutex, PoisonError};

use corewire_runtime::WorkerHandle;
use futures_channel::oneshot;

use crate::gauges::Gauges;
use crate::link::{self, Group};

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
/// corewire::block_on(channel.unary("Echo/echo", "Hello"))?;
/// let now = corewire::block_on(gauges.read());
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
