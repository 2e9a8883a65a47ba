//! The contract between a framing codec and the connection that drives it.

use std::ops::Range;

/// What a frame is to request matching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum FrameKind {
    /// A frame of a codec that does not tell requests from replies (line, delimiter, length field, …).
    #[default]
    Message,
    /// A request; the peer expects a reply that carries the same sequence.
    Request,
    /// A request that expects no reply.
    OneWay,
    /// The reply to the request of the same sequence.
    Reply,
    /// A reply that says that the request failed; its payload is the reason.
    ErrorReply,
}

/// Everything a frame says beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct FrameHead {
    /// Request, reply or plain message.
    pub kind: FrameKind,
    /// The number that ties a reply to its request; 0 where the codec has none.
    pub sequence: u32,
    /// A codec's own note on the payload (SRMP: the data kind, bits 5..0 of the flag); 0 where it has none.
    pub tag: u8,
}

impl FrameHead {
    /// The head of the reply to a request with this head: same sequence and tag.
    pub const fn reply(self) -> Self {
        Self { kind: FrameKind::Reply, ..self }
    }

    /// The head of the error reply to a request with this head: same sequence and tag.
    pub const fn error_reply(self) -> Self {
        Self { kind: FrameKind::ErrorReply, ..self }
    }
}

/// What a decoder found at the front of the bytes it was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decoded {
    /// One whole frame. `payload` lies inside the input, `consumed` ≥ `payload.end` bytes belong to the frame.
    Frame {
        /// What the header said.
        head: FrameHead,
        /// Where the payload lies in the input.
        payload: Range<usize>,
        /// How many bytes to step over to reach the next frame; at least 1.
        consumed: usize,
    },
    /// `consumed` ≥ 1 bytes belong to no frame (the rest of a frame that was too long and is being skipped).
    Skipped {
        /// How many bytes to step over.
        consumed: usize,
    },
    /// The frame is not whole yet: show the same bytes again once there are at least `needed` of them.
    Incomplete {
        /// Total bytes, from the front of this input, below which another call is of no use. Always more than
        /// the length of the input that was shown, and never more than the codec's frame limit asks for.
        needed: usize,
    },
}

/// Header bytes that go before a payload on the wire, built on the stack.
///
/// Holds at most [`Prefix::CAPACITY`] bytes; a codec whose settings would need more must refuse them when it is
/// made, so that [`Prefix::push`] never has to fail on a live connection.
#[derive(Debug, Clone)]
pub struct Prefix {
    bytes: [u8; Self::CAPACITY],
    len: u8,
}

impl Prefix {
    /// The most header bytes a frame may have.
    pub const CAPACITY: usize = 64;

    /// A header with nothing in it yet.
    pub const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Appends header bytes.
    ///
    /// # Panics
    /// When the header would grow over [`Prefix::CAPACITY`]: a fault of the codec, never of a peer.
    #[inline]
    pub fn push(&mut self, bytes: &[u8]) {
        let at = usize::from(self.len);
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len() as u8;
    }

    /// The header built so far.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

impl Default for Prefix {
    fn default() -> Self {
        Self::new()
    }
}

/// How calls made through a codec find their replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Matching {
    /// The codec has no requests: `request` is an error.
    None,
    /// By the number in [`FrameHead::sequence`]; numbers run from 0 to `modulus - 1`, the first used is 1.
    Sequence {
        /// How many different numbers there are (256 for SRMP).
        modulus: u32,
    },
    /// Replies come in the order of the requests.
    Fifo,
}

/// A framing codec: cuts a byte stream into frames, and wraps payloads into frames.
///
/// One instance serves one connection and is never shared, so it may keep state (a codec that skips a frame
/// that is too long does). It never sees a socket. The connection calls [`decode`](Self::decode) on what has
/// arrived and not been consumed, again and again until it answers [`Decoded::Incomplete`]; an error ends the
/// connection, unless [`DecodeError::is_recoverable`] says that the stream is still in step.
pub trait Codec: 'static {
    /// Looks at the front of `input` (never empty).
    ///
    /// # Errors
    /// The bytes break the format or a limit. After an error for which `is_recoverable` is true the codec must
    /// make progress when it is called again with the same input.
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError>;

    /// Builds the header for `payload`.
    ///
    /// # Errors
    /// The payload cannot be expressed in this format; nothing is written.
    fn encode(&mut self, head: FrameHead, payload: &[u8], prefix: &mut Prefix) -> Result<(), EncodeError>;

    /// Bytes that follow every payload (a line end); empty for most formats.
    fn suffix(&self) -> &[u8] {
        &[]
    }

    /// How replies find their calls.
    fn matching(&self) -> Matching {
        Matching::None
    }

    /// The head of a new request with this sequence (ignored by FIFO codecs).
    fn request_head(&self, sequence: u32) -> FrameHead {
        FrameHead { kind: FrameKind::Request, sequence, tag: 0 }
    }

    /// The head of a one-way message.
    fn one_way_head(&self) -> FrameHead {
        FrameHead { kind: FrameKind::OneWay, sequence: 0, tag: 0 }
    }
}

/// The bytes of a peer break the format or a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The header announces a frame over the limit.
    #[error(
        "the peer announces a frame of {len} bytes, over the limit of {limit}: raise the codec's frame limit or check that both sides use the same codec"
    )]
    FrameTooLong {
        /// What the header says, in bytes (signed as the format reads it).
        len: i128,
        /// The limit in force, in bytes.
        limit: usize,
        /// The codec skips the frame and goes on with the next one.
        recoverable: bool,
    },
    /// The header's value makes no frame (a length below what the header itself takes, an over-long varint, …).
    #[error("{what} at the front of a frame: {value}: check that both sides use the same codec")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// The value that was read.
        value: i128,
    },
    /// The payload is not what an object codec expects (not JSON, for example); the stream is still in step.
    #[error("the payload cannot be read: {0}")]
    Payload(String),
}

impl DecodeError {
    /// The stream is still in step: the connection may go on with the next frame.
    pub const fn is_recoverable(&self) -> bool {
        match self {
            Self::FrameTooLong { recoverable, .. } => *recoverable,
            Self::Payload(_) => true,
            Self::Malformed { .. } => false,
        }
    }
}

/// A payload that this format cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The payload is longer than the field can say or than the limit allows.
    #[error("a payload of {len} bytes does not fit: this codec carries at most {limit}")]
    TooLong {
        /// The payload's length in bytes.
        len: usize,
        /// The most that fits, in bytes.
        limit: usize,
    },
    /// A codec of fixed frame length was given another length.
    #[error("a payload of {len} bytes was given to a codec whose frames are {expected} bytes")]
    WrongLength {
        /// The payload's length in bytes.
        len: usize,
        /// The length of every frame.
        expected: usize,
    },
    /// The payload contains the byte string that ends a frame.
    #[error("the payload holds the frame delimiter at byte {at}: it would be read as two frames")]
    ContainsDelimiter {
        /// Where it begins.
        at: usize,
    },
    /// An object codec could not turn the value into bytes.
    #[error("the value cannot be written: {0}")]
    Value(String),
}
