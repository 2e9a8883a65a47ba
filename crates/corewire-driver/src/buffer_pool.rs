//! Memory that is handed out in pieces and used again.

use bytes::BytesMut;

/// One block to fill from the front, and the blocks before it of which pieces are still in use.
///
/// While nobody keeps a piece, the block is used from its start again and again, so it stays in cache. In steady
/// state nothing is allocated, even if pieces are kept for a while.
#[derive(Debug)]
pub struct BufferPool {
    current: BytesMut,
    size: usize,
    /// The latest last.
    retired: Vec<BytesMut>,
}

impl BufferPool {
    /// Bytes that are remembered for use again, and the fewest blocks; beyond both the oldest is freed with its last piece.
    const RETIRED_BYTES: usize = 1024 * 1024;
    const RETIRED_MIN: usize = 16;

    /// BufferPool of `size` bytes, allocated as they are needed.
    pub fn new(size: usize) -> Self {
        Self { current: BytesMut::new(), size, retired: Vec::new() }
    }

    /// An empty buffer with room for at least `min` bytes (at most the block size is promised). Take what was filled
    /// by `split`.
    #[inline]
    pub fn room(&mut self, min: usize) -> &mut BytesMut {
        if !self.current.try_reclaim(self.size) && self.current.capacity() < min {
            self.change();
        }
        &mut self.current
    }

    /// As [`room`](Self::room), behind what was taken last as long as there is room: for pieces that are far smaller than
    /// the block and of which some are nearly always kept.
    #[inline]
    pub fn room_behind(&mut self, min: usize) -> &mut BytesMut {
        if self.current.capacity() >= min { &mut self.current } else { self.room(min) }
    }

    #[cold]
    fn change(&mut self) {
        let size = self.size;
        let free = self.retired.iter_mut().rposition(|block| block.try_reclaim(size));
        let next = match free {
            Some(at) => self.retired.remove(at),
            None => BytesMut::with_capacity(size),
        };
        let left = std::mem::replace(&mut self.current, next);
        if self.retired.len() >= Self::RETIRED_MIN.max(Self::RETIRED_BYTES / size) {
            self.retired.remove(0);
        }
        self.retired.push(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(blocks: &mut BufferPool, bytes: &[u8]) -> bytes::Bytes {
        let room = blocks.room(bytes.len());
        room.extend_from_slice(bytes);
        room.split().freeze()
    }

    #[test]
    fn memory_is_used_again_once_no_piece_is_kept() {
        let mut blocks = BufferPool::new(1024);
        let first = take(&mut blocks, &[1; 100]);
        let place = first.as_ptr();
        drop(first);
        assert_eq!(take(&mut blocks, &[2; 100]).as_ptr(), place);
    }

    #[test]
    fn pieces_lie_behind_one_another_until_the_block_is_full() {
        let mut blocks = BufferPool::new(1000);
        let mut places = Vec::new();
        for _ in 0..20 {
            let room = blocks.room_behind(100);
            room.extend_from_slice(&[7; 100]);
            places.push(room.split().as_ptr());
        }
        assert_eq!(places[9], places[0].wrapping_add(900));
        assert_eq!(places[10..], places[..10], "the block is used again, for nobody keeps a piece");
    }

    #[test]
    fn kept_pieces_stay_and_their_blocks_come_back_later() {
        let mut blocks = BufferPool::new(1024);
        let mut places = std::collections::HashSet::new();
        for round in 0..100_u8 {
            let kept: Vec<_> = (0..30_u8).map(|at| take(&mut blocks, &[round ^ at; 100])).collect();
            for (at, piece) in (0..30_u8).zip(&kept) {
                assert_eq!(piece[..], [round ^ at; 100]);
                places.insert(piece.as_ptr());
            }
        }
        assert!(places.len() <= 60, "{} places: blocks are not used again", places.len());
    }
}
