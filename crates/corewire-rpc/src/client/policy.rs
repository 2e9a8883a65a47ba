//! When calls are made more than once.

use std::time::Duration;

/// When calls that are marked idempotent are made again: those that fail as [`Code::UNAVAILABLE`] or
/// [`Code::CONNECTION_CLOSED`], as long as the server has not begun to answer. Each retry and each [hedge](Hedge) needs a
/// token of the channel's budget; each success gives a part of one back, so that they stay a share of all calls. The time
/// of a call is that of all its attempts and of the waits between them.
///
/// The future of a call all of whose requests are known (one request, or [`only`](crate::CallFuture::only)) is ready with
/// the first response. Other calls with streams keep the requests that were sent until the first response, and send them
/// again with each attempt; their future is ready at once, and a call that cannot be made fails at its ends. Once they are
/// too many to be [kept](Self::keep_per_call) the attempt in flight is the last. Calls that the server certainly never
/// began are made again on another connection without this.
///
/// [`Code::UNAVAILABLE`]: crate::Code::UNAVAILABLE
/// [`Code::CONNECTION_CLOSED`]: crate::Code::CONNECTION_CLOSED
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Retry {
    /// Attempts at the most, the first one included; default 3.
    pub attempts: u32,
    /// The bound of the first wait before a retry, which doubles each time; the wait is random below it. Default 10 ms.
    pub initial_wait: Duration,
    /// Tokens that the budget holds at the most, and at the beginning; default 100.
    pub budget: u32,
    /// What a success gives back, in thousandths of a token; default 100, so that 1 in 10 calls can be a retry.
    pub refill: u32,
    /// Bytes of requests that one call with streams keeps until its first response, so that it can be made again; with more
    /// of them it is made no more often. Default 256 KiB.
    pub keep_per_call: usize,
    /// The same of all calls of the channel together; default 16 MiB. One that is said with a call counts for nothing.
    pub keep: usize,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 3,
            initial_wait: Duration::from_millis(10),
            budget: 100,
            refill: 100,
            keep_per_call: 256 << 10,
            keep: 16 << 20,
        }
    }
}

/// Further attempts of a call marked idempotent while earlier ones are in flight, against slowness. The first response
/// counts, and the other attempts are cancelled. An attempt that fails as a [`Retry`] mends it leaves the others alone.
///
/// ```
/// use std::time::Duration;
/// use corewire_rpc::{Channel, Hedge};
///
/// let mut hedge = Hedge::after(Duration::from_millis(50));
/// hedge.attempts = 3;
/// let channel = Channel::to("tcp://127.0.0.1:7777").hedge(hedge).build()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct Hedge {
    /// How long after the last attempt the next one begins.
    pub after: Duration,
    /// Attempts at the most, the first one included; default 2.
    pub attempts: u32,
}

impl Hedge {
    /// A second attempt after this time.
    pub const fn after(after: Duration) -> Self {
        Self { after, attempts: 2 }
    }
}

impl From<Duration> for Hedge {
    fn from(after: Duration) -> Self {
        Self::after(after)
    }
}
