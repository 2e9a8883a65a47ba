//! What a driver counts.

/// What a [`Driver`](crate::Driver) has done since it was made; see [`Driver::counters`](crate::Driver::counters).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DriverCounters {
    /// Times that it was woken by its [`Waker`](crate::Waker): each is a system call of the thread that woke it, and
    /// another here.
    pub wakes: u64,
    /// Connections that were closed by [`Driver::refuse_waiting`](crate::Driver::refuse_waiting).
    pub refused: u64,
    /// io_uring: receives that ended because all buffers of the ring were in use. They begin again at once; if this
    /// grows steadily, [`ring_buffers`](crate::DriverConfig::ring_buffers) is too small.
    pub ring_empty: u64,
}
