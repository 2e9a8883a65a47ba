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
            Self::Readiness if cfg!(target_os = "linux") => "epoll",
            Self::Readiness => "kqueue",
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
    PROBE.get_or_init(|| Probe { uring: probe_uring() }).clone()
}

#[cfg(not(target_os = "linux"))]
fn probe_uring() -> Result<(), UringUnavailable> {
    Err(UringUnavailable::NotLinux)
}

#[cfg(target_os = "linux")]
fn probe_uring() -> Result<(), UringUnavailable> {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    crate::uring::try_setup().map_err(|error| explain(&error, disabled))
}

/// Turns what `io_uring_setup` answered into a reason that a person can act on.
#[cfg(target_os = "linux")]
fn explain(error: &std::io::Error, disabled: Option<u8>) -> UringUnavailable {
    use rustix::io::Errno;
    match Errno::from_io_error(error) {
        Some(Errno::NOSYS) => UringUnavailable::NotInKernel,
        Some(Errno::PERM | Errno::ACCESS) => match disabled {
            Some(level @ 1..) => UringUnavailable::Disabled(level),
            _ => UringUnavailable::Forbidden,
        },
        Some(Errno::INVAL) => {
            UringUnavailable::TooOld("SINGLE_ISSUER, DEFER_TASKRUN or provided-buffer rings")
        }
        Some(Errno::NOMEM) => UringUnavailable::NoMemory(error.to_string()),
        _ => UringUnavailable::Other(error.to_string()),
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use rustix::io::Errno;

    use super::*;

    fn explained(errno: Errno, disabled: Option<u8>) -> String {
        explain(&errno.into(), disabled).to_string()
    }

    #[test]
    fn a_fallback_names_its_reason() {
        assert!(explained(Errno::NOSYS, None).contains("no io_uring (ENOSYS)"));
        assert!(explained(Errno::PERM, Some(2)).contains("kernel.io_uring_disabled = 2"));
        assert!(explained(Errno::PERM, Some(0)).contains("seccomp"));
        assert!(explained(Errno::PERM, None).contains("seccomp"));
        assert!(explained(Errno::INVAL, Some(0)).contains("too old"));
        assert!(explained(Errno::NOMEM, Some(0)).contains("RLIMIT_MEMLOCK"));
        assert!(explained(Errno::MFILE, Some(0)).contains("io_uring_setup failed"));
    }

    #[test]
    fn auto_falls_back_to_readiness_and_says_so() {
        let probe = Probe { uring: Err(UringUnavailable::Disabled(1)) };
        assert_eq!(probe.choice(), Backend::Readiness);
        assert!(probe.to_string().starts_with("auto uses epoll: io_uring is turned off"));
    }
}
