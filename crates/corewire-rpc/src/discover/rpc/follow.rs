//! What the registry tells of a service.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use corewire_discovery::{Endpoint, LocalLease, RegistryError};
use corewire_runtime::{sleep, sleep_until};
use futures_channel::oneshot;
use futures_lite::future::or;

use super::inner::{Inner, RETRY, lock};
use super::wire::{Of, Record, SERVICE, Told};
use crate::message::Json;
use crate::status::Status;
use crate::stream::Streaming;

impl Inner {
    /// Ready when the service is known here, from then on kept up to date.
    pub(super) async fn follow(self: &Arc<Self>, service: &str) -> Result<(), RegistryError> {
        // The name is checked, and the limit of services kept.
        let name = self.mirror.key(service)?.name().clone();
        let (known, on_known) = oneshot::channel();
        let is_new = {
            let mut followed = lock(&self.followed);
            let is_new = !followed.contains_key(&name);
            let followed = followed.entry(name.clone()).or_default();
            if followed.is_ready {
                return Ok(());
            }
            followed.waiting.push(known);
            is_new
        };
        if is_new {
            let inner = Arc::downgrade(self);
            self.spawn(move || follow(inner, name))?;
        }
        on_known.await.unwrap_or(Err(RegistryError::Closed))
    }

    fn tell(&self, service: &str, result: &Result<(), RegistryError>) {
        let mut followed = lock(&self.followed);
        let Some(followed) = followed.get_mut(service) else { return };
        followed.is_ready |= result.is_ok();
        for waiting in followed.waiting.drain(..) {
            let _ = waiting.send(result.clone());
        }
    }
}

/// The service as it is known here.
struct Followers {
    inner: Weak<Inner>,
    service: Arc<str>,
    leases: HashMap<String, LocalLease>,
    /// Endpoints that were missing after an outage, and until when they are served all the same.
    absent: HashMap<String, Instant>,
}

async fn follow(inner: Weak<Inner>, service: Arc<str>) {
    let mut known = Followers { inner, service, leases: HashMap::new(), absent: HashMap::new() };
    let mut wait = RETRY;
    loop {
        let Some(inner) = known.inner.upgrade() else { return };
        let path = format!("{SERVICE}/watch");
        let of = Json(Of { service: known.service.to_string() });
        let opened = inner.channel.server_stream::<_, Json<Told>>(&*path, of).await;
        drop(inner);
        let (status, has_told) = match opened {
            Ok(told) => known.listen(told).await,
            Err(status) => (status, false),
        };
        let Some(inner) = known.inner.upgrade() else { return };
        if !inner.options.wait_for_registry {
            inner.tell(&known.service, &Err(inner.error(&status)));
        }
        drop(inner);
        tracing::debug!(service = %known.service, %status, "the registry is away");
        // One that refuses is not asked as often as one that is away.
        wait = if has_told { RETRY } else { (wait * 2).min(RETRY * 4) };
        sleep(wait).await;
    }
}

impl Followers {
    /// Takes in what is told, until the stream ends.
    async fn listen(&mut self, mut told: Streaming<Json<Told>>) -> (Status, bool) {
        let mut is_first = true;
        loop {
            let next = match self.absent.values().min() {
                None => told.next().await,
                Some(&until) => {
                    let next = or(async { Some(told.next().await) }, async {
                        sleep_until(until).await;
                        None
                    });
                    let Some(next) = next.await else {
                        self.expire();
                        continue;
                    };
                    next
                }
            };
            let change = match next {
                Some(Ok(Json(change))) => change,
                Some(Err(status)) => return (status, !is_first),
                None => return (Status::unavailable("the registry ended the watch"), !is_first),
            };
            self.apply(change, is_first);
            if std::mem::replace(&mut is_first, false)
                && let Some(inner) = self.inner.upgrade()
            {
                inner.tell(&self.service, &Ok(()));
            }
        }
    }

    fn apply(&mut self, change: Told, is_first: bool) {
        match change {
            Told::Put { endpoint } => self.put(endpoint),
            Told::Removed { instance } => {
                self.absent.remove(&instance);
                self.leases.remove(&instance);
            }
            Told::Reset { endpoints } => {
                let grace = self.inner.upgrade().map_or(Duration::ZERO, |inner| inner.options.absence_grace);
                let before: Vec<String> = self.leases.keys().cloned().collect();
                let now: std::collections::HashSet<String> =
                    endpoints.iter().map(|endpoint| endpoint.instance.clone()).collect();
                endpoints.into_iter().for_each(|endpoint| self.put(endpoint));
                for missing in before.into_iter().filter(|instance| !now.contains(instance)) {
                    if is_first {
                        self.absent.entry(missing).or_insert_with(|| corewire_driver::clock::now() + grace);
                    } else if !self.absent.contains_key(&missing) {
                        self.leases.remove(&missing);
                    }
                }
                self.expire();
            }
        }
    }

    fn put(&mut self, record: Record) {
        let instance = record.instance.clone();
        let Some(inner) = self.inner.upgrade() else { return };
        self.absent.remove(&instance);
        let lease = Endpoint::try_from(record)
            .map_err(RegistryError::from)
            .and_then(|endpoint| inner.mirror.register(endpoint));
        match lease {
            // The older lease holds nothing any more.
            Ok(lease) => drop(self.leases.insert(instance, lease)),
            Err(error) => {
                tracing::warn!(service = %self.service, %instance, %error, "endpoint left out");
                self.leases.remove(&instance);
            }
        }
    }

    fn expire(&mut self) {
        let now = corewire_driver::clock::now();
        let leases = &mut self.leases;
        self.absent.retain(|instance, until| {
            let is_due = *until <= now;
            if is_due {
                leases.remove(instance);
            }
            !is_due
        });
    }
}
