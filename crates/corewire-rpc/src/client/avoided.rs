//! The endpoints that a call is not to go to again.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The endpoints that the attempts of one call went to; of many, the last ones.
#[derive(Debug, Default)]
pub(crate) struct Avoided {
    members: [AtomicU64; 4],
    count: AtomicUsize,
}

impl Avoided {
    pub(super) fn add(&self, member: u64) {
        let at = self.count.fetch_add(1, Ordering::Relaxed) % self.members.len();
        self.members[at].store(member, Ordering::Relaxed);
    }

    /// Ids begin at 1.
    pub(super) fn has(&self, member: u64) -> bool {
        self.members.iter().any(|avoided| avoided.load(Ordering::Relaxed) == member)
    }
}
