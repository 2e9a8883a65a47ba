//! Connections as their worker sees them.

mod connection;
mod connections;
mod deadlines;
mod input;
mod looks;
mod options;
mod reason;
mod send_queue;
mod state;
mod table;
mod waiters;

pub use self::connection::Connection;
pub(crate) use self::connections::Connections;
pub(crate) use self::deadlines::Observed;
pub use self::deadlines::{FrameProgress, RateMin};
pub(crate) use self::input::Input;
pub(crate) use self::looks::{LookPlace, Looks};
pub use self::options::ConnectionOptions;
pub use self::reason::CloseReason;
pub(crate) use self::send_queue::{BufferPool, SEGMENT_BYTES, SLICES_MAX};
pub(crate) use self::state::{Backlog, Draining, Flush, PauseSet, ReadState, State, WriteState};
pub(crate) use self::table::{Conn, ConnId};
pub use self::waiters::Waiter;
pub(crate) use self::waiters::{WaiterKey, Waiters, WaitsFor};
