//! Which backend, and how large.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::error::{DriverError, ParseDriverKindError};

/// Which backend a driver uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum DriverKind {
    /// The one that measures best on this kernel, see [`Probe::choice`](crate::Probe::choice).
    #[default]
    Auto,
    /// io_uring (Linux 6.1 or later); an error where it cannot be had.
    Uring,
    /// Readiness: epoll on Linux, kqueue on the BSDs and macOS.
    Epoll,
}

impl DriverKind {
    /// The environment variable that overrides the choice of every driver made from [`DriverConfig::default`]
    /// or [`DriverConfig::with_env_override`]: `auto`, `uring` or `epoll`.
    pub const ENV: &str = "COREWIRE_DRIVER";
}

impl fmt::Display for DriverKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        })
    }
}

impl FromStr for DriverKind {
    type Err = ParseDriverKindError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text.to_ascii_lowercase().as_str() {
            "auto" => Ok(Self::Auto),
            "uring" | "io_uring" => Ok(Self::Uring),
            "epoll" | "kqueue" | "readiness" => Ok(Self::Epoll),
            _ => Err(ParseDriverKindError(text.to_owned())),
        }
    }
}

/// Settings of a [`Driver`](crate::Driver).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DriverConfig {
    /// The backend; default [`DriverKind::Auto`].
    pub kind: DriverKind,
    /// The size in bytes of the block that large receives go to; default 640 KiB, at least
    /// 64 KiB. Messages of 1 MiB take half the time that they take with 256 KiB; beyond, the block leaves the cache.
    pub receive_block_size: usize,
    /// io_uring: how many buffers the provided-buffer ring has, a power of two up to 32,768; default 64.
    pub ring_buffers: u16,
    /// io_uring: the size of each in bytes; default 32 KiB, at least 16.
    pub ring_buffer_size: usize,
    /// How many events one turn delivers before it looks at the kernel again; default 1,024, at least 1.
    pub events_per_turn: usize,
    /// How long a thread with nothing to do looks again before it sleeps; zero: not at all. Default 20 µs, about what a
    /// sleep and a wake-up cost; it is given up where it does not pay, and on machines with a single processor.
    pub spin: Duration,
    /// io_uring: entries of the completion queue; default 16,384 (a multishot operation ends when it is full, and
    /// begins anew: slower, never wrong).
    pub completion_entries: u32,
}

impl DriverConfig {
    /// The default of [`receive_block_size`](Self::receive_block_size).
    pub const RECEIVE_BLOCK_SIZE: usize = 640 * 1024;
}

impl Default for DriverConfig {
    fn default() -> Self {
        Self {
            kind: DriverKind::Auto,
            receive_block_size: Self::RECEIVE_BLOCK_SIZE,
            ring_buffers: 64,
            ring_buffer_size: 32 * 1024,
            events_per_turn: 1024,
            spin: Duration::from_micros(20),
            completion_entries: 16 * 1024,
        }
    }
}

impl DriverConfig {
    /// Replaces the kind by what [`DriverKind::ENV`] says, if it is set.
    ///
    /// # Errors
    /// The variable is set to something that names no driver.
    pub fn with_env_override(mut self) -> Result<Self, ParseDriverKindError> {
        match std::env::var(DriverKind::ENV) {
            Ok(text) if !text.is_empty() => self.kind = text.parse()?,
            _ => {}
        }
        Ok(self)
    }

    /// Both backends refuse the same settings, whichever of them they concern.
    pub(crate) fn check(&self) -> Result<(), DriverError> {
        let block = self.receive_block_size;
        let (buffers, buffer_size) = (self.ring_buffers, self.ring_buffer_size);
        let checks = [
            ("receive_block_size", block, (64 << 10..=1 << 30).contains(&block), "64 KiB to 1 GiB"),
            (
                "ring_buffers",
                buffers.into(),
                buffers.is_power_of_two() && buffers <= 1 << 15,
                "a power of two up to 32768",
            ),
            ("ring_buffer_size", buffer_size, (16..=1 << 30).contains(&buffer_size), "16 bytes to 1 GiB"),
            (
                "events_per_turn",
                self.events_per_turn,
                (1..=1 << 20).contains(&self.events_per_turn),
                "1 to 1048576",
            ),
        ];
        match checks.into_iter().find(|(.., fits, _)| !fits) {
            Some((what, value, _, allowed)) => Err(DriverError::Setting { what, value, allowed }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_read_as_they_are_written() {
        for kind in [DriverKind::Auto, DriverKind::Uring, DriverKind::Epoll] {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
    }

    #[test]
    fn an_unknown_kind_is_named_in_the_error() {
        let error = "iocp".parse::<DriverKind>().unwrap_err();
        assert_eq!(error.to_string(), "unknown driver \"iocp\": use auto, uring or epoll");
    }
}
