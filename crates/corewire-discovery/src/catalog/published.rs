use crate::Snapshot;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock, TryLockError};

/// The latest snapshot of a service: one writer at a time, any number of readers that never wait for it.
///
/// There are two places, and the snapshot of version *v* is in place *v* mod 2. The writer fills the place that
/// readers are not sent to and then raises the version. A reader finds its place locked only when two changes were
/// made since it read the version, and then reads it again; so somebody always gets on.
#[derive(Debug)]
pub(super) struct Published {
    version: AtomicU64,
    places: [RwLock<Arc<Snapshot>>; 2],
}

impl Published {
    pub(super) fn new(snapshot: Arc<Snapshot>) -> Self {
        let version = AtomicU64::new(snapshot.version());
        Self { version, places: [RwLock::new(snapshot.clone()), RwLock::new(snapshot)] }
    }

    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    #[inline]
    pub(super) fn load(&self) -> Arc<Snapshot> {
        loop {
            match self.place(self.version()).try_read() {
                Ok(snapshot) => return snapshot.clone(),
                Err(TryLockError::Poisoned(poisoned)) => return poisoned.into_inner().clone(),
                Err(TryLockError::WouldBlock) => std::hint::spin_loop(),
            }
        }
    }

    /// Publishes the next version and hands back the one before the last. The caller is the only writer.
    pub(super) fn store(&self, next: Arc<Snapshot>) -> Arc<Snapshot> {
        let version = next.version();
        debug_assert_eq!(version, self.version() + 1);
        let mut place = self.place(version).write().unwrap_or_else(PoisonError::into_inner);
        let replaced = std::mem::replace(&mut *place, next);
        drop(place);
        self.version.store(version, Ordering::Release);
        replaced
    }

    fn place(&self, version: u64) -> &RwLock<Arc<Snapshot>> {
        &self.places[(version % 2) as usize]
    }
}
