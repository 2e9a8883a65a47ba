use super::expiry::{ExpiryQueue, Ticket};
use super::ready;
use crate::catalog::{Holder, Service};
use crate::{BoxFuture, Endpoint, LeaseHandle, RegistryError};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Keeps an endpoint in a [`LocalRegistry`](super::LocalRegistry); dropping it takes the endpoint out, unless the
/// instance has been registered again since.
#[must_use = "dropping the lease takes the endpoint out of the registry"]
pub struct LocalLease {
    service: Arc<Service>,
    endpoint: Arc<Endpoint>,
    holder: Holder,
    ttl: Option<Ttl>,
    released: bool,
}

struct Ttl {
    queue: Arc<ExpiryQueue>,
    ticket: Ticket,
    ttl: Duration,
}

impl LocalLease {
    pub(super) fn new(service: Arc<Service>, endpoint: Arc<Endpoint>, holder: Holder) -> Self {
        Self { service, endpoint, holder, ttl: None, released: false }
    }

    pub(super) fn with_ttl(mut self, queue: Arc<ExpiryQueue>, ticket: Ticket, ttl: Duration) -> Self {
        self.ttl = Some(Ttl { queue, ticket, ttl });
        self
    }

    /// The endpoint that was registered.
    pub fn endpoint(&self) -> &Arc<Endpoint> {
        &self.endpoint
    }

    /// Whether the endpoint is still in the registry by this lease.
    pub fn is_held(&self) -> bool {
        self.service.is_held_by(self.endpoint.instance(), self.holder)
    }

    /// Begins the time to live anew. Without one it only tells whether the endpoint is still held.
    ///
    /// # Errors
    /// [`RegistryError::LeaseLost`] when the lease no longer holds the endpoint.
    pub fn renew(&self) -> Result<(), RegistryError> {
        let held = match &self.ttl {
            Some(Ttl { queue, ttl, .. }) => {
                let deadline = queue.now().saturating_add(*ttl);
                self.service.renew(self.endpoint.instance(), self.holder, deadline)
            }
            None => self.is_held(),
        };
        if held { Ok(()) } else { Err(self.lost()) }
    }

    /// Takes the endpoint out.
    ///
    /// # Errors
    /// [`RegistryError::LeaseLost`] when it was not this lease's any more; the registry is as it was.
    pub fn deregister(mut self) -> Result<(), RegistryError> {
        if self.release() { Ok(()) } else { Err(self.lost()) }
    }

    fn release(&mut self) -> bool {
        self.released = true;
        if let Some(Ttl { queue, ticket, .. }) = &self.ttl {
            queue.forget(*ticket);
        }
        self.service.release(&self.endpoint, self.holder)
    }

    fn lost(&self) -> RegistryError {
        let (service, instance) = (self.endpoint.service().clone(), self.endpoint.instance().clone());
        RegistryError::LeaseLost { service, instance }
    }
}

impl Drop for LocalLease {
    fn drop(&mut self) {
        if !self.released {
            self.release();
        }
    }
}

impl fmt::Debug for LocalLease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LocalLease").field(&self.endpoint).finish()
    }
}

impl LeaseHandle for LocalLease {
    fn endpoint(&self) -> &Arc<Endpoint> {
        self.endpoint()
    }

    fn renew(&self) -> Result<(), RegistryError> {
        self.renew()
    }

    fn deregister(self: Box<Self>) -> BoxFuture<'static, Result<(), RegistryError>> {
        ready((*self).deregister())
    }
}
