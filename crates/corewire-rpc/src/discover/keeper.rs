//! Keeps a server in its registry.

use std::future::Future;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use corewire_discovery::{Endpoint, Lease, Registry, RegistryError};
use corewire_runtime::sleep;
use futures_channel::oneshot;
use futures_lite::future::or;

use super::registration::Registration;

/// The task of one registration, on a worker of the server.
pub(super) struct Keeper {
    pub(super) registration: Registration,
    pub(super) endpoints: Vec<Arc<Endpoint>>,
    pub(super) started: mpsc::Sender<Result<(), RegistryError>>,
    /// Ready when the server stops, or is gone.
    pub(super) stop: oneshot::Receiver<()>,
    /// Dropped when all is deregistered.
    pub(super) _done: mpsc::Sender<()>,
}

/// A service of the server in the registry.
struct Entry {
    endpoint: Arc<Endpoint>,
    lease: Option<Lease>,
    /// A lease was lost; if somebody else has the instance by now, it is left to him.
    was_lost: bool,
}

/// How long to wait before a registration that failed is tried again.
const RETRY: Duration = Duration::from_millis(500);

impl Keeper {
    pub(super) async fn run(self) {
        let Self { registration, endpoints, started, mut stop, _done } = self;
        let mut registry = None;
        let entry = |endpoint| Entry { endpoint, lease: None, was_lost: false };
        let mut entries: Vec<Entry> = endpoints.into_iter().map(entry).collect();
        let mut started = Some(started);
        loop {
            let attempt = async {
                let registry: &Arc<dyn Registry> = match &mut registry {
                    Some(registry) => registry,
                    closed => closed.insert(registration.source.clone().open().await?),
                };
                registration.tend(&**registry, &mut entries).await
            };
            let Some(result) = unless(&mut stop, attempt).await else { break };
            let is_fatal = result.as_ref().is_err_and(|error| !is_passing(error));
            if let Err(error) = &result {
                tracing::warn!(%error, "the server cannot be registered now");
            }
            if let Some(started) = started.take() {
                // What passes is not held against the start.
                let told = if is_fatal { result.clone() } else { Ok(()) };
                let is_late = started.send(told).is_err();
                if is_fatal && is_late {
                    tracing::error!("the server goes on without being registered");
                }
                if is_fatal {
                    return;
                }
            }
            let wait = if result.is_ok() { registration.renew_every() } else { RETRY };
            if unless(&mut stop, sleep(wait)).await.is_none() {
                break;
            }
        }
        let leases: Vec<_> = entries.into_iter().filter_map(|entry| entry.lease).collect();
        // All are begun before the first is waited for.
        let ends: Vec<_> =
            leases.into_iter().map(|lease| corewire_runtime::spawn_local(lease.deregister())).collect();
        for end in ends {
            if let Ok(Err(error)) = end.await {
                tracing::debug!(%error, "deregistering");
            }
        }
    }
}

impl Registration {
    /// Registers what is not, renews what is. Goes on after an error, and tells the last one.
    async fn tend(&self, registry: &dyn Registry, entries: &mut [Entry]) -> Result<(), RegistryError> {
        let mut result = Ok(());
        for entry in entries {
            if entry.lease.as_ref().is_some_and(|lease| lease.renew().is_err()) {
                (entry.lease, entry.was_lost) = (None, true);
            } else if entry.lease.is_some() {
                continue;
            }
            if let Err(error) = self.register(registry, entry).await {
                result = Err(error);
            }
        }
        result
    }

    async fn register(&self, registry: &dyn Registry, entry: &mut Entry) -> Result<(), RegistryError> {
        let endpoint = &entry.endpoint;
        let (service, instance) = (endpoint.service(), endpoint.instance());
        if entry.was_lost {
            let known = registry.discover(service).await?;
            if known.iter().any(|other| other.instance() == instance) {
                tracing::debug!(%service, %instance, "registered by somebody else");
                return Ok(());
            }
        }
        entry.lease = Some(registry.register(endpoint.clone(), self.options()).await?);
        entry.was_lost = false;
        Ok(())
    }
}

/// Whether the same may be granted later.
fn is_passing(error: &RegistryError) -> bool {
    match error {
        // A file that is there could not be written to either.
        RegistryError::Unreachable { kind, .. } => *kind != "file",
        RegistryError::Timeout { .. } | RegistryError::LeaseLost { .. } => true,
        _ => false,
    }
}

/// The future's result, or `None` when it is time to stop.
async fn unless<T>(stop: &mut oneshot::Receiver<()>, future: impl Future<Output = T>) -> Option<T> {
    or(
        async {
            let _ = stop.await;
            None
        },
        async { Some(future.await) },
    )
    .await
}
