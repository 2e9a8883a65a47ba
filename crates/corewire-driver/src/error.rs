//! Why there is no driver.

use std::io;

/// No driver could be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The environment variable [`DriverKind::ENV`](crate::DriverKind::ENV) names no driver.
    #[error("environment variable COREWIRE_DRIVER: {0}")]
    Environment(#[from] ParseDriverKindError),
    /// io_uring was asked for and cannot be had.
    #[error("io_uring was asked for, but {0}; use the driver \"epoll\" or \"auto\"")]
    UringUnavailable(#[from] UringUnavailable),
    /// A setting is out of its range.
    #[error("{what} is {value}, but must be {allowed}")]
    Setting {
        /// Which field of [`DriverConfig`](crate::DriverConfig).
        what: &'static str,
        /// Its value.
        value: usize,
        /// Its range.
        allowed: &'static str,
    },
    /// The kernel refused a resource.
    #[error("cannot set up the event loop: {0}")]
    Io(#[from] io::Error),
}

/// The text names no driver.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown driver \"{0}\": use auto, uring or epoll")]
pub struct ParseDriverKindError(pub(crate) String);

/// Why io_uring cannot be used here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UringUnavailable {
    /// The system is not Linux.
    #[error("io_uring exists on Linux only")]
    NotLinux,
    /// The kernel has no io_uring, or hides it.
    #[error(
        "this kernel has no io_uring (ENOSYS): it needs Linux 6.1 or later, and a container policy that allows io_uring_setup"
    )]
    NotInKernel,
    /// The administrator has turned it off.
    #[error("io_uring is turned off here (sysctl kernel.io_uring_disabled = {0}): set it to 0 to allow it")]
    Disabled(u8),
    /// A seccomp filter or another security policy refuses it.
    #[error("io_uring is refused here (EPERM): a seccomp filter or container policy forbids io_uring_setup")]
    Forbidden,
    /// The kernel lacks something that the backend is built on.
    #[error("this kernel's io_uring is too old: it lacks {0} (Linux 6.1 has all that is needed)")]
    TooOld(&'static str),
    /// The kernel refuses the memory.
    #[error(
        "the kernel refuses the memory for a ring ({0}): raise RLIMIT_MEMLOCK or the container's memory limit"
    )]
    NoMemory(String),
    /// Anything else.
    #[error("io_uring_setup failed: {0}")]
    Other(String),
}
