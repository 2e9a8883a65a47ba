//! Segment buffers that are used again.

/// A last-in-first-out store of buffers, so that the one handed out is the one still in cache.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<Vec<u8>>,
    kept_max: usize,
}

impl Pool {
    pub(super) const fn new(kept_max: usize) -> Self {
        Self { free: Vec::new(), kept_max }
    }

    /// An empty buffer that holds `capacity` bytes without growing.
    #[inline]
    pub(super) fn take(&mut self, capacity: usize) -> Vec<u8> {
        let mut buffer = self.free.pop().unwrap_or_default();
        buffer.reserve_exact(capacity);
        buffer
    }

    #[inline]
    pub(super) fn give(&mut self, mut buffer: Vec<u8>) {
        if buffer.capacity() > 0 && self.free.len() < self.kept_max {
            buffer.clear();
            self.free.push(buffer);
        }
    }

    /// Takes a buffer back unless it is larger than the others and would only hold memory.
    pub(super) fn give_if_at_most(&mut self, buffer: Vec<u8>, capacity_max: usize) {
        if buffer.capacity() <= capacity_max {
            self.give(buffer);
        }
    }

    pub(super) fn release(&mut self) {
        self.free = Vec::new();
    }

    pub(super) fn memory(&self) -> usize {
        let headers = self.free.capacity() * size_of::<Vec<u8>>();
        headers + self.free.iter().map(Vec::capacity).sum::<usize>()
    }
}
