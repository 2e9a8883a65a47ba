//! Payloads that outlive the buffer they were received in.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_driver::{BufferPool, DriverConfig};
use corewire_proto::rpc::Origin;

/// Payloads up to this size are copied to blocks that they share, in bytes.
const SMALL_MAX: usize = 4 * 1024;

/// Such a block, in bytes: what one small payload can occupy at the most.
const BLOCK: usize = 16 * 1024;

/// At most this much is copied ahead, in bytes.
const AHEAD_MAX: usize = 16 * 1024;

/// Payloads from this size on are not copied, in bytes: a fifth of what they may occupy.
const LARGE_MIN: usize = RECEIVE_BLOCK / 5;

/// What a piece of a receive block occupies as long as it is kept, in bytes: the driver's default.
const RECEIVE_BLOCK: usize = DriverConfig::RECEIVE_BLOCK_SIZE;

/// What a payload that is kept occupies beside its bytes: its handle, its entry in a queue, what the allocator adds.
const OVERHEAD: usize = 64;

/// A payload that outlives the step it came in, and what it occupies in bytes.
pub(crate) struct Retained {
    pub(crate) payload: Bytes,
    pub(crate) cost: u32,
}

impl Retained {
    fn new(payload: Bytes, occupied: usize) -> Self {
        Self { payload, cost: u32::try_from(occupied + OVERHEAD).unwrap_or(u32::MAX) }
    }
}

/// Makes handles on payloads that can be kept.
///
/// A payload that is kept must not hold a receive block, of which it may be a small part. Small ones are copied to blocks
/// of their own kind; where one follows another they are copied together, with what lies between them: then most of them
/// cost no more than a count. Neither allocates in steady state. Longer ones are copied to a buffer of their own; only one
/// that is a good part of a receive block stays there, and one that was put together stays in the memory of its frame.
#[derive(Debug, Default)]
pub(super) struct Retainer {
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

impl Retainer {
    /// A chunk is going to be read.
    #[inline]
    pub(super) fn begin(&mut self, chunk: &Bytes) {
        self.chunk = chunk.clone();
    }

    /// A handle on `payload`, of the step's input, that may be kept for any time.
    #[inline]
    pub(super) fn retain(&mut self, payload: &[u8], origin: Origin<'_>) -> Retained {
        let len = payload.len();
        if len <= SMALL_MAX {
            return Retained::new(self.small(payload), len);
        }
        if let Some(retained) = Self::own(payload, origin) {
            return retained;
        }
        if len < LARGE_MIN {
            let (copy, occupied) = copy_to_own(payload);
            return Retained::new(copy, occupied);
        }
        Retained::new(origin.to_bytes(payload), (2 * len).max(RECEIVE_BLOCK))
    }

    /// A handle on `payload`, of the step's input, that is most likely dropped before the next receive: not copied if it
    /// is not small.
    #[inline]
    pub(super) fn borrow(&mut self, payload: &[u8], origin: Origin<'_>) -> Retained {
        if payload.len() <= SMALL_MAX {
            return Retained::new(self.small(payload), payload.len());
        }
        if let Some(retained) = Self::own(payload, origin) {
            return retained;
        }
        Retained::new(origin.to_bytes(payload), (2 * payload.len()).max(RECEIVE_BLOCK))
    }

    /// A handle on a payload that is most of a frame which was put together: it has been copied once, and is not again.
    fn own(payload: &[u8], origin: Origin<'_>) -> Option<Retained> {
        let Origin::Own(frame) = origin else { return None };
        let is_most = payload.len() * 2 >= frame.len();
        // The buffer has grown by doubling.
        is_most.then(|| Retained::new(origin.to_bytes(payload), 2 * frame.len()))
    }

