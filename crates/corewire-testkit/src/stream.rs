//! An in-memory byte stream that arrives in arbitrary pieces, as TCP's does.

use std::collections::VecDeque;

use crate::rng::Rng;

/// One direction of a byte stream; what is written comes out in order, cut at random places.
///
/// ```
/// use corewire_testkit::stream::ByteStream;
/// let mut stream = ByteStream::new(1, 3);
/// stream.write(b"hello world");
/// let mut seen = Vec::new();
/// while let Some(piece) = stream.read() {
///     assert!((1..=3).contains(&piece.len()));
///     seen.extend(piece);
/// }
/// assert_eq!(seen, b"hello world");
/// ```
#[derive(Debug)]
pub struct ByteStream {
    bytes: VecDeque<u8>,
    rng: Rng,
    piece_max: usize,
}

impl ByteStream {
    /// A stream whose pieces are 1 to `piece_max` bytes (at least 1), drawn from `seed`.
    pub fn new(seed: u64, piece_max: usize) -> Self {
        Self { bytes: VecDeque::new(), rng: Rng::new(seed), piece_max: piece_max.max(1) }
    }

    /// Appends bytes.
    pub fn write(&mut self, bytes: &[u8]) {
        self.bytes.extend(bytes);
    }

    /// The next piece, or `None` when everything has been read.
    pub fn read(&mut self) -> Option<Vec<u8>> {
        let len = (1 + self.rng.below(self.piece_max as u64) as usize).min(self.bytes.len());
        (len > 0).then(|| self.bytes.drain(..len).collect())
    }

    /// Bytes written and not read yet.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Everything has been read.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}
