//! The kernel's side of Corewire.
//!
//! A [`Driver`] belongs to one thread. It watches sockets, fills pooled buffers with what they receive, and hands
//! both over as [`Event`]s. Two backends stand behind it: io_uring (Linux 6.1 or later) and readiness (epoll on
//! Linux, kqueue on the BSDs and macOS). Which one runs is chosen at run time: see [`DriverKind`] and [`probe`].
//!
//! The driver keeps the promise on which everything above rests: **user code never lends memory to the kernel.**
//! Received bytes come in blocks that the driver owns ([`Bytes`](bytes::Bytes) handles on them may be kept as
//! long as the user likes), and bytes to send are copied by the kernel before [`Driver::send`] returns. So a
//! dropped future can neither lose data nor leave the kernel writing into freed memory.
//!
//! Time and randomness come from here too ([`clock`], [`entropy`]), so that whatever stands in for this crate
//! stands in for all that is not the same twice.
//!
//! This is the only crate of Corewire that may contain `unsafe`.

#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

mod affinity;
mod bound;
mod buffer_pool;
pub mod clock;
mod config;
mod counters;
mod driver;
pub mod entropy;
mod error;
mod event;
pub mod file;
pub mod net;
mod parking;
mod probe;
mod readiness;
mod ready;
mod receive_buffer;
mod reserve;
mod role;
mod socket;
mod spin;
mod sys;
mod table;
pub mod udp;
mod wake;

pub use affinity::{available_cpus, pin_current_thread};
pub use bound::ThreadBound;
pub use buffer_pool::BufferPool;
pub use config::{DriverConfig, DriverKind};
pub use counters::DriverCounters;
pub use driver::Driver;
pub use error::{DriverError, ParseDriverKindError, UringUnavailable};
pub use event::{Event, Interest, Token};
pub use parking::Parking;
pub use probe::{Backend, Probe, probe};
pub use socket::{Address, Socket};
pub use wake::Waker;
