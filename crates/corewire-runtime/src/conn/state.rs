//! Where a connection is in its life.

use super::reason::CloseReason;
use crate::timer_wheel::TimerKey;

/// `Connecting → Open → Draining → Closed`. Each state has the data that only it has.
pub(crate) enum State {
    /// A connect is under way: what is sent waits for it.
    Connecting {
        /// The sending half is to be finished once the connection is established and the queue empty.
        finish_write: bool,
    },
    Open {
        write: WriteState,
        read: ReadState,
    },
    /// It was told to close and has still to send what is queued. Nothing is received.
    Draining(Box<Draining>),
    /// It is over, and is reaped in this tick.
    Closed {
        reason: Box<CloseReason>,
        /// All was sent and the peer has not finished: closing the socket now could lose what it has not read.
        lingers: bool,
    },
}

/// What a connection has that drains. Of all others it would be most of the state.
pub(crate) struct Draining {
    pub(crate) reason: CloseReason,
    /// Ends the wait for a peer that takes nothing.
    pub(crate) timer: TimerKey,
    pub(crate) read_ended: bool,
}

/// The receiving half of an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadState {
    Open,
    /// The peer has finished sending; its last bytes are deferred, and the protocol is told behind them.
    Ending,
    Finished,
}

/// The sending half of an open connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WriteState {
    Open,
    /// It takes no more, and the peer is told once the queue is empty.
    Finishing,
    Finished,
}

impl State {
    /// A connect has succeeded.
    pub(crate) const fn established(finish_write: bool) -> Self {
        let write = if finish_write { WriteState::Finishing } else { WriteState::Open };
        Self::Open { write, read: ReadState::Open }
    }

    /// Not told to close.
    #[inline]
    pub(crate) const fn is_active(&self) -> bool {
        matches!(self, Self::Connecting { .. } | Self::Open { .. })
    }

    #[inline]
    pub(crate) const fn takes_sends(&self) -> bool {
        matches!(self, Self::Open { write: WriteState::Open, .. } | Self::Connecting { finish_write: false })
    }

    #[inline]
    pub(crate) const fn is_connecting(&self) -> bool {
        matches!(self, Self::Connecting { .. })
    }

    pub(crate) const fn is_closed(&self) -> bool {
        matches!(self, Self::Closed { .. })
    }

    /// The peer has finished sending: nothing is lost if the socket is closed.
    pub(crate) fn note_read_ended(&mut self) {
        match self {
            Self::Connecting { .. } => {}
            Self::Open { read: read @ ReadState::Open, .. } => *read = ReadState::Ending,
            Self::Open { .. } => {}
            Self::Draining(draining) => draining.read_ended = true,
            Self::Closed { lingers, .. } => *lingers = false,
        }
    }

    /// The peer has finished, and the protocol was not told yet.
    pub(crate) const fn is_read_ending(&self) -> bool {
        matches!(self, Self::Open { read: ReadState::Ending, .. })
    }

    /// The peer has finished and all that it sent is decoded: true once, when the protocol is to be told.
    pub(crate) fn take_read_end(&mut self) -> bool {
        match self {
            Self::Open { read: read @ ReadState::Ending, .. } => {
                *read = ReadState::Finished;
                true
            }
            _ => false,
        }
    }
}

/// Why nothing is received from a connection now; bytes are received while the set is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct PauseSet(u8);

impl PauseSet {
    /// [`Connection::pause_receive`](crate::Connection::pause_receive) was called.
    pub(crate) const USER: Self = Self(1);
    /// The peer leaves what was sent to it unread.
    pub(crate) const BACKLOG: Self = Self(1 << 1);
    /// It has used its quota, and waits in the worker's list for its next turn.
    pub(crate) const QUOTA: Self = Self(1 << 2);
    /// What is held for peers is near the limit, and this connection holds much of it.
    pub(crate) const MEMORY: Self = Self(1 << 3);
    /// The same, at the limit of its server.
    pub(crate) const SERVER_MEMORY: Self = Self(1 << 4);

    #[inline]
    pub(crate) const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// For a reason that the protocol knows of.
    pub(crate) const fn is_known(self) -> bool {
        self.0 & (Self::USER.0 | Self::BACKLOG.0) != 0
    }

    pub(crate) const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(crate) const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

/// Where the send queue stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flush {
    /// Nothing is to be done for it.
    Idle,
    /// In the worker's list of connections to flush.
    Listed,
    /// The transport took less than it was given, and tells when it takes more.
    Blocked,
}

/// How the send queue stands to its marks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Backlog {
    Below,
    /// It has been over the high-water mark and not yet down to the low one.
    Over,
    /// It has come down, and [`Protocol::on_drained`](crate::Protocol::on_drained) is still to be called.
    Drained,
}
