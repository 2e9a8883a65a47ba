//! What this kernel offers.

use std::fmt;

use crate::error::UringUnavailable;

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
