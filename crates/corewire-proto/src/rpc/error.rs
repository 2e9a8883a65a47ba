//! What can go wrong with a connection, and with what its owner asks of it.

use super::block::BodyError;
use super::code::Code;
use super::header::{FrameType, HeaderError, Version};

/// The peer broke the protocol or a limit: the connection must be closed.
///
/// [`Connection::abort`](super::Connection::abort) writes what version 2 says before the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectionError {
    /// The bytes are no frame header.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body of a frame of the connection cannot be read.
    #[error("a {kind:?} frame cannot be read: {error}")]
    Body {
        /// The frame's type.
        kind: FrameType,
        /// What is wrong.
        error: BodyError,
    },
    /// The version byte changed.
    #[error("a frame of {found:?} on a connection that speaks {spoken:?}: one connection speaks one version")]
    VersionChanged {
        /// The version of the first frame.
        spoken: Version,
        /// The version of this frame.
        found: Version,
    },
    /// This server does not speak the client's version.
    #[error("this server does not speak {version:?} of the protocol: use the other version")]
    VersionRefused {
        /// What the client speaks.
        version: Version,
    },
    /// The header announces a body over the limit.
    #[error(
        "the peer announces a body of {len} bytes, over the limit of {limit}: raise `Settings::max_body` or send less"
    )]
    BodyTooLong {
        /// What the header says, in bytes.
        len: u32,
        /// The limit in force, in bytes.
        limit: u32,
    },
    /// The peer's first frame of version 2 is not SETTINGS.
    #[error("the first frame is {found:?}: version 2 begins with SETTINGS")]
    SettingsMissing {
        /// The frame's type.
        found: FrameType,
    },
    /// A second SETTINGS.
    #[error("SETTINGS came twice: it comes once, as the first frame")]
    SettingsTwice,
    /// A frame that this side never receives, or not for this call.
    #[error("a {kind:?} frame for id {id}, which this side does not expect: check the peer's implementation")]
    Unexpected {
        /// The frame's type.
        kind: FrameType,
        /// The id in its header.
        id: u32,
    },
    /// A call or stream begins under an id that is in use.
    #[error(
        "id {id} is used again while its call is in flight: ids must be unique until both halves have ended"
    )]
    IdInUse {
        /// The id.
        id: u32,
    },
    /// A call or stream of version 2 begins under an id that is not later than the one before.
    #[error("id {id} begins a call after id {last}: in version 2 each id must be later than the one before")]
    IdOutOfOrder {
        /// The id.
        id: u32,
        /// That of the call that began before it.
        last: u32,
    },
    /// A call is begun by a number that stands for no method (version 2).
    #[error("call {id} is for method number {number}, which was not defined: send the names with it first")]
    MethodUndefined {
        /// The call's id.
        id: u32,
        /// The number.
        number: u16,
    },
    /// Method numbers are not given in sequence, or one is given again (version 2).
    #[error(
        "the peer defines method number {number}, and {expected} is the next: each is defined once, in sequence"
    )]
    MethodOutOfOrder {
        /// The number that was defined.
        number: u16,
        /// The number that may be.
        expected: u16,
    },
    /// More methods were given numbers than a connection remembers (version 2).
    #[error("the peer defines more than {limit} methods: send the names of others with number 0")]
    TooManyMethods {
        /// The limit.
        limit: u16,
    },
    /// The names that were given numbers take more than a connection remembers (version 2).
    #[error(
        "the names of the methods that the peer defines take {len} bytes, over the limit of {limit}: send others with number 0"
    )]
    MethodNamesTooLong {
        /// What all of them would take, in bytes.
        len: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// A frame continues a half that has ended.
    #[error("a {kind:?} frame for id {id} after the end of its half: check the peer's implementation")]
    AfterEnd {
        /// The frame's type.
        kind: FrameType,
        /// The id.
        id: u32,
    },
    /// The only message of a half came without END (version 2).
    #[error("the only message of call {id} came without END: check the peer's implementation")]
    EndMissing {
        /// The id.
        id: u32,
    },
    /// A stream was accepted twice.
    #[error("stream {id} was accepted twice: check the peer's implementation")]
    AcceptedTwice {
        /// The id.
        id: u32,
    },
    /// The peer sent a message without credit.
    #[error("the peer sent a message on call {id} without credit: it must wait for CREDIT")]
    NoCredit {
        /// The id.
        id: u32,
    },
    /// The peer granted more credit than a half may hold.
    #[error(
        "the credit of call {id} grew to {credit} bytes, over the limit of 2147483647: grant only what was taken"
    )]
    CreditOverflow {
        /// The id.
        id: u32,
        /// The credit it would have.
        credit: i64,
    },
    /// More pings than [`Settings::pings`](super::Settings) allows.
    #[error(
        "the peer floods this side with pings (allowed: {burst} at once, {per_second} a second): ping less often"
    )]
    PingFlood {
        /// Pings allowed at once.
        burst: u32,
        /// Pings allowed a second.
        per_second: u32,
    },
    /// More calls cancelled or broken by the peer than [`Settings::cancels`](super::Settings) allows.
    #[error(
        "the peer begins calls and cancels or breaks them over and over (allowed: {burst} at once, {per_second} a second): raise `Settings::cancels` if that is meant"
    )]
    CancelFlood {
        /// Aborts allowed at once.
        burst: u32,
        /// Aborts allowed a second.
        per_second: u32,
    },
    /// More frames that move nothing than [`Settings::strays`](super::Settings) allows.
    #[error(
        "the peer floods this side with {kind:?} frames that belong to nothing (allowed: {burst} at once, {per_second} a second): check the peer's implementation"
    )]
    StrayFlood {
        /// The type of the frame that was one too many.
        kind: FrameType,
        /// Such frames allowed at once.
        burst: u32,
        /// Such frames allowed a second.
        per_second: u32,
    },
    /// More refused calls of version 1 go on arriving than there may be calls in flight.
    #[error("{limit} refused calls are still being sent: a client must end its half when a call fails")]
    TooManyRefused {
        /// The limit.
        limit: u32,
    },
}

