//! Service discovery and load balancing for Corewire.
//!
//! - A [`Registry`] is where services are written down and found: [`LocalRegistry`] in this process,
//!   [`FileRegistry`] from a TOML or JSON file, `DnsRegistry` from DNS (feature `dns`), `EtcdRegistry` in etcd
//!   (feature `etcd`; with TLS, feature `etcd-tls`). [`connect`] opens one by its address.
//! - A [`Lease`] keeps an [`Endpoint`] registered; a [`Watch`] tells the changes of a service; a [`Snapshot`] is a
//!   service at one moment. Every registry has a [`Catalog`] in memory, and a [`Lookup`] or [`Reader`] gets
//!   snapshots from it without locks, waiting or allocation.
//! - A [`Balancer`] chooses an endpoint for each call, an [`OutlierDetector`] takes those that keep failing out of
//!   use for a time, and a [`PanicMode`] keeps the last known ones in use when most of them leave at once.
//!
//! Nothing here needs a particular executor: futures are woken from the registries' own threads.
//!
//! Building the feature `etcd` needs the protocol buffers compiler `protoc` and its standard include files
//! (Debian: `protobuf-compiler` and `libprotobuf-dev`).
//!
//! ```
//! use corewire_discovery::{Balancer, Change, Endpoint, LocalRegistry, RoundRobin};
//!
//! let registry = LocalRegistry::new();
//! let mut watch = registry.watch("Echo")?;
//! let one = registry.register(Endpoint::new("Echo", "1", "10.0.0.1:7000")?)?;
//! let _two = registry.register(Endpoint::new("Echo", "2", "10.0.0.2:7000")?.with_weight(50))?;
//!
//! // On each thread that calls the service: a reader and a balancer.
//! let mut reader = registry.key("Echo")?.reader();
//! let mut balancer = RoundRobin::new();
//! let endpoints = reader.snapshot();
//! let picked = balancer.pick(endpoints, None).and_then(|position| endpoints.get(position));
//! assert!(picked.is_some());
//!
//! drop(one);
//! assert!(matches!(watch.try_next().map(|event| event.change), Some(Change::Reset(_))));
//! assert_eq!(std::iter::from_fn(|| watch.try_next()).count(), 3);
//! # Ok::<(), corewire_discovery::RegistryError>(())
//! ```
#![forbid(unsafe_code)]

mod balance;
mod catalog;
mod clock;
mod connect;
#[cfg(feature = "dns")]
mod dns;
mod endpoint;
mod error;
#[cfg(feature = "etcd")]
mod etcd;
mod file;
mod local;
mod outlier;
mod panic_mode;
mod record;
mod registry;
mod snapshot;

pub use balance::{
    Balancer, ConsistentHash, Flight, LeastInFlight, Random, RoundRobin, SmoothWeighted, Subset, TwoChoices,
    WeightedRandom, ZoneAware,
};
pub use catalog::{Catalog, CatalogLimits, Change, Event, Lookup, Reader, ServiceKey, Watch};
pub use clock::{Clock, SystemClock, VirtualClock};
pub use connect::connect;
#[cfg(feature = "dns")]
pub use dns::{DnsOptions, DnsRegistry};
pub use endpoint::{DEFAULT_WEIGHT, Endpoint, MAX_ADDRESS_BYTES, MAX_NAME_BYTES, MAX_TAGS};
pub use error::{EndpointError, RegistryError};
#[cfg(feature = "etcd")]
pub use etcd::{EtcdOptions, EtcdRegistry, EtcdTls};
pub use file::{FileOptions, FileRegistry};
pub use local::{LocalLease, LocalRegistry, MAX_SHARED, MAX_TTL, MIN_TTL};
pub use outlier::{OutlierConfig, OutlierDetector};
pub use panic_mode::{PanicConfig, PanicMode};
pub use registry::{BoxFuture, Lease, LeaseHandle, RegisterOptions, Registry};
pub use snapshot::{Snapshot, SnapshotId};

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks even after a panic elsewhere: nothing here is left half done when it panics.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
