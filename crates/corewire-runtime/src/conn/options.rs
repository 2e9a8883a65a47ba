//! Settings of a connection.

use std::time::Duration;

use super::deadlines::RateMin;
use crate::error::SettingError;
use crate::memory::MemoryLimit;

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
    /// Close after this time without a byte in either direction, or up to a sixteenth of it (a second at most) later, as
    /// with the other deadlines; default none.
    pub idle_timeout: Option<Duration>,
    /// Close if no whole frame has arrived after this time, where the peer is the one to begin and was sent nothing yet;
    /// default none, servers 1 minute.
    pub first_frame_timeout: Option<Duration>,
    /// Close if a frame that has begun is not whole after this time; the time in which receiving is paused does not
    /// count. Default none, servers 10 minutes.
    pub frame_timeout: Option<Duration>,
    /// Close a peer that sends less than this while a frame has begun, or takes less while something is queued for it.
    /// Default none, servers 100 bytes a second over 1 minute.
    pub rate_min: Option<RateMin>,
    /// How long a close waits for the peer to take what is queued; default 10 s.
    pub close_timeout: Duration,
    /// What may be held for this connection and the others that have the same limit; default none but that of the runtime.
    pub memory_limit: Option<MemoryLimit>,
}

impl ConnectionOptions {
    /// Checks that a connection can work with these settings. Servers and clients do this before they start.
    ///
    /// # Errors
    /// The high-water mark is 0 or below the low one, the limit of the queue is below the high one, so that a sender
    /// could wait for ever; or a time is 0.
    pub fn check(&self) -> Result<(), SettingError> {
        let Self { high_water, low_water, queue_limit, .. } = *self;
        SettingError::if_zero("the high-water mark of the send queue", high_water)?;
        if low_water > high_water {
            let allowed = format!("at most the high-water mark, {high_water}");
            return Err(SettingError::new("the low-water mark of the send queue", low_water, allowed));
        }
        if queue_limit < high_water {
            let allowed = format!("at least the high-water mark, {high_water}");
            return Err(SettingError::new("the limit of the send queue", queue_limit, allowed));
        }
        let times = [
            ("the idle timeout", self.idle_timeout),
            ("the first frame timeout", self.first_frame_timeout),
            ("the frame timeout", self.frame_timeout),
            ("the window of the least rate", self.rate_min.map(|rate| rate.window)),
        ];
        for (what, time) in times {
            time.map_or(Ok(()), |time| SettingError::if_zero(what, time))?;
        }
        Ok(())
    }
}

impl Default for ConnectionOptions {
    fn default() -> Self {
        Self {
            high_water: 256 * 1024,
            low_water: 64 * 1024,
            queue_limit: 64 << 20,
            pause_receive_on_backlog: true,
            idle_timeout: None,
            first_frame_timeout: None,
            frame_timeout: None,
            rate_min: None,
            close_timeout: Duration::from_secs(10),
            memory_limit: None,
        }
    }
}
