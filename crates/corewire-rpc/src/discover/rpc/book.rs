//! What this process has registered elsewhere, and what it follows.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use corewire_discovery::{Endpoint, RegistryError};
use futures_channel::oneshot;

/// The registrations that are kept, by the numbers of their leases.
#[derive(Debug, Default)]
pub(super) struct Book {
    pub(super) held: HashMap<u64, Held>,
    /// The task that renews them runs.
    pub(super) is_renewing: bool,
}

#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) ttl_ms: u64,
    pub(super) lost: Arc<AtomicBool>,
}

/// A service that is followed.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// It is known here.
    pub(super) is_ready: bool,
    /// Who waits until it is.
    pub(super) waiting: Vec<oneshot::Sender<Result<(), RegistryError>>>,
}