impl ConnectionError {
    /// The code that tells the peer in version 2.
    pub const fn code(&self) -> Code {
        match self {
            Self::NoCredit { .. } | Self::CreditOverflow { .. } => Code::FLOW_CONTROL_ERROR,
            _ => Code::PROTOCOL_ERROR,
        }
    }
}

/// A call cannot be begun; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// This side is the server.
    #[error("a server cannot begin calls: open a connection to the other side")]
    NotAClient,
    /// The connection accepts no more calls.
    #[error("the connection is going away: begin the call on another one")]
    GoingAway,
    /// As many calls are in flight as this side or the peer allows.
    #[error(
        "{limit} calls are in flight, which is the limit: wait for one to end, or raise `Settings::max_calls`"
    )]
    TooManyCalls {
        /// The lower of both sides' limits.
        limit: u32,
    },
    /// As many streams are open as this side or the peer allows.
    #[error(
        "{limit} streams are open, which is the limit: wait for one to end, or raise `Settings::max_streams`"
    )]
    TooManyStreams {
        /// The lower of both sides' limits.
        limit: u32,
    },
    /// A call of one request, or any call of version 1, begins with its first message.
    #[error("this call begins with a message: give the first one to `begin`")]
    MessageNeeded,
    /// The frame or its extension block cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
}

/// A message cannot be sent; nothing was written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The call is over: it ended, failed, was cancelled, or the key is of another connection.
    #[error("the call is over: take its last event for the reason")]
    CallOver,
    /// This side's half has ended.
    #[error("this side has ended its half of the call: nothing can follow")]
    HalfEnded,
    /// There is no credit.
    #[error("the peer's window is full: send again after `Event::Writable`")]
    Blocked,
    /// The server has not accepted the stream (version 1).
    #[error("the server has not accepted the stream: send after `Event::Accepted`")]
    NotAccepted,
    /// A half of one message cannot end without it.
    #[error("this half of the call has exactly one message: send it, or fail the call")]
    MessageNeeded,
    /// Frames of a stream carry no extension block.
    #[error("messages of a stream carry no metadata: send it with `open_stream`, or use a bidi call")]
    NoExtensions,
    /// Only a server can do this.
    #[error("a client cannot answer calls: cancel the call instead")]
    NotAServer,
    /// The frame or its extension block cannot be sent.
    #[error(transparent)]
    Unsendable(#[from] Unsendable),
}

/// A frame that the format, the version or the peer's limits do not allow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unsendable {
    /// The body is over the limit.
    #[error("a body of {len} bytes does not fit: the limit of this side and the peer is {limit}")]
    BodyTooLong {
        /// The body's length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: u32,
    },
    /// The extension block is over the limit.
    #[error(
        "an extension block of {len} bytes does not fit: the peer's limit is {limit}; send less metadata"
    )]
    ExtensionTooLong {
        /// The block's length in bytes.
        len: usize,
        /// The limit in bytes.
        limit: u32,
    },
    /// An error message or reason is longer than its field.
    #[error("a message or reason of {len} bytes does not fit: it may have at most 65535")]
    TextTooLong {
        /// The text's length in bytes.
        len: usize,
    },
    /// A metadata name is empty, too long, or has other characters than `a-z 0-9 - _ .`
    #[error("{0:?} is no metadata name: it has 1 to 255 characters of a-z, 0-9, '-', '_', '.'")]
    MetadataName(String),
    /// Version 1 has no metadata and no trace.
    #[error("version 1 of the protocol carries no metadata and no trace: leave them out or speak version 2")]
    NotInVersion1,
}
