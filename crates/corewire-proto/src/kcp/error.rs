//! What can go wrong, by operation.

/// A setting that makes no working conversation.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// The value is outside of what the protocol or this implementation can do.
    #[error("{name} is {value}: it must be from {min} to {max}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// What was asked for.
        value: u64,
        /// The least that works.
        min: u64,
        /// The most that works.
        max: u64,
    },
}

/// A message was not taken for sending; nothing of it was queued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The send queue has no room for the whole message now.
    #[error(
        "the send queue has room for {free} of the {needed} segments: send again after acknowledgements came in"
    )]
    WouldBlock {
        /// Segments that the message takes.
        needed: usize,
        /// Segments that fit.
        free: usize,
    },
    /// The message can never be sent with these settings.
    #[error(
        "a message of {len} bytes is over the limit of {limit}: split it, use stream mode, or raise max_fragments if the peer's receive window allows it"
    )]
    TooLong {
        /// The message's length in bytes.
        len: usize,
        /// The most that fits in a message, in bytes.
        limit: usize,
    },
    /// KCP has no way to send an empty message in stream mode.
    #[error("an empty message cannot be sent in stream mode")]
    Empty,
    /// The conversation is closing or closed.
    #[error("the conversation is closed for sending")]
    Closed,
}

/// A datagram was refused. Segments before the fault have been taken, as every KCP implementation does.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// Fewer bytes than a header.
    #[error("{len} bytes are no KCP segment: a header alone has 24")]
    TooShort {
        /// Bytes that were left.
        len: usize,
    },
    /// The segment belongs to another conversation.
    #[error(
        "a segment of conversation {found} came into conversation {expected}: check how datagrams are dispatched"
    )]
    WrongConversation {
        /// The conversation of this control block.
        expected: u32,
        /// The conversation in the segment.
        found: u32,
    },
    /// No such command; a newer protocol, FEC or encryption that is on at one end only, or not KCP.
    #[error("KCP has no command {command}: check that FEC and encryption are set alike at both ends")]
    UnknownCommand {
        /// The command byte.
        command: u8,
    },
    /// The header announces more data than the datagram holds.
    #[error("a segment announces {announced} bytes of data but only {left} are left in the datagram")]
    Truncated {
        /// What the header says, in bytes.
        announced: u32,
        /// What follows it, in bytes.
        left: usize,
    },
    /// The segment's data is over the limit.
    #[error(
        "a segment carries {len} bytes, over the limit of {limit}: raise max_segment if the peer's MTU is larger"
    )]
    SegmentTooLong {
        /// The data's length in bytes.
        len: usize,
        /// The limit in force, in bytes.
        limit: usize,
    },
    /// A message has more fragments than can ever be held: the conversation cannot go on and was closed.
    #[error(
        "a message has more than {limit} fragments: raise the receive window or have the peer send shorter messages"
    )]
    MessageTooLong {
        /// The most fragments that can be held.
        limit: usize,
    },
    /// The conversation is closed.
    #[error("the conversation is closed")]
    Closed,
}

/// Why a conversation is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// Both ends sent everything and said so.
    #[error("both ends have finished")]
    Finished,
    /// Everything was acknowledged; the peer does not answer the end (an older KCP never does).
    #[error("everything was acknowledged, and the peer gave no answer to the end")]
    Unanswered,
    /// Nothing was acknowledged for the time to linger, and not everything before.
    #[error("the peer acknowledged nothing for the time to linger, and had not taken everything before")]
    LingerExpired,
    /// One segment was sent again and again without an answer.
    #[error("the peer does not answer: one segment was sent {transmissions} times")]
    DeadLink {
        /// How often it was sent.
        transmissions: u32,
    },
    /// [`abort`](super::Kcp::abort) was called.
    #[error("the conversation was aborted here")]
    Aborted,
    /// The peer has aborted.
    #[error("the peer has aborted the conversation")]
    Reset,
    /// The peer sent a message of too many fragments.
    #[error("the peer sent a message of too many fragments")]
    MessageTooLong,
    /// Nothing was received for too long (see [`Sessions`](super::Sessions)).
    #[error("nothing was received for too long")]
    Idle,
    /// Nothing that was sent has been answered: nobody is there, or its key is another.
    #[error("nothing was answered: nobody may listen there, or with another key")]
    NoAnswer,
    /// The table of sessions was full, and of all that peers had opened this was the one to make room: it had exchanged little,
    /// or was not heard for longest.
    #[error("the session made room for a new peer, since there were as many as there may be")]
    Evicted,
    /// The peer that opened the session has not shown that it receives at its address, which may be forged.
    #[error("the peer that opened the session has not shown that it receives at its address")]
    Unvalidated,
}
