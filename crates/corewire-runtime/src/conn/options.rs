//! Settings of a connection.

use std::time::Duration;

/// Limits and times of a connection.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ConnectionOptions {
    /// Bytes queued to send at which a sender that can wait waits; default 256 KiB.
    pub high_water: usize,
    /// Bytes queued at which waiting senders go on; default 64 KiB.
    pub low_water: usize,
    /// Bytes queued at which a sender that cannot wait gets [`SendError::QueueFull`](crate::SendError::QueueFull).
    /// A send is taken whole whenever the queue is below this when it begins; default 64 MiB.
    pub queue_limit: usize,
    /// Receive nothing while the peer leaves more than `high_water` bytes of ours unread. Right where what is sent
    /// answers what is received (servers); default true.
    pub pause_receive_on_backlog: bool,
    /// Close after this time without a byte in either direction; default none.
    pub idle_timeout: Option<Duration>,
    /// How long a close waits for the peer to take what is queued; default 10 s.
    pub close_timeout: Duration,
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            high_water: 256 * 1024,
            low_water: 64 * 1024,
            queue_limit: 64 << 20,
            pause_receive_on_backlog: true,
            idle_timeout: None,
            close_timeout: Duration::from_secs(10),
        }
    }
}
