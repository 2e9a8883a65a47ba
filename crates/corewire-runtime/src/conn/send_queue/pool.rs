//! The buffers that send queues are made of.

/// Bytes of a whole segment: what one TCP segment of the loopback device (and of segmentation offload) holds, 64 KiB
/// less the headers. A queue that grows to this within a tick is flushed at once, while it is in cache, in pieces of just
/// this size: each lies in one segment, and a few bytes more would travel in a packet of their own.
pub(crate) const SEGMENT_BYTES: usize = 65_483;

/// Send buffers of one worker by size class, last in first out so that they stay in cache: powers of two for queues that
/// hold little, and whole segments.
#[derive(Debug)]
pub(crate) struct BufferPool {
    classes: [Vec<Vec<u8>>; Self::CLASSES],
    kept: usize,
    in_use: usize,
}

impl BufferPool {
    const CLASSES: usize = 8;
    const SMALLEST: usize = 512;
    /// The class of whole segments.
    pub(super) const WHOLE: u8 = Self::CLASSES as u8 - 1;
    /// Bytes kept for use again by one worker.
    const KEPT_MAX: usize = 16 << 20;

    pub(crate) fn new() -> Self {
        Self { classes: std::array::from_fn(|_| Vec::new()), kept: 0, in_use: 0 }
    }

    /// Bytes that the send queues of the worker hold.
    pub(crate) const fn in_use(&self) -> usize {
        self.in_use
    }

    /// The smallest class with buffers of `len` bytes; that of whole segments if there is none.
    pub(super) fn class_of(len: usize) -> u8 {
        let class = len.div_ceil(Self::SMALLEST).max(1).next_power_of_two().trailing_zeros() as u8;
        class.min(Self::WHOLE)
    }

    #[inline]
    pub(super) const fn size_of(class: u8) -> usize {
        if class < Self::WHOLE { Self::SMALLEST << class } else { SEGMENT_BYTES }
    }

    #[inline]
    pub(super) fn take(&mut self, class: u8) -> Vec<u8> {
        let buffer = match self.classes[usize::from(class)].pop() {
            Some(buffer) => {
                self.kept -= buffer.capacity();
                buffer
            }
            None => Vec::with_capacity(Self::size_of(class)),
        };
        self.in_use += buffer.capacity();
        buffer
    }

    #[inline]
    pub(super) fn put(&mut self, mut buffer: Vec<u8>) {
        let capacity = buffer.capacity();
        self.in_use -= capacity;
        if capacity < Self::SMALLEST || self.kept + capacity > Self::KEPT_MAX {
            return;
        }
        buffer.clear();
        // The class whose promise this capacity keeps.
        let class = if capacity < SEGMENT_BYTES {
            ((capacity / Self::SMALLEST).ilog2() as u8).min(Self::WHOLE - 1)
        } else {
            Self::WHOLE
        };
        self.kept += capacity;
        self.classes[usize::from(class)].push(buffer);
    }

    /// Memory of others that a queue holds.
    pub(super) const fn note_shared(&mut self, bytes: usize) {
        self.in_use += bytes;
    }

    pub(super) const fn note_unshared(&mut self, bytes: usize) {
        self.in_use -= bytes;
    }

    #[cfg(test)]
    pub(super) const fn kept(&self) -> usize {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_no_more_than_its_limit() {
        let pool = &mut BufferPool::new();
        let buffers: Vec<_> = (0..1000).map(|_| pool.take(BufferPool::WHOLE)).collect();
        assert_eq!(pool.in_use(), 1000 * SEGMENT_BYTES);
        buffers.into_iter().for_each(|buffer| pool.put(buffer));
        assert!(pool.kept <= BufferPool::KEPT_MAX);
        assert_eq!(pool.in_use(), 0);
    }

    #[test]
    fn a_buffer_comes_back_for_the_class_that_it_was_taken_for() {
        let pool = &mut BufferPool::new();
        for class in 0..=BufferPool::WHOLE {
            let size = BufferPool::size_of(class);
            assert_eq!(BufferPool::class_of(size), class);
            let buffer = pool.take(class);
            assert!(buffer.capacity() >= size);
            let place = buffer.as_ptr();
            pool.put(buffer);
            let again = pool.take(class);
            assert_eq!(again.as_ptr(), place);
        }
        assert_eq!(BufferPool::class_of(usize::MAX / 2), BufferPool::WHOLE);
    }
}
