//! Leases of endpoints that are registered elsewhere.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use corewire_discovery::{BoxFuture, Endpoint, LeaseHandle, RegistryError};
use corewire_runtime::sleep;
use futures_channel::oneshot;

use super::book::Held;
use super::inner::{Inner, RETRY, lock};
use super::wire::{Renew, Renewed};

/// Leases renewed by one call.
const BATCH: usize = 1_000;

/// Numbers that JSON carries everywhere.
const LEASE_BITS: u32 = 53;

/// Keeps an endpoint in the registry.
pub(super) struct RpcLease {
    inner: Arc<Inner>,
    endpoint: Arc<Endpoint>,
    lease: u64,
    lost: Arc<AtomicBool>,
    is_released: bool,
}

impl RpcLease {
    pub(super) async fn register(
        inner: &Arc<Inner>,
        endpoint: Arc<Endpoint>,
        ttl_ms: u64,
    ) -> Result<Self, RegistryError> {
        let lease = corewire_driver::entropy::u64() >> (u64::BITS - LEASE_BITS);
        // From here on it is taken back, whatever becomes of the call.
        let mut this = Self {
            inner: inner.clone(),
            endpoint: endpoint.clone(),
            lease,
            lost: Arc::default(),
            is_released: false,
        };
        inner.put(&endpoint, ttl_ms, lease).await?;
        let is_first = {
            let mut book = lock(&inner.book);
            book.held.insert(lease, Held { endpoint, ttl_ms, lost: this.lost.clone() });
            !std::mem::replace(&mut book.is_renewing, true)
        };
        if is_first {
            let weak = Arc::downgrade(inner);
            if let Err(error) = inner.spawn(move || renew(weak)) {
                this.is_released = true;
                return Err(error);
            }
        }
        Ok(this)
    }

    /// Forgets it here, and has the registry do so.
    fn release(&mut self, done: Option<oneshot::Sender<Result<(), RegistryError>>>) {
        self.is_released = true;
        let was_lost = self.lost.load(Ordering::Acquire);
        lock(&self.inner.book).held.remove(&self.lease);
        let (inner, lease, endpoint) = (self.inner.clone(), self.lease, self.endpoint.clone());
        // When the worker has stopped the lease runs out.
        let _ = self.inner.spawn(move || async move {
            let result = match inner.take_back(lease).await {
                Ok(was_held) if was_held && !was_lost => Ok(()),
                Ok(_) => Err(lease_lost(&endpoint)),
                Err(error) => Err(error),
            };
            if let Some(done) = done {
                let _ = done.send(result);
            }
        });
    }
}

impl LeaseHandle for RpcLease {
    fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    fn renew(&self) -> Result<(), RegistryError> {
        if self.lost.load(Ordering::Acquire) { Err(lease_lost(&self.endpoint)) } else { Ok(()) }
    }

    fn deregister(mut self: Box<Self>) -> BoxFuture<'static, Result<(), RegistryError>> {
        let (done, on_done) = oneshot::channel();
        self.release(Some(done));
        Box::pin(async move { on_done.await.unwrap_or(Err(RegistryError::Closed)) })
    }
}

impl Drop for RpcLease {
    fn drop(&mut self) {
        if !self.is_released {
            self.release(None);
        }
    }
}

fn lease_lost(endpoint: &Endpoint) -> RegistryError {
    RegistryError::LeaseLost { service: endpoint.service().clone(), instance: endpoint.instance().clone() }
}

/// Renews all that is held, and registers again what the registry has forgotten.
async fn renew(inner: Weak<Inner>) {
    let mut is_away = false;
    loop {
        let wait = {
            let Some(inner) = inner.upgrade() else { return };
            let shortest = lock(&inner.book).held.values().map(|held| held.ttl_ms).min();
            let third = Duration::from_millis(shortest.unwrap_or(u64::MAX) / 3).min(Duration::from_secs(1));
            if is_away { third.min(RETRY) } else { third }
        };
        sleep(wait).await;
        let Some(inner) = inner.upgrade() else { return };
        is_away = match inner.renew_all().await {
            Ok(()) => false,
            Err(error) => {
                tracing::debug!(%error, "leases are not renewed");
                true
            }
        };
    }
}

impl Inner {
    async fn renew_all(&self) -> Result<(), RegistryError> {
        let leases: Vec<u64> = lock(&self.book).held.keys().copied().collect();
        for batch in leases.chunks(BATCH) {
            let renewed: Renewed = self.call("renew", Renew { leases: batch.to_vec() }).await?;
            for lease in renewed.taken {
                if let Some(held) = lock(&self.book).held.remove(&lease) {
                    held.lost.store(true, Ordering::Release);
                }
            }
            for lease in renewed.gone {
                // It may have been given up since it was asked about.
                let Some(held) = lock(&self.book).held.get(&lease).cloned() else { continue };
                self.put(&held.endpoint, held.ttl_ms, lease).await?;
                if !lock(&self.book).held.contains_key(&lease) {
                    self.take_back(lease).await?;
                }
            }
        }
        Ok(())
    }
}
