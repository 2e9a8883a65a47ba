//! Processors where threads cannot be kept on one.

use std::io;

/// The readiness backend.
pub(crate) const READINESS: &str = "kqueue";

pub(crate) fn available_cpus() -> Vec<usize> {
    (0..online_cpus()).collect()
}

pub(crate) fn online_cpus() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

pub(crate) fn pin_current_thread(_: usize) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
