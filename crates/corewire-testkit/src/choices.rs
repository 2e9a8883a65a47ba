//! Decisions read from bytes, so that one body serves fuzzers and seeded tests.

use crate::rng::Rng;

/// Reads small numbers from bytes; 0 when they are used up.
pub(crate) struct Choices<'a> {
    bytes: &'a [u8],
}

impl<'a> Choices<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.bytes.split_first() else { return 0 };
        self.bytes = rest;
        first
    }

    /// A number below `limit`, which is at least 1.
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        let high = if limit > 256 { usize::from(self.byte()) << 8 } else { 0 };
        (high | usize::from(self.byte())) % limit
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 == 1
    }

    pub(crate) fn rest(self) -> &'a [u8] {
        self.bytes
    }
}

/// `len` bytes that follow from `seed` by [`Rng`], the same on every machine.
pub fn random_bytes(seed: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    Rng::new(seed).fill(&mut bytes);
    bytes
}
