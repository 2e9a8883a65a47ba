//! Frames as handlers see them.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_driver::BufferPool;
use corewire_proto::codec::{FrameHead, FrameKind};

/// One frame that has arrived, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    head: FrameHead,
    payload: &'a [u8],
    block: &'a Bytes,
}

impl<'a> Frame<'a> {
    /// A payload up to this size is copied when it is kept.
    const COPIED_MAX: usize = 4 * 1024;

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

    /// The payload as a handle that can be kept. One of more than 4 KiB is not copied: it keeps the block of up to
    /// 640 KiB that it arrived in. A smaller one is copied to a block of 64 KiB that small payloads share, so that it
    /// does not keep a whole receive buffer; neither allocates in steady state.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        if self.payload.len() > Self::COPIED_MAX {
            return self.block.slice_ref(self.payload);
        }
        small_bytes(self.payload)
    }

    /// The frame as a value of its own; see [`to_bytes`](Self::to_bytes).
    pub fn to_message(&self) -> Message {
        Message { head: self.head, payload: self.to_bytes() }
    }
}

/// A handle on a copy of a small payload.
#[inline]
fn small_bytes(payload: &[u8]) -> Bytes {
    thread_local! {
        static BLOCKS: RefCell<BufferPool> = RefCell::new(BufferPool::new(64 * 1024));
    }
    if payload.is_empty() {
        return Bytes::new();
    }
    BLOCKS.with_borrow_mut(|blocks| {
        let room = blocks.room(payload.len());
        room.extend_from_slice(payload);
        room.split().freeze()
    })
}

/// A frame that owns its payload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// What the frame says beside its payload.
    pub head: FrameHead,
    /// The payload.
    pub payload: Bytes,
}
