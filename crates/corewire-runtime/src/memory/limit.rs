//! A limit beside that of the runtime.

use std::sync::Arc;

use super::budget::SharedBudget;
use crate::error::SettingError;

/// The most that is held for the peers of some connections, such as those of one server, in bytes: their send queues, and
/// what has arrived and was not taken yet. Clones are one limit; connections have it by
/// [`ConnectionOptions::memory_limit`](crate::ConnectionOptions::memory_limit).
///
/// At the limit the same happens as at [that of the runtime](crate::Builder::memory_limit), among these connections: over
/// seven eighths those that hold most are paused until it is three quarters, over the limit those that hold most are closed
/// with [`CloseReason::MemoryLimit`](crate::CloseReason::MemoryLimit). New ones are to be refused by whoever accepts
/// them ([`is_short`](Self::is_short)); UDP peers and KCP conversations are. The limit of the runtime holds as well.
#[derive(Debug, Clone)]
pub struct MemoryLimit(pub(crate) Arc<SharedBudget>);

impl MemoryLimit {
    const LEAST: usize = 1 << 20;

    /// For connections on so many workers.
    ///
    /// # Errors
    /// It is less than 1 MiB for each worker.
    pub fn new(bytes: usize, workers: usize) -> Result<Self, SettingError> {
        let workers = workers.max(1);
        if bytes / workers < Self::LEAST {
            let allowed = format!("at least 1 MiB for each of {workers} workers");
            return Err(SettingError::new("the memory limit of a server, in bytes,", bytes, allowed));
        }
        Ok(Self(SharedBudget::new(bytes, workers)))
    }

    /// The limit in bytes.
    pub fn bytes(&self) -> usize {
        self.0.limit()
    }

    /// Bytes held now, rounded up: by up to 128 KiB for each worker.
    pub fn held(&self) -> usize {
        self.0.leased()
    }

    /// More than seven eighths of the limit are held.
    pub fn is_short(&self) -> bool {
        self.0.is_short()
    }
}
