//! Whether this kernel has what the backend is built on.

use rustix::io::Errno;

use super::ring::try_setup;
use crate::error::UringUnavailable;

/// Tries it.
pub(crate) fn probe() -> Result<(), UringUnavailable> {
    let disabled = std::fs::read_to_string("/proc/sys/kernel/io_uring_disabled")
        .ok()
        .and_then(|text| text.trim().parse().ok());
    try_setup().map_err(|error| explain(&error, disabled))
}

/// Turns what `io_uring_setup` answered into a reason that a person can act on.
fn explain(error: &std::io::Error, disabled: Option<u8>) -> UringUnavailable {
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

#[cfg(test)]
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
}
