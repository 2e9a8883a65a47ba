//! Thread-per-core workers: the tick, local tasks, timers, mailboxes, TCP and Unix-domain sockets.
//!
//! A [`Runtime`] has a number of workers. Each is one thread with one event loop and one
//! [driver]; a connection lives and dies on the worker that accepted or opened it, so nothing on
//! the path of a message is locked or shared. Work for another worker goes through its mailbox
//! ([`Handle::spawn_on`]).
//!
//! There are two ways to use a connection:
//! - a [`Protocol`] is called as bytes arrive (*push*): the fastest way, on which Corewire's servers and clients
//!   are built;
//! - a [`TcpStream`] or [`UnixStream`] is read and written from a task.
//!
//! ```
//! use corewire_runtime::{TcpListener, TcpStream, run, spawn_local};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! run(async {
//!     let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
//!     let address = listener.local_addr()?;
//!     spawn_local(async move {
//!         let (mut stream, _) = listener.accept().await?;
//!         while let Some(chunk) = stream.recv().await? {
//!             stream.write_all(&chunk).await?;
//!         }
//!         std::io::Result::Ok(())
//!     });
//!     let mut stream = TcpStream::connect(address).await?;
//!     stream.write_all(b"hello").await?;
//!     let mut reply = [0; 5];
//!     stream.read_exact(&mut reply).await?;
//!     assert_eq!(&reply, b"hello");
//!     std::io::Result::Ok(())
//! })??;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod backoff;
pub mod blocking;
mod conn;
mod error;
#[cfg(feature = "hyper")]
mod hyper_rt;
mod interval;
mod listen;
pub mod mailbox;
mod mailbox_sync;
mod memory;
mod panic;
mod protocol;
mod resolve;
mod run;
mod runtime;
mod secured;
mod signal;
mod stats;
mod stream;
mod task;
mod task_group;
mod task_quota;
mod time;
pub mod timer_wheel;
#[cfg(not(feature = "tokio"))]
#[path = "no_tokio.rs"]
mod tokio_context;
#[cfg(feature = "tokio")]
mod tokio_context;
pub mod transport;
pub mod udp;
mod warning;
mod watch;
mod worker;

pub use conn::{CloseReason, Connection, ConnectionOptions, FrameProgress, RateMin, Waiter};
pub use error::{BlockingError, BuildError, JoinError, SendError, SettingError, SpawnError};
#[cfg(feature = "hyper")]
pub use hyper_rt::{HyperExecutor, HyperTimer};
pub use interval::{Interval, MissedTicks, interval, interval_at};
pub use listen::{AfterAccept, Listener};
pub use memory::{Charge, MemoryKind, MemoryLimit};
pub use panic::panic_advice;
pub use protocol::Protocol;
pub use resolve::{lookup, lookup_host};
pub use run::run;
pub use runtime::{Builder, Handle, RemoteTask, Runtime};
pub use secured::{TlsError, TlsInfo, TlsVersion};
pub use signal::{Signal, Signals};
pub use stats::WorkerStats;
pub use stream::{ReadHalf, Stream, Tcp, TcpListener, TcpStream, Unix, UnixListener, UnixStream, WriteHalf};
pub use task::{JoinHandle, spawn_blocking, spawn_local, yield_now};
pub use task_group::TaskGroup;
pub use task_quota::{poll_with_quota, with_task_quota};
pub use time::{Elapsed, Sleep, Timeout, now, sleep, sleep_until, timeout};
#[cfg(feature = "tokio")]
pub use tokio_context::TokioContext;
pub use warning::WarningLimit;
pub use watch::FdWatch;
pub use worker::{WorkerHandle, WorkerId, before_flush, current_worker};

pub use corewire_driver as driver;
