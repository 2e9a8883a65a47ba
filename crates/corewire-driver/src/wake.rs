//! Waking a driver from another thread.

use std::io;
use std::sync::Arc;

/// Ends the wait of the driver it came from. Cheap to clone, usable from any thread.
///
/// A wake that comes while the driver is not waiting ends its next wait. Wakes before that are one.
#[derive(Debug, Clone)]
pub struct Waker(pub(crate) WakerKind);

#[derive(Debug, Clone)]
pub(crate) enum WakerKind {
    Readiness(Arc<mio::Waker>),
    /// An eventfd.
    #[allow(dead_code)] // made only where there is io_uring
    EventFd(Arc<std::os::fd::OwnedFd>),
}

impl Waker {
    /// Wakes the driver.
    ///
    /// # Errors
    /// What the kernel says; not seen in practice while the driver lives.
    pub fn wake(&self) -> io::Result<()> {
        match &self.0 {
            WakerKind::Readiness(waker) => waker.wake(),
            WakerKind::EventFd(fd) => match rustix::io::write(fd, &1_u64.to_ne_bytes()) {
                // A full counter is a wake that is still to be seen.
                Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
                Err(error) => Err(error.into()),
            },
        }
    }
}
