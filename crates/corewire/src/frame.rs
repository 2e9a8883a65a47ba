//! Frames as handlers see them.

use bytes::Bytes;
use corewire_proto::codec::{FrameHead, FrameKind};

/// One frame that has arrived, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    head: FrameHead,
    payload: &'a [u8],
    block: &'a Bytes,
}

impl<'a> Frame<'a> {
    /// `payload` lies in `block`.
    pub(crate) const fn new(head: FrameHead, payload: &'a [u8], block: &'a Bytes) -> Self {
        Self { head, payload, block }
    }

    /// What the frame says beside its payload.
    #[inline]
    pub const fn head(&self) -> FrameHead {
        self.head
    }

    /// Request, reply or plain message.
    #[inline]
    pub const fn kind(&self) -> FrameKind {
        self.head.kind
    }

    /// The payload, valid during the call.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The payload as a handle that can be kept, without a copy. It keeps the block of up to 256 KiB that it lies
    /// in; copy a small payload that is to be kept for long.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        if self.payload.is_empty() { Bytes::new() } else { self.block.slice_ref(self.payload) }
    }

    /// The frame as a value of its own; see [`to_bytes`](Self::to_bytes).
    pub fn to_message(&self) -> Message {
        Message { head: self.head, payload: self.to_bytes() }
    }
}

/// A frame that owns its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What the frame says beside its payload.
    pub head: FrameHead,
    /// The payload.
    pub payload: Bytes,
}
