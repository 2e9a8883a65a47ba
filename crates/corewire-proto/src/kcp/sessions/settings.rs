//! Settings, errors and events of the sessions on a port.

use super::super::config::Config;
use super::super::error::{CloseReason, ReceiveError};

/// Names a session of one [`Sessions`](super::Sessions); never used again after the session is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Limits and times of a [`Sessions`](super::Sessions); `conversation` is used for every session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionsConfig {
    /// Settings of each conversation. Default: [`Config::default`].
    pub conversation: Config,
    /// New peers may open sessions. Default: true.
    pub accept: bool,
    /// Sessions at most (default 65,536). Beyond that a new peer takes the place of another by
    /// [`Recency`](crate::recency::Recency): of one that has exchanged little, before those that talk. Peers whose address is
    /// not validated take no more than an eighth of the places from others that way. Sessions begun here stay, and count.
    pub sessions_max: usize,
    /// Whether those who open sessions have to show that they receive what is sent to their address. Default: true.
    /// Until then no more is sent to it than three times the bytes received. Switch it off where something else has
    /// found out, such as a `ServerEnvelope` (feature `aead`).
    pub validate: bool,
    /// Accepted sessions at most whose peer has not shown yet that it receives at its address, which may be forged
    /// (default 2048). Beyond that a new peer takes the place of the oldest of them if that has had a second, and is
    /// offered a cookie otherwise: the next datagram of a Corewire client echoes it, and opens the session as
    /// validated; other clients try again. Peers that have shown it are safe from the flood.
    pub unvalidated_max: usize,
    /// How long an accepted peer has to show it, in milliseconds (default 5000). Every KCP acknowledges what it is sent.
    pub unvalidated_timeout_ms: u64,
    /// A session ends when nothing was received for so long, in milliseconds (default 20 minutes).
    pub idle_timeout_ms: u64,
    /// How long what a session begun here has sent may stay without any answer at all, in milliseconds (default
    /// 10,000). Then it ends with [`CloseReason::NoAnswer`].
    pub answer_timeout_ms: u64,
    /// How long the datagrams of a session that is over are told from those of a new one, in milliseconds
    /// (default 10,000). A peer cannot use the same conversation id again before.
    pub quiet_ms: u64,
}

impl Default for SessionsConfig {
    fn default() -> Self {
        Self {
            conversation: Config::default(),
            accept: true,
            sessions_max: 65_536,
            validate: true,
            unvalidated_max: 2048,
            unvalidated_timeout_ms: 5_000,
            idle_timeout_ms: 20 * 60 * 1000,
            answer_timeout_ms: 10_000,
            quiet_ms: 10_000,
        }
    }
}

/// A datagram, or a wish to connect, that led to no session.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The session refused the datagram.
    #[error(transparent)]
    Receive(#[from] ReceiveError),
    /// The datagram belongs to no session and cannot open one: only the first segment of a conversation can.
    #[error(
        "conversation {conversation} is not known from this address, and this datagram does not begin one"
    )]
    Unknown {
        /// The conversation id in the datagram.
        conversation: u32,
    },
    /// The session is over, and its id not free again yet.
    #[error("conversation {conversation} with this address is over: use another id")]
    Ended {
        /// The conversation id.
        conversation: u32,
    },
    /// There is such a session already.
    #[error("conversation {conversation} with this address exists already: use another id")]
    InUse {
        /// The conversation id.
        conversation: u32,
    },
    /// The peer's address is not validated yet, and its session holds all that it may hold before.
    #[error(
        "the peer has not shown yet that it receives at its address, and its session holds {limit} bytes already"
    )]
    Unvalidated {
        /// The most that it may hold, in bytes.
        limit: usize,
    },
    /// The limit on sessions is reached.
    #[error("there are {limit} sessions, which is the limit {name}: raise it or let sessions end")]
    TooManySessions {
        /// Which limit.
        name: &'static str,
        /// Its value.
        limit: usize,
    },
}

/// Something the user of a [`Sessions`](super::Sessions) may want to act upon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum SessionEvent<A> {
    /// A new peer has opened a session.
    Opened(SessionId),
    /// Messages can be read, or the peer has ended its side. Told once until it is polled.
    Readable(SessionId),
    /// A session holds much more memory than was told of it, or much less: by an eighth, and 16 KiB at the least.
    Memory {
        /// The session.
        id: SessionId,
        /// Bytes that it holds now, buffers kept for reuse included.
        bytes: usize,
    },
    /// The session is over and its id is void.
    Closed {
        /// The session.
        id: SessionId,
        /// Its peer.
        address: A,
        /// Its conversation id.
        conversation: u32,
        /// Why it is over.
        reason: CloseReason,
    },
}
