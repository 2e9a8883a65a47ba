//! The state of one call.

use crate::rpc::header::Mode;

/// A call as the wire knows it: one mechanism, of which modes and the `STREAM_*` family are settings.
#[derive(Debug, Clone)]
pub(super) struct Call {
    pub(super) id: u32,
    pub(super) kind: Kind,
    /// This side's half.
    pub(super) own: Own,
    /// The peer's half.
    pub(super) peer: Peer,
    /// What waits for its consumer, where that can stop the connection.
    pub(super) backlog: Backlog,
    /// Hash of the names, where later frames repeat them.
    pub(super) names_hash: u32,
    /// What this side may still send, in bytes.
    pub(super) send_credit: i64,
    /// What the peer may still send, in bytes.
    pub(super) receive_credit: i64,
    /// Cost of the messages handed out and not yet released.
    pub(super) unreleased: u64,
    /// Cost released and not yet granted again.
    pub(super) ungranted: u32,
}

/// Which family a call belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Call(Mode),
    /// A stream of the `STREAM_*` family that the server has not accepted yet.
    OpeningStream,
    Stream,
}

/// This side's half of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Own {
    /// Nothing of it was sent.
    Silent,
    Open,
    /// A send found no credit, and an event is owed when there is some.
    Blocked,
    Ended,
}

/// The peer's half of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Peer {
    /// Nothing of it has come.
    Silent,
    Open,
    Ended,
}

/// How much of a call waits for its consumer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Backlog {
    Low,
    /// It came over the window, and has not fallen to half of it since.
    Over,
}

impl Kind {
    #[inline]
    pub(super) const fn is_stream(self) -> bool {
        !matches!(self, Self::Call(_))
    }

    /// How many messages each half has.
    #[inline]
    pub(super) const fn mode(self) -> Mode {
        match self {
            Self::Call(mode) => mode,
            Self::OpeningStream | Self::Stream => Mode::Bidi,
        }
    }
}

impl Call {
    #[inline]
    pub(super) const fn new(id: u32, kind: Kind) -> Self {
        Self {
            id,
            kind,
            own: Own::Silent,
            peer: Peer::Silent,
            backlog: Backlog::Low,
            names_hash: 0,
            send_credit: 0,
            receive_credit: 0,
            unreleased: 0,
            ungranted: 0,
        }
    }

    #[inline]
    pub(super) fn has_own_ended(&self) -> bool {
        self.own == Own::Ended
    }

    #[inline]
    pub(super) fn has_peer_ended(&self) -> bool {
        self.peer == Peer::Ended
    }
}
