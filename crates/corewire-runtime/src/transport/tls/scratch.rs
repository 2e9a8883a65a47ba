//! What the TLS connections of a worker share.

use std::cell::RefCell;

use corewire_driver::BufferPool;

use super::channel::RECORD_MAX;
use super::record::OVERHEAD_MAX;
use crate::conn::SEGMENT_BYTES;

/// Memory that is used for one connection at a time, or lent to one while it has something unfinished.
pub(crate) struct Scratch {
    /// Where records are opened into.
    pub(super) opened: RefCell<BufferPool>,
    /// Where records are sealed into.
    pub(super) sealed: RefCell<Vec<u8>>,
    /// Buffers for the beginnings of records, and for what a socket does not take.
    spare: RefCell<Vec<Vec<u8>>>,
}

impl Scratch {
    /// What is opened in one go; whoever keeps a piece keeps no more than this.
    pub(super) const OPENED_BYTES: usize = 256 * 1024;
    /// What is sealed before it is sent.
    pub(super) const SEALED_BYTES: usize = SEGMENT_BYTES;
    const SPARE_MAX: usize = 64;

    pub(crate) fn new() -> Self {
        Self {
            opened: RefCell::new(BufferPool::new(Self::OPENED_BYTES)),
            sealed: RefCell::default(),
            spare: RefCell::default(),
        }
    }

    /// An empty buffer for a record.
    pub(super) fn take(&self) -> Vec<u8> {
        let spare = self.spare.borrow_mut().pop();
        spare.unwrap_or_else(|| Vec::with_capacity(RECORD_MAX + OVERHEAD_MAX + 256))
    }

    /// Takes a buffer back, to be used again.
    pub(super) fn put(&self, mut buffer: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if buffer.capacity() > RECORD_MAX
            && buffer.capacity() <= Self::SEALED_BYTES
            && spare.len() < Self::SPARE_MAX
        {
            buffer.clear();
            spare.push(buffer);
        }
    }
}
