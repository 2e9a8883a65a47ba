//! Bytes on their way to a socket, and the pool that their buffers come from.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

/// What one connection has still to send: whole segments first, then a tail that small sends are appended to.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    segments: VecDeque<Segment>,
    tail: Vec<u8>,
    /// Bytes at the front of the tail that were sent while no segment stood before it.
    tail_sent: usize,
    len: usize,
    /// The size class that the last tail came to: the next one begins with it.
    class: u8,
}

#[derive(Debug)]
enum Segment {
    /// A tail that was closed because a shared segment came behind it; the first `usize` bytes are sent.
    Copied(Vec<u8>, usize),
    /// Memory that was handed over instead of copied.
    Shared(Bytes),
}

/// Slices in one system call.
pub(crate) const SLICES_MAX: usize = 16;

/// Pieces of at least this many bytes are worth a segment of their own; smaller ones are copied to the tail.
const SHARED_MIN: usize = 4 * 1024;

impl SendQueue {
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn push_slice(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        self.reserve(bytes.len(), pool);
        self.append(bytes);
    }

    /// Makes room for `more` bytes that follow by [`append`](Self::append).
    #[inline]
    pub(crate) fn reserve(&mut self, more: usize, pool: &mut BufferPool) {
        if self.tail.capacity() - self.tail.len() < more {
            self.grow(more, pool);
        }
    }

    #[inline]
    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.tail.extend_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// Appends all parts, if the queue stays within `most` bytes and no memory is needed for it.
    #[inline]
    pub(crate) fn try_append(&mut self, parts: [&[u8]; 3], total: usize, most: usize) -> bool {
        if self.len + total > most || self.tail.capacity() - self.tail.len() < total {
            return false;
        }
        for part in parts {
            if !part.is_empty() {
                self.tail.extend_from_slice(part);
            }
        }
        self.len += total;
        true
    }

    #[cold]
    fn grow(&mut self, more: usize, pool: &mut BufferPool) {
        self.tail.drain(..std::mem::take(&mut self.tail_sent));
        if self.tail.capacity() - self.tail.len() >= more {
            return;
        }
        let needed = self.tail.len() + more;
        let mut larger = pool.take(self.class.max(BufferPool::class_of(needed)));
        larger.reserve_exact(needed);
        larger.extend_from_slice(&self.tail);
        pool.put(std::mem::replace(&mut self.tail, larger));
    }

    pub(crate) fn push_bytes(&mut self, bytes: Bytes, pool: &mut BufferPool) {
        if bytes.len() < SHARED_MIN {
            return self.push_slice(&bytes, pool);
        }
        self.close_tail();
        self.len += bytes.len();
        self.segments.push_back(Segment::Shared(bytes));
    }

    fn close_tail(&mut self) {
        if self.tail.len() > self.tail_sent {
            let tail = std::mem::take(&mut self.tail);
            self.segments.push_back(Segment::Copied(tail, std::mem::take(&mut self.tail_sent)));
        }
    }

    /// Puts the front of the queue, up to `most` bytes, into `slices`; says how many were filled and how many bytes
    /// they hold.
    #[inline]
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX], most: usize) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        let tail = &self.tail[self.tail_sent..];
        let parts = self.segments.iter().map(Segment::unsent).chain((!tail.is_empty()).then_some(tail));
        for part in parts.take(SLICES_MAX) {
            let part = &part[..part.len().min(most - total)];
            slices[count] = IoSlice::new(part);
            count += 1;
            total += part.len();
            if total == most {
                break;
            }
        }
        (count, total)
    }

    /// The front `sent` bytes are gone; buffers that are done with go back to the pool.
    #[inline]
    pub(crate) fn advance(&mut self, mut sent: usize, pool: &mut BufferPool) {
        self.len -= sent;
        while sent > 0 {
            let Some(front) = self.segments.front_mut() else { break };
            let step = sent.min(front.unsent().len());
            sent -= step;
            if step < front.unsent().len() {
                front.advance(step);
                return;
            }
            if let Some(Segment::Copied(buffer, _)) = self.segments.pop_front() {
                pool.put(buffer);
            }
        }
        self.tail_sent += sent;
        if self.is_empty() {
            self.class = BufferPool::class_of(self.tail.len());
            self.tail_sent = 0;
            pool.put(std::mem::take(&mut self.tail));
            if self.segments.capacity() > SLICES_MAX {
                self.segments = VecDeque::new();
            }
        }
    }
}

impl Segment {
    fn unsent(&self) -> &[u8] {
        match self {
            Self::Copied(buffer, sent) => &buffer[*sent..],
            Self::Shared(bytes) => bytes,
        }
    }

    fn advance(&mut self, step: usize) {
        match self {
            Self::Copied(_, sent) => *sent += step,
            Self::Shared(bytes) => bytes.advance(step),
        }
    }
}

/// Send buffers of one worker by size class (powers of two), last in first out so that they stay in cache.
#[derive(Debug)]
pub(crate) struct BufferPool {
    classes: [Vec<Vec<u8>>; Self::CLASSES],
    kept: usize,
}

