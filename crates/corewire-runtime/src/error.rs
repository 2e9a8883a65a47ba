//! Errors of this crate.

use std::io;

use corewire_driver::DriverError;

use crate::blocking::SpawnBlockingError;

/// Bytes were not accepted for sending; none of them was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The connection is closed or closing.
    #[error("the connection is closed")]
    Closed,
    /// The peer does not read: the queue is at its limit, and this sender cannot wait.
    #[error(
        "the send queue is full: {queued} bytes wait, the limit is {limit}; the peer does not keep up: send less, wait, or close the connection"
    )]
    QueueFull {
        /// Bytes that wait.
        queued: usize,
        /// The limit in force, [`ConnectionOptions::queue_limit`](crate::ConnectionOptions::queue_limit).
        limit: usize,
    },
    /// No datagram can carry so much.
    #[error(
        "{len} bytes do not fit a datagram, which carries at most {max}: send less at a time, or use tcp or kcp"
    )]
    TooLong {
        /// Bytes with the codec's header.
        len: usize,
        /// The limit.
        max: usize,
    },
}

impl From<SendError> for io::Error {
    fn from(error: SendError) -> Self {
        let kind = match error {
            SendError::Closed => io::ErrorKind::NotConnected,
            SendError::QueueFull { .. } => io::ErrorKind::WouldBlock,
            SendError::TooLong { .. } => io::ErrorKind::InvalidInput,
        };
        Self::new(kind, error)
    }
}

/// A task gave no result.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The task panicked with this message; its worker goes on.
    #[error("the task panicked: {0}")]
    Panicked(String),
    /// The task was aborted, or its runtime was shut down before it was done.
    #[error("the task was cancelled")]
    Cancelled,
}

/// Blocking work gave no result.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BlockingError {
    /// The pool did not take it.
    #[error(transparent)]
    NotAccepted(#[from] SpawnBlockingError),
    /// It panicked with this message.
    #[error("blocking work panicked: {0}")]
    Panicked(String),
    /// The pool was shut down before its turn came.
    #[error("blocking work was discarded: its runtime was shut down")]
    Discarded,
}

/// Work was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The runtime has no such worker.
    #[error("there is no worker {worker}: this runtime has {workers} (0 to {last})", last = workers - 1)]
    NoSuchWorker {
        /// What was asked for.
        worker: usize,
        /// How many there are.
        workers: usize,
    },
    /// The worker has stopped.
    #[error("the worker has stopped: its runtime was shut down")]
    Stopped,
}

/// A runtime could not be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// No event loop could be made.
    #[error(transparent)]
    Driver(#[from] DriverError),
    /// A thread could not be started.
    #[error("cannot start the thread of worker {worker}: {error}")]
    Thread {
        /// Which.
        worker: usize,
        /// What the system said.
        error: io::Error,
    },
    /// A worker could not be kept on its processor.
    #[error("worker {worker} cannot be kept on processor {cpu}: {error}; this process may use {available:?}")]
    Affinity {
        /// Which worker.
        worker: usize,
        /// Which processor.
        cpu: usize,
        /// What the system said.
        error: io::Error,
        /// The processors it may use.
        available: Vec<usize>,
    },
    /// The tokio runtime of the workers' own could not be started (feature `tokio`).
    #[error("cannot start a tokio runtime for the workers: {0}; check the limits on threads and descriptors")]
    Tokio(#[source] io::Error),
    /// A setting is out of its range.
    #[error("{what} is {value}, but must be {allowed}")]
    Setting {
        /// Which setting.
        what: &'static str,
        /// Its value.
        value: usize,
        /// Its range.
        allowed: &'static str,
    },
}

/// A setting with which nothing could ever work. Refused before anything is started.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {value}: it must be {allowed}")]
#[non_exhaustive]
pub struct SettingError {
    /// Which.
    pub what: &'static str,
    /// What it was set to.
    pub value: String,
    /// What it may be.
    pub allowed: String,
}

impl SettingError {
    /// A setting that is not what it must be.
    pub fn new(what: &'static str, value: impl std::fmt::Display, allowed: impl Into<String>) -> Self {
        Self { what, value: value.to_string(), allowed: allowed.into() }
    }

    /// Refuses a number or a time that is 0.
    ///
    /// # Errors
    /// It is.
    pub fn if_zero<T: PartialEq + Default + std::fmt::Debug>(
        what: &'static str,
        value: T,
    ) -> Result<(), Self> {
        if value == T::default() {
            return Err(Self::new(what, format_args!("{value:?}"), "more than 0"));
        }
        Ok(())
    }
}
