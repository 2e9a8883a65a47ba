//! What this kernel offers.

use std::fmt;

/// A backend that can run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Backend {
    /// epoll or kqueue.
    Readiness,
    /// io_uring.
    Uring,
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Readiness => crate::sys::machine::READINESS,
            Self::Uring => "uring",
        })
    }
}

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

/// What [`probe`] found.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Probe {
    /// Whether io_uring can be used, and why not.
    pub uring: Result<(), UringUnavailable>,
}

impl Probe {
    /// What [`DriverKind::Auto`](crate::DriverKind::Auto) runs on this kernel.
    pub fn choice(&self) -> Backend {
        if self.uring.is_ok() { Backend::Uring } else { Backend::Readiness }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.uring {
            Ok(()) => write!(f, "io_uring is available; auto uses {}", self.choice()),
            Err(why) => write!(f, "auto uses {}: {why}", self.choice()),
        }
    }
}

/// Tries the kernel once; later calls give the same answer.
pub fn probe() -> Probe {
    static PROBE: std::sync::OnceLock<Probe> = std::sync::OnceLock::new();
    PROBE.get_or_init(|| Probe { uring: crate::sys::uring::probe() }).clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_falls_back_to_readiness_and_says_so() {
        let probe = Probe { uring: Err(UringUnavailable::Disabled(1)) };
        assert_eq!(probe.choice(), Backend::Readiness);
        let readiness = Backend::Readiness;
        assert!(probe.to_string().starts_with(&format!("auto uses {readiness}: io_uring is turned off")));
    }
}