impl BufferPool {
    const CLASSES: usize = 10;
    const SMALLEST: usize = 512;
    /// Bytes kept for use again by one worker.
    const KEPT_MAX: usize = 16 << 20;

    pub(crate) fn new() -> Self {
        Self { classes: std::array::from_fn(|_| Vec::new()), kept: 0 }
    }

    fn class_of(len: usize) -> u8 {
        let class = len.div_ceil(Self::SMALLEST).max(1).next_power_of_two().trailing_zeros() as usize;
        class.min(Self::CLASSES - 1) as u8
    }

    #[inline]
    fn take(&mut self, class: u8) -> Vec<u8> {
        let class = usize::from(class).min(Self::CLASSES - 1);
        match self.classes[class].pop() {
            Some(buffer) => {
                self.kept -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(Self::SMALLEST << class),
        }
    }

    #[inline]
    fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        if capacity < Self::SMALLEST || self.kept + capacity > Self::KEPT_MAX {
            return;
        }
        buffer.clear();
        // The class whose promise this capacity keeps.
        let class = ((capacity / Self::SMALLEST).ilog2() as usize).min(Self::CLASSES - 1);
        self.kept += capacity;
        self.classes[class].push(buffer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn contents(queue: &SendQueue) -> Vec<u8> {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, total) = queue.fill(&mut slices, usize::MAX);
        let bytes: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
        assert_eq!(bytes.len(), total);
        bytes
    }

    #[test]
    fn copied_and_shared_pieces_leave_in_order_whatever_the_socket_takes() {
        let pool = &mut BufferPool::new();
        let mut queue = SendQueue::default();
        let mut expected = Vec::new();
        for round in 0..3_u8 {
            queue.push_slice(&[round; 100], pool);
            expected.extend([round; 100]);
            queue.push_bytes(Bytes::from(vec![100 + round; SHARED_MIN]), pool);
            expected.extend([100 + round; SHARED_MIN]);
        }
        queue.push_bytes(Bytes::from_static(b"small"), pool);
        expected.extend(b"small");
        let mut step = 1;
        while !queue.is_empty() {
            assert_eq!(contents(&queue), expected);
            let sent = step.min(queue.len());
            queue.advance(sent, pool);
            expected.drain(..sent);
            assert_eq!(queue.len(), expected.len());
            step = step * 3 + 1;
        }
        assert_eq!(contents(&queue), b"");
    }

    #[test]
    fn the_front_can_be_taken_up_to_a_size() {
        let pool = &mut BufferPool::new();
        let mut queue = SendQueue::default();
        queue.push_slice(&[1; 100], pool);
        queue.push_bytes(Bytes::from(vec![2; SHARED_MIN]), pool);
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        for (most, count) in [(1, 1), (100, 1), (101, 2), (100 + SHARED_MIN, 2)] {
            assert_eq!(queue.fill(&mut slices, most), (count, most));
        }
        assert_eq!(queue.fill(&mut slices, usize::MAX), (2, 100 + SHARED_MIN));
    }

    #[test]
    fn a_queue_that_is_never_empty_keeps_its_memory_small() {
        let pool = &mut BufferPool::new();
        let mut queue = SendQueue::default();
        for round in 0..10_000_u32 {
            queue.push_slice(&round.to_le_bytes().repeat(8), pool);
            if queue.len() > 1000 {
                queue.advance(queue.len() - 53, pool);
            }
        }
        assert!(queue.tail.capacity() <= 2048, "{}", queue.tail.capacity());
        let end = contents(&queue);
        assert_eq!(end[end.len() - 4..], 9_999_u32.to_le_bytes());
    }

    #[test]
    fn a_queue_in_use_again_does_not_allocate() {
        let pool = &mut BufferPool::new();
        let mut queue = SendQueue::default();
        queue.push_slice(&[1; 3000], pool);
        queue.advance(3000, pool);
        let kept = pool.kept;
        assert!(kept >= 3000);
        queue.push_slice(&[2; 3000], pool);
        assert_eq!(pool.kept, 0, "the buffer of before is used");
        queue.advance(3000, pool);
        assert_eq!(pool.kept, kept);
    }

    #[test]
    fn messages_of_every_small_size_are_copied_whole() {
        let pool = &mut BufferPool::new();
        let (mut queue, mut expected) = (SendQueue::default(), Vec::new());
        for len in 0..200 {
            let message: Vec<u8> = (0..len).map(|at| (len * 7 + at) as u8).collect();
            queue.push_slice(&message, pool);
            expected.extend_from_slice(&message);
        }
        assert_eq!(contents(&queue), expected);
        assert_eq!(queue.len(), expected.len());
    }

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let pool = &mut BufferPool::new();
        for _ in 0..100 {
            pool.put(Vec::with_capacity(1 << 20));
        }
        assert!(pool.kept <= BufferPool::KEPT_MAX);
    }
}
