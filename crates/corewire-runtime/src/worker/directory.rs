//! The workers of this process by name.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use super::{WorkerId, WorkerShared};

type Workers = HashMap<WorkerId, Arc<WorkerShared>>;

fn workers() -> MutexGuard<'static, Workers> {
    static WORKERS: LazyLock<Mutex<Workers>> = LazyLock::new(Mutex::default);
    WORKERS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn add(worker: &Arc<WorkerShared>) {
    workers().insert(worker.id, worker.clone());
}

/// The worker has stopped.
pub(super) fn remove(worker: WorkerId) {
    let removed = workers().remove(&worker);
    // What is dropped with it may look one up.
    drop(removed);
}

pub(super) fn find(worker: WorkerId) -> Option<Arc<WorkerShared>> {
    workers().get(&worker).cloned()
}
