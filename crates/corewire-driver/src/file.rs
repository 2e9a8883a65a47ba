//! Files, as far as a driver has to do with them.

use std::os::fd::AsFd;

/// Whether a range of a file is in memory, so that reading it waits for no disk: its first and its last byte are asked for,
/// since the system reads ahead. False where it cannot tell.
pub fn is_cached(file: impl AsFd, offset: u64, len: u64) -> bool {
    let is_cached = |at| crate::sys::file::is_cached(file.as_fd(), at);
    is_cached(offset) && (len < 2 || is_cached(offset + len - 1))
}
