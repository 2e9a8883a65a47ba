//! Payloads that outlive the buffer they were received in.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_driver::BufferPool;
use corewire_proto::rpc::Origin;

/// A payload up to this size is copied when it is kept, in bytes.
const COPIED_MAX: usize = 4 * 1024;

/// Blocks that small payloads share, in bytes.
const BLOCK: usize = 64 * 1024;

/// At most this much is copied ahead, in bytes.
const AHEAD_MAX: usize = 16 * 1024;

/// Makes handles on payloads that can be kept.
///
/// Small ones are copied to blocks of their own kind, so that a queue of them does not hold the receive buffers of the
/// whole worker. Where one small payload follows another they are copied together, with what lies between them: then
/// most of them cost no more than a count. Neither allocates in steady state.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    /// The chunk that is being read. Its memory holds nothing else as long as this is here.
    chunk: Bytes,
    /// Where in the chunk `copy` is a copy of.
    from: usize,
    copy: Bytes,
    /// Bytes of the copy that were asked for.
    used: usize,
    /// How much to copy the next time.
    ahead: usize,
}

impl Keeper {
    /// A chunk is going to be read.
    #[inline]
    pub(super) fn begin(&mut self, chunk: &Bytes) {
        self.chunk = chunk.clone();
    }

    /// A handle on `payload`, of the step's input.
    #[inline]
    pub(super) fn keep(&mut self, payload: &[u8], origin: Origin<'_>) -> Bytes {
        if payload.len() > COPIED_MAX {
            return origin.to_bytes(payload);
        }
        let at = self.place(payload).wrapping_sub(self.from);
        let is_copied = self.copy.len().checked_sub(at).is_some_and(|left| left >= payload.len());
        if is_copied && !payload.is_empty() {
            self.used += payload.len();
            return self.copy.slice(at..at + payload.len());
        }
        self.copy(payload)
    }

    /// The chunk has been read.
    #[inline]
    pub(super) fn end(&mut self) {
        self.forget();
        self.chunk = Bytes::new();
    }

    #[inline]
    fn forget(&mut self) {
        if !self.copy.is_empty() {
            self.measure();
            self.copy = Bytes::new();
        }
    }

    /// Where in the chunk a payload lies; beyond its end if it lies elsewhere.
    #[inline]
    fn place(&self, payload: &[u8]) -> usize {
        payload.as_ptr().addr().wrapping_sub(self.chunk.as_ptr().addr())
    }

    /// More ahead if most of what was copied was asked for, nothing but the payload if not.
    fn measure(&mut self) {
        let is_worth_it = self.used * 2 >= self.copy.len();
        self.ahead = if is_worth_it { (self.copy.len() * 2).min(AHEAD_MAX) } else { 0 };
    }

    fn copy(&mut self, payload: &[u8]) -> Bytes {
        if payload.is_empty() {
            return Bytes::new();
        }
        self.forget();
        let at = self.place(payload);
        if at >= self.chunk.len() {
            return copy_to_block(payload);
        }
        let until = self.chunk.len().min(at + self.ahead.max(payload.len()));
        let copy = copy_to_block(&self.chunk[at..until]);
        let kept = copy.slice(..payload.len());
        (self.from, self.copy, self.used) = (at, copy, payload.len());
        kept
    }
}

fn copy_to_block(bytes: &[u8]) -> Bytes {
    thread_local! {
        static BLOCKS: RefCell<BufferPool> = RefCell::new(BufferPool::new(BLOCK));
    }
    BLOCKS.with_borrow_mut(|blocks| {
        let room = blocks.room(bytes.len());
        room.extend_from_slice(bytes);
        room.split().freeze()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(of: std::ops::Range<u8>) -> Bytes {
        of.flat_map(|at| [at; 100]).collect::<Vec<_>>().into()
    }

    #[test]
    fn payloads_stay_what_they_were_when_the_memory_of_their_chunk_is_used_again() {
        let mut keeper = Keeper::default();
        let mut kept = Vec::new();
        let mut memory = bytes::BytesMut::with_capacity(1_000);
        for round in 0..20_u8 {
            memory.clear();
            memory.extend_from_slice(&chunk(round..round + 10));
            let chunk = std::mem::take(&mut memory).freeze();
            keeper.begin(&chunk);
            for at in 0..10 {
                let payload = &chunk[usize::from(at) * 100 + 20..][..80];
                kept.push((round + at, keeper.keep(payload, Origin::Shared(&chunk))));
            }
            keeper.end();
            memory = chunk.try_into_mut().expect("nothing kept holds the chunk");
        }
        for (value, payload) in kept {
            assert_eq!(payload, vec![value; 80]);
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_copied_again_and_again() {
        let mut keeper = Keeper { ahead: AHEAD_MAX, ..Keeper::default() };
        let chunk = chunk(0..200);
        keeper.begin(&chunk);
        keeper.keep(&chunk[..50], Origin::Shared(&chunk));
        assert_eq!(keeper.copy.len(), AHEAD_MAX);
        keeper.keep(&chunk[AHEAD_MAX..][..50], Origin::Shared(&chunk));
        assert_eq!(keeper.copy.len(), 50);
        keeper.keep(&chunk[AHEAD_MAX + 100..][..50], Origin::Shared(&chunk));
        assert_eq!(keeper.copy.len(), 100, "and more once it is");
    }

    #[test]
    fn what_lies_outside_of_the_chunk_is_copied_alone() {
        let mut keeper = Keeper { ahead: AHEAD_MAX, ..Keeper::default() };
        keeper.begin(&chunk(0..2));
        let scratch = *b"one, two";
        let one = keeper.keep(&scratch[..3], Origin::Scratch);
        let two = keeper.keep(&scratch[5..], Origin::Scratch);
        assert_eq!((&one[..], &two[..], keeper.copy.len()), (&b"one"[..], &b"two"[..], 0));
        assert!(keeper.keep(b"", Origin::Scratch).is_empty());
    }

    #[test]
    fn a_large_payload_is_not_copied() {
        let chunk = Bytes::from(vec![7; 2 * COPIED_MAX]);
        let kept = Keeper::default().keep(&chunk[1..], Origin::Shared(&chunk));
        assert_eq!(kept.as_ptr(), chunk[1..].as_ptr());
    }
}
