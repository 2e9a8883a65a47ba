//! Joins received chunks at the frames that lie across them.

use bytes::Bytes;

/// Keeps the front of a frame whose rest has not arrived, so that
/// [`Connection::receive`](super::Connection::receive) always sees whole frames.
///
/// Frames that lie whole in a chunk are read where they are; only one that lies across chunks is copied, once.
/// Memory: at most one frame (the body limit and 16 bytes), grown as bytes arrive, never by what a header announces.
///
/// ```
/// use corewire_proto::rpc::{Advance, Reassembly};
///
/// // Frames of three bytes, cut by hand.
/// let mut frames = Vec::new();
/// let mut reassembly = Reassembly::new();
/// for chunk in [&b"ab"[..], b"cdefg", b"hi"] {
///     reassembly.drive(&bytes::Bytes::from_static(chunk), |input, origin| {
///         Ok::<_, ()>(match input.get(..3) {
///             Some(frame) => {
///                 frames.push(origin.to_bytes(frame));
///                 Advance::Consumed(3)
///             }
///             None => Advance::Needs { consumed: 0, total: 3 },
///         })
///     }).unwrap();
/// }
/// assert_eq!(frames, [&b"abc"[..], b"def", b"ghi"]);
/// ```
#[derive(Debug, Default)]
pub struct Reassembly {
    carry: Vec<u8>,
    needed: usize,
}

/// What a step made of the input it was shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advance {
    /// It took this many bytes, and wants to see what follows; 0 only if it wants to see the same bytes again.
    Consumed(usize),
    /// It took `consumed` bytes, and the frame behind them wants `total`, more than there are.
    Needs {
        /// Bytes taken.
        consumed: usize,
        /// Bytes that the frame has, counted behind `consumed`.
        total: usize,
    },
    /// It took this many bytes and wants no more for now: the rest is kept.
    Stop(usize),
}

/// Where the input of a step lies.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// In the chunk that was received.
    Chunk(&'a Bytes),
    /// In the reassembly's own buffer.
    Carry,
}

impl Origin<'_> {
    /// A handle on `payload`, a part of the step's input, that outlives the step: a reference into the chunk, or a
    /// copy of a frame that lay across chunks.
    pub fn to_bytes(self, payload: &[u8]) -> Bytes {
        match self {
            Self::Chunk(chunk) if !payload.is_empty() => chunk.slice_ref(payload),
            _ => Bytes::copy_from_slice(payload),
        }
    }
}

impl Reassembly {
    /// Nothing kept.
    pub const fn new() -> Self {
        Self { carry: Vec::new(), needed: 0 }
    }

    /// Bytes kept for later.
    pub fn len(&self) -> usize {
        self.carry.len()
    }

    /// Nothing is kept for later.
    pub fn is_empty(&self) -> bool {
        self.carry.is_empty()
    }

    /// Shows `step` what has arrived, again and again, until it needs more or stops.
    ///
    /// # Errors
    /// Those of `step`; what it had not taken is then dropped.
    pub fn drive<E>(
        &mut self,
        chunk: &Bytes,
        mut step: impl FnMut(&[u8], Origin<'_>) -> Result<Advance, E>,
    ) -> Result<(), E> {
        let mut rest = &chunk[..];
        let mut stopped = false;
        while !self.carry.is_empty() && !stopped {
            let missing = self.needed.saturating_sub(self.carry.len());
            if missing > rest.len() {
                self.carry.extend_from_slice(rest);
                return Ok(());
            }
            let (front, behind) = rest.split_at(missing);
            self.carry.extend_from_slice(front);
            rest = behind;
            let carry = std::mem::take(&mut self.carry);
            let (at, stop) = self.run(&carry, Origin::Carry, &mut step)?;
            self.carry = carry;
            self.carry.drain(..at);
            stopped = stop;
        }
        if !rest.is_empty() {
            let (at, _) = if stopped { (0, true) } else { self.run(rest, Origin::Chunk(chunk), &mut step)? };
            self.carry.extend_from_slice(&rest[at..]);
        }
        self.shrink();
        Ok(())
    }

    /// Runs `step` over one contiguous input: how much was taken, and whether it stopped of its own will.
    fn run<E>(
        &mut self,
        input: &[u8],
        origin: Origin<'_>,
        step: &mut impl FnMut(&[u8], Origin<'_>) -> Result<Advance, E>,
    ) -> Result<(usize, bool), E> {
        let mut at = 0;
        while at < input.len() {
            match step(&input[at..], origin)? {
                Advance::Consumed(n) => at += n,
                Advance::Needs { consumed, total } => {
                    at += consumed;
                    // A step that asks for what it has would never be given more.
                    self.needed = total.max(input.len() - at + 1);
                    return Ok((at, false));
                }
                Advance::Stop(consumed) => {
                    self.needed = 0;
                    return Ok((at + consumed, true));
                }
            }
        }
        Ok((at, false))
    }

    /// A buffer that one long frame made large is not kept for the small ones that follow.
    fn shrink(&mut self) {
        const KEPT: usize = 256 * 1024;
        if self.carry.is_empty() && self.carry.capacity() > KEPT {
            self.carry = Vec::new();
        }
    }
}
