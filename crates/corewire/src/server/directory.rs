//! Where the sessions of a server are, for whoever knows only their ids.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The worker of a session and its slot in that worker's list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Location {
    pub(super) worker: u32,
    pub(super) slot: u32,
}

/// Written when sessions come and go, read by sends to one of them; in shards, so that workers seldom meet.
#[derive(Debug, Default)]
pub(super) struct Directory {
    shards: [Mutex<HashMap<u64, Location>>; 16],
}

impl Directory {
    pub(super) fn insert(&self, session: u64, location: Location) {
        self.shard(session).insert(session, location);
    }

    pub(super) fn remove(&self, session: u64) {
        self.shard(session).remove(&session);
    }

    pub(super) fn find(&self, session: u64) -> Option<Location> {
        self.shard(session).get(&session).copied()
    }

    fn shard(&self, session: u64) -> MutexGuard<'_, HashMap<u64, Location>> {
        let shard = session as usize % self.shards.len();
        self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner)
    }
}
