//! A handle on a channel, from any thread.

use std::any::Any;
use std::fmt;
use std::rc::Rc;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use corewire::ConnectError;
use corewire_discovery::Flight;
use corewire_driver::ThreadBound;
use corewire_runtime::{WorkerHandle, current_worker};

use super::discovered::{FlightId, Outcome};
use super::interceptor::ClientInterceptor;
use super::local::{self, LocalChannel};
use super::policy::Retry;
use super::settings::Settings;
use crate::gauges::{EndpointGauges, Gauges};
use crate::link::{self, Group};
use crate::replay::Replay;
use crate::status::Status;

/// Calls services, over connections that it makes when they are needed and makes again when they are lost.
///
/// `Send`, `Sync`, cheap to clone, and usable from any thread and any executor. It lives on one worker; calls made there
/// take the direct path, without memory of their own or a lock, others go by way of the worker's mailbox. When the last
/// clone is dropped, and the last call that it made is over, its connections are closed.
///
/// Every call ends exactly once: with its response, or with the [`Status`] that says what became of it.
/// When a connection dies all its calls fail at once; those that the server certainly never began are made again.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<Shared>,
}

struct Shared {
    worker: WorkerHandle,
    key: Group,
    /// Calls may be made several times.
    repeats: bool,
    interceptors: Arc<[Arc<dyn ClientInterceptor>]>,
    retry: Retry,
    /// Bytes of requests that its calls keep, so that they can be made again.
    kept: Arc<AtomicUsize>,
    /// What it is on its worker, once that has made it.
    local: OnceLock<ThreadBound<Rc<LocalChannel>>>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let (key, local) = (self.key, self.local.take());
        if current_worker() == Some(self.worker.id()) {
            return local::remove(key);
        }
        // A worker that has stopped has closed its channels.
        let _ = self.worker.run(move || {
            drop(local);
            local::remove(key);
        });
    }
}

impl Channel {
    /// The worker that it lives on.
    pub fn worker(&self) -> &WorkerHandle {
        &self.shared.worker
    }

    /// What it holds now: calls, streams, bytes. All 0 once its worker has stopped.
    pub async fn gauges(&self) -> Gauges {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let group = self.shared.key;
        // By the mailbox also from its own worker: nothing of a call runs then.
        let asked = self.shared.worker.run(move || {
            // Whoever asked may have gone.
            let _ = sender.send(link::gauges(group));
        });
        if asked.is_err() {
            return Gauges::default();
        }
        receiver.await.unwrap_or_default()
    }

    /// The endpoints that it has now; `None` if it follows no registry, or its worker has stopped.
    pub async fn endpoints(&self) -> Option<EndpointGauges> {
        let (sender, receiver) = futures_channel::oneshot::channel();
        let key = self.shared.key;
        let asked = self.shared.worker.run(move || {
            let discovered = local::find(key).and_then(|channel| channel.discovered.clone());
            // Whoever asked may have gone.
            let _ = sender.send(discovered.map(|discovered| discovered.endpoints()));
        });
        asked.ok()?;
        receiver.await.ok()?
    }

    /// Closes its connections. Calls in flight fail, and so do later ones.
    pub fn close(&self) {
        let key = self.shared.key;
        self.run_there(move || {
            if let Some(channel) = local::find(key) {
                channel.close();
            }
        });
    }

    #[inline]
    pub(super) fn key(&self) -> Group {
        self.shared.key
    }

    /// What keeps the requests of a call that is retried by this, or as the channel says.
    pub(super) fn replay(&self, retry: Option<Retry>) -> Arc<Replay> {
        let Shared { retry: default, kept, .. } = &*self.shared;
        Replay::new(retry.unwrap_or(*default).keep_per_call, kept.clone(), default.keep)
    }

    /// What keeps it open.
    pub(super) fn hold(&self) -> Arc<dyn Any + Send + Sync> {
        self.shared.clone()
    }

    /// What it is on its worker, for code that runs there.
    #[inline]
    pub(super) fn local(&self) -> Option<&Rc<LocalChannel>> {
        self.shared.local.get()?.get()
    }

    #[inline]
    pub(super) fn is_local(&self) -> bool {
        current_worker() == Some(self.shared.worker.id())
    }

    #[inline]
    pub(super) fn repeats(&self) -> bool {
        self.shared.repeats
    }

    #[inline]
    pub(super) fn is_watched(&self) -> bool {
        !self.shared.interceptors.is_empty()
    }

    pub(super) fn interceptors(&self) -> &[Arc<dyn ClientInterceptor>] {
        &self.shared.interceptors
    }

    /// A call that a balancer placed is over; without a result it was cancelled.
    pub(super) fn on_outcome(&self, flight: FlightId, result: Option<&Result<Bytes, Status>>) {
        let outcome = Outcome::of(result);
        let key = self.shared.key;
        self.run_there(move || {
            if let Some(discovered) = local::find(key).and_then(|channel| channel.discovered.clone()) {
                discovered.end(flight, outcome);
            }
        });
    }

    /// What counts a call with streams as in flight. On the channel's worker.
    pub(super) fn take_flight(&self, flight: FlightId) -> Option<Flight> {
        self.local()?.discovered.as_ref()?.take(flight)
    }

    /// Runs on the channel's worker: now, if that is here.
    pub(super) fn run_there(&self, act: impl FnOnce() + Send + 'static) {
        if self.is_local() {
            return act();
        }
        // A worker that has stopped has ended all of it.
        let _ = self.shared.worker.run(act);
    }
}

impl Channel {
    /// A channel with these settings, which `make` makes on its worker.
    pub(super) fn install(
        settings: Settings,
        make: impl FnOnce(Settings, WorkerHandle, Group) -> Rc<LocalChannel> + Send + 'static,
    ) -> Result<Self, ConnectError> {
        let worker = settings.net.home()?;
        let key = Group::next();
        let shared = Arc::new(Shared {
            worker: worker.clone(),
            key,
            repeats: settings.retry.is_some() || settings.hedge.is_some(),
            interceptors: settings.interceptors.clone().into(),
            retry: settings.retry.unwrap_or_default(),
            kept: Arc::default(),
            local: OnceLock::new(),
        });
        let (home, installed) = (worker.clone(), Arc::downgrade(&shared));
        let install = move || {
            let channel = make(settings, home, key);
            local::add(key, channel.clone());
            // The last of its clones may be gone, and about to tell so.
            if let Some(shared) = installed.upgrade() {
                let _ = shared.local.set(ThreadBound::new(channel));
            }
        };
        if current_worker() == Some(worker.id()) {
            install();
        } else {
            worker.run(install).map_err(|_| ConnectError::Stopped)?;
        }
        Ok(Self { shared })
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("worker", &self.shared.worker.id()).finish_non_exhaustive()
    }
}
