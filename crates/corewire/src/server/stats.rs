//! Counters of a server.

use std::sync::atomic::Ordering;
use std::time::Instant;

use corewire_runtime::WorkerStats;

use super::registry::Shared;

/// What a server has done since it started. On a shared runtime the worker counters are those of all its users.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct ServerStats {
    /// When this was read.
    pub at: Instant,
    /// Sessions now.
    pub sessions: usize,
    /// The most sessions at one time.
    pub peak_sessions: usize,
    /// Sessions opened.
    pub opened: u64,
    /// Connections closed at once because there were too many, or because the memory limit of the server was near.
    pub refused: u64,
    /// Connections closed at once because their peer address had too many.
    pub refused_by_address: u64,
    /// Bytes held for its peers, if it has a memory limit beside that of its runtime (rounded up by up to 128 KiB for each
    /// worker); else for all that runs on its workers.
    pub held_bytes: u64,
    /// What its workers have done.
    pub workers: WorkerStats,
}

impl ServerStats {
    pub(super) fn new(shared: &Shared, workers: WorkerStats) -> Self {
        Self {
            at: corewire_driver::clock::now(),
            sessions: shared.live(),
            peak_sessions: shared.peak(),
            opened: shared.opened.load(Ordering::Relaxed),
            refused: shared.refused.load(Ordering::Relaxed),
            refused_by_address: shared.refused_by_address.load(Ordering::Relaxed),
            held_bytes: shared
                .options
                .memory_limit
                .as_ref()
                .map_or(workers.held_bytes(), |memory| memory.held() as u64),
            workers,
        }
    }

    /// One line for people, with the rates since `before`.
    pub fn line(&self, before: &Self) -> String {
        let seconds = self.at.saturating_duration_since(before.at).as_secs_f64().max(1e-9);
        let rate = |now: u64, then: u64| si((now - then.min(now)) as f64 / seconds);
        let (now, then) = (&self.workers, &before.workers);
        format!(
            "sessions {} (peak {}), opened {}/s, refused {}, received {}/s {}B/s, sent {}/s {}B/s",
            self.sessions,
            self.peak_sessions,
            rate(self.opened, before.opened),
            self.refused + self.refused_by_address,
            rate(now.receives, then.receives),
            rate(now.received_bytes, then.received_bytes),
            rate(now.sends, then.sends),
            rate(now.sent_bytes, then.sent_bytes),
        )
    }
}

/// A number with the prefix that keeps it short.
fn si(value: f64) -> String {
    for (limit, prefix) in [(1e9, "G"), (1e6, "M"), (1e3, "k")] {
        if value >= limit {
            return format!("{:.1} {prefix}", value / limit);
        }
    }
    format!("{value:.0} ")
}

#[cfg(test)]
mod tests {
    use super::si;

    #[test]
    fn numbers_keep_short() {
        assert_eq!([0.0, 999.0, 1500.0, 2.26e7, 3e9].map(si), ["0 ", "999 ", "1.5 k", "22.6 M", "3.0 G"]);
    }
}