    #[inline]
    fn small(&mut self, payload: &[u8]) -> Bytes {
        let at = self.offset(payload).wrapping_sub(self.from);
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
    fn offset(&self, payload: &[u8]) -> usize {
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
        let at = self.offset(payload);
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

/// The sizes of buffers that hold one payload each are powers of two from this one on, in bytes.
const OWN_MIN: usize = 2 * SMALL_MAX;

/// How many such sizes there are: the last holds all that is shorter than `LARGE_MIN`.
const OWN_SIZES: usize = (LARGE_MIN.next_power_of_two() / OWN_MIN).ilog2() as usize + 1;

/// A copy in a buffer of which nothing else is kept, and the buffer's size.
fn copy_to_own(bytes: &[u8]) -> (Bytes, usize) {
    thread_local! {
        static BUFFERS: RefCell<[BufferPool; OWN_SIZES]> =
            RefCell::new(std::array::from_fn(|at| BufferPool::new(OWN_MIN << at)));
    }
    let size = bytes.len().next_power_of_two().max(OWN_MIN);
    let copy = BUFFERS.with_borrow_mut(|buffers| {
        let room = buffers[(size / OWN_MIN).ilog2() as usize].room(size);
        room.extend_from_slice(bytes);
        room.split().freeze()
    });
    (copy, size)
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
        let mut retainer = Retainer::default();
        let mut kept = Vec::new();
        let mut memory = bytes::BytesMut::with_capacity(1_000);
        for round in 0..20_u8 {
            memory.clear();
            memory.extend_from_slice(&chunk(round..round + 10));
            let chunk = std::mem::take(&mut memory).freeze();
            retainer.begin(&chunk);
            for at in 0..10 {
                let payload = &chunk[usize::from(at) * 100 + 20..][..80];
                kept.push((round + at, retainer.retain(payload, Origin::Shared(&chunk)).payload));
            }
            retainer.end();
            memory = chunk.try_into_mut().expect("nothing kept holds the chunk");
        }
        for (value, payload) in kept {
            assert_eq!(payload, vec![value; 80]);
        }
    }

    #[test]
    fn what_is_not_asked_for_is_not_copied_again_and_again() {
        let mut retainer = Retainer { ahead: AHEAD_MAX, ..Retainer::default() };
        let chunk = chunk(0..200);
        retainer.begin(&chunk);
        retainer.retain(&chunk[..50], Origin::Shared(&chunk));
        assert_eq!(retainer.copy.len(), AHEAD_MAX);
        retainer.retain(&chunk[AHEAD_MAX..][..50], Origin::Shared(&chunk));
        assert_eq!(retainer.copy.len(), 50);
        retainer.retain(&chunk[AHEAD_MAX + 100..][..50], Origin::Shared(&chunk));
        assert_eq!(retainer.copy.len(), 100, "and more once it is");
    }

    #[test]
    fn a_long_payload_that_was_put_together_is_not_copied_again() {
        let frame = Bytes::from(vec![7; 64 * 1024]);
        let mut retainer = Retainer::default();
        let whole = retainer.retain(&frame[18..], Origin::Own(&frame));
        assert_eq!(whole.payload.as_ptr(), frame[18..].as_ptr());
        assert_eq!(whole.cost as usize, 2 * frame.len() + OVERHEAD);
        let part = retainer.retain(&frame[..20_000], Origin::Own(&frame));
        assert_ne!(part.payload.as_ptr(), frame.as_ptr(), "it would hold all of the frame");
        let lent = retainer.borrow(&frame[18..], Origin::Own(&frame));
        assert_eq!(lent.payload.as_ptr(), frame[18..].as_ptr());
    }

    #[test]
    fn what_lies_outside_of_the_chunk_is_copied_alone() {
        let mut retainer = Retainer { ahead: AHEAD_MAX, ..Retainer::default() };
        retainer.begin(&chunk(0..2));
        let scratch = *b"one, two";
        let one = retainer.retain(&scratch[..3], Origin::Scratch);
        let two = retainer.retain(&scratch[5..], Origin::Scratch);
        assert_eq!((&one.payload[..], &two.payload[..], retainer.copy.len()), (&b"one"[..], &b"two"[..], 0));
        assert!(retainer.retain(b"", Origin::Scratch).payload.is_empty());
    }

    #[test]
    fn only_a_payload_that_is_a_good_part_of_a_receive_block_occupies_it() {
        let chunk = Bytes::from(vec![7; RECEIVE_BLOCK]);
        let mut retainer = Retainer::default();
        for (len, is_copied) in [(1, true), (SMALL_MAX + 1, true), (LARGE_MIN - 1, true), (LARGE_MIN, false)]
        {
            let retained = retainer.retain(&chunk[1..=len], Origin::Shared(&chunk));
            assert_eq!(retained.payload, chunk[1..=len]);
            assert_eq!(retained.payload.as_ptr() != chunk[1..].as_ptr(), is_copied, "{len} bytes");
            let buffer = if len <= SMALL_MAX { len } else { len.next_power_of_two() };
            let occupied = if is_copied { buffer } else { RECEIVE_BLOCK };
            assert_eq!(retained.cost as usize, occupied + OVERHEAD, "{len} bytes");
        }
        let again = || copy_to_own(&chunk[..20_000]).0.as_ptr();
        assert_eq!(again(), again(), "a buffer is used again");
        let borrowed = retainer.borrow(&chunk[1..=SMALL_MAX + 1], Origin::Shared(&chunk));
        assert_eq!(borrowed.payload.as_ptr(), chunk[1..].as_ptr());
        assert_eq!(borrowed.cost as usize, RECEIVE_BLOCK + OVERHEAD);
    }
}
