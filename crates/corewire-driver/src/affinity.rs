//! Threads on cores.

use std::io;

use crate::sys::machine;

/// The processors that this process may run on, in ascending order.
pub fn available_cpus() -> Vec<usize> {
    machine::available_cpus()
}

/// Processors of the machine that run, whatever this thread or process is bound to.
pub(crate) fn online_cpus() -> usize {
    machine::online_cpus()
}

/// Keeps the calling thread on one processor.
///
/// # Errors
/// The processor does not exist, or the process may not use it (`EINVAL`). On systems without thread affinity
/// the error kind is `Unsupported`.
pub fn pin_current_thread(cpu: usize) -> io::Result<()> {
    machine::pin_current_thread(cpu)
}
