//! The words that codecs and connections use about frames.

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
    #[inline]
    pub const fn reply(self) -> Self {
        Self { kind: FrameKind::Reply, ..self }
    }

    /// Whether a reply is expected, or may be: a codec whose frames have no kind cannot tell. To a message that
    /// expects none, or to a reply, there is no call that a reply could belong to.
    #[inline]
    pub const fn expects_reply(&self) -> bool {
        matches!(self.kind, FrameKind::Request | FrameKind::Message)
    }

    /// The head of the error reply to a request with this head: same sequence and tag.
    #[inline]
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
    #[inline]
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
