//! Service discovery and load balancing for Corewire.
#![forbid(unsafe_code)]

mod balance;
mod catalog;
mod clock;
#[cfg(feature = "dns")]
mod dns;
mod endpoint;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod local;
mod outlier;
mod record;
mod registry;
mod snapshot;

pub use balance::{
    Balancer, ConsistentHash, Flight, LeastInFlight, Random, RoundRobin, SmoothWeighted, Subset, TwoChoices,
    WeightedRandom, ZoneAware,
};
pub use catalog::{Catalog, CatalogLimits, Change, Event, Lookup, Reader, ServiceKey, Watch};
pub use clock::{Clock, SystemClock, VirtualClock};
#[cfg(feature = "dns")]
pub use dns::{DnsOptions, DnsRegistry};
pub use endpoint::{DEFAULT_WEIGHT, Endpoint, MAX_ADDRESS_BYTES, MAX_NAME_BYTES, MAX_TAGS};
pub use error::{EndpointError, RegistryError};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdRegistry, EtcdTls};
pub use file::{FileOptions, FileRegistry};
pub use local::{LocalLease, LocalRegistry, MAX_TTL, MIN_TTL};
pub use outlier::{OutlierConfig, OutlierDetector};
pub use registry::{BoxFuture, Lease, LeaseHandle, RegisterOptions, Registry};
pub use snapshot::{Snapshot, SnapshotId};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even after a panic elsewhere: nothing here is left half done when it panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
