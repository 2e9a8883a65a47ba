//! Frames as handlers see them.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_driver::{BufferPool, DriverConfig};
use corewire_proto::codec::{FrameHead, FrameKind};

/// One frame that has arrived, borrowed from the receive buffer.
#[derive(Debug, Clone, Copy)]
pub struct Frame<'a> {
    head: FrameHead,
    payload: &'a [u8],
    block: &'a Bytes,
    lies_in: Memory,
}

/// What the bytes of a frame lie in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Memory {
    /// A receive buffer, of which only a part may have arrived with the frame.
    Received,
    /// Memory of the frame's own.
    Own,
}

impl<'a> Frame<'a> {
    /// A payload below this size is copied when it is kept, to memory that such payloads share.
    const SHARED_MIN: usize = 32 * 1024;

    /// `payload` lies in `block`.
    pub(crate) const fn new(head: FrameHead, payload: &'a [u8], block: &'a Bytes, lies_in: Memory) -> Self {
        Self { head, payload, block, lies_in }
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

    /// The payload as a handle that can be kept. One of 32 KiB or more that is at least half of what it arrived with is
    /// not copied: it keeps the block of up to 640 KiB that it lies in. Any other is copied, so that it does not keep a
    /// receive buffer many times its size; below 32 KiB to a block of 64 KiB that such payloads share, which allocates
    /// nothing in steady state.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        if self.payload.len() < Self::SHARED_MIN {
            return small_bytes(self.payload);
        }
        if self.is_copied() {
            return Bytes::copy_from_slice(self.payload);
        }
        self.shared()
    }

    /// The payload where it lies.
    pub(crate) fn shared(&self) -> Bytes {
        self.block.slice_ref(self.payload)
    }

    const fn is_copied(&self) -> bool {
        self.payload.len() < Self::SHARED_MIN || self.payload.len() < self.block.len() / 2
    }

    /// What [`to_bytes`](Self::to_bytes) occupies, in bytes.
    pub(crate) fn kept_len(&self) -> usize {
        match self.lies_in {
            _ if self.is_copied() => self.payload.len(),
            Memory::Own => self.block.len(),
            Memory::Received => self.block.len().max(DriverConfig::RECEIVE_BLOCK_SIZE),
        }
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
        let room = blocks.room_behind(payload.len());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_of_a_receive_block_does_not_keep_it() {
        let block = Bytes::from(vec![7; 640 * 1024]);
        let lies_in_block = |kept: &Bytes| block.as_ptr_range().contains(&kept.as_ptr());
        for (len, is_shared) in
            [(1, false), (4097, false), (32 * 1024, false), (300 * 1024, false), (320 * 1024, true)]
        {
            let frame = Frame::new(FrameHead::default(), &block[100..100 + len], &block, Memory::Received);
            let kept = frame.to_bytes();
            assert_eq!(kept, block[100..100 + len]);
            assert_eq!(lies_in_block(&kept), is_shared, "{len} bytes");
            assert_eq!(frame.kept_len(), if is_shared { block.len() } else { len });
        }
        // As little arrived as it has: still, a block may lie behind it.
        let arrived = block.slice(..4097);
        let frame = Frame::new(FrameHead::default(), &arrived, &arrived, Memory::Received);
        assert!(!lies_in_block(&frame.to_bytes()));
        // Most of what arrived, in a buffer of which nothing else may have been filled.
        let arrived = block.slice(..40_000);
        let frame = |lies_in| Frame::new(FrameHead::default(), &arrived, &arrived, lies_in);
        assert_eq!(frame(Memory::Received).kept_len(), block.len());
        assert_eq!(frame(Memory::Own).kept_len(), 40_000);
    }
}
