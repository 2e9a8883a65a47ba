//! What can go wrong with a command as a whole.

use std::io;
use std::time::Duration;

/// Why a command ended without a result; the message goes to standard error, and the exit code is 1 unless said.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum Failure {
    /// A system call or a file operation failed.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        source: io::Error,
    },
    /// More connections than the process may hold file descriptors.
    #[error(
        "{connections} connections need {needed} file descriptors in each process, but the limit is {limit}; \
         raise it (ulimit -Hn) or ask for fewer connections"
    )]
    TooManyConnections {
        /// Connections asked for.
        connections: usize,
        /// File descriptors that they need, with some to spare.
        needed: u64,
        /// The hard limit of the process.
        limit: u64,
    },
    /// The target of a load is not an address.
    #[error("target {target:?} is not usable: {reason}")]
    Target {
        /// As given.
        target: String,
        /// What is wrong with it.
        reason: String,
    },
    /// A setting that cannot work with the others.
    #[error("{0}")]
    Setting(String),
    /// The command line asks for what there is not; the exit code is 2.
    #[error("{0}")]
    Usage(String),
    /// A child process died or said something that was not expected.
    #[error("the {role} process {what}{stderr}")]
    Child {
        /// Server or load.
        role: &'static str,
        /// What it did.
        what: String,
        /// The end of its standard error, with a lead-in, or nothing.
        stderr: String,
    },
    /// Something did not happen in time.
    #[error("{what} did not happen within {limit:?}")]
    TimedOut {
        /// What was waited for.
        what: String,
        /// How long.
        limit: Duration,
    },
    /// A driver that this machine or kernel does not offer, or a server or client that would not start.
    #[error("{0}")]
    Library(String),
}

impl Failure {
    /// For `map_err`: names what was being done when the system refused.
    pub(crate) fn io<E: Into<io::Error>>(what: impl Into<String>) -> impl FnOnce(E) -> Self {
        // Turned into a string only in the failure, so that a call that succeeds allocates nothing.
        move |source| Self::Io { what: what.into(), source: source.into() }
    }
}
