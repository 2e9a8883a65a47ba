//! Joins received chunks at the frames that lie across them.

use bytes::{Buf, Bytes, BytesMut};

/// Keeps the front of a frame whose rest has not arrived, so that
/// [`Connection::receive`](super::Connection::receive) always sees whole frames.
///
/// Frames that lie whole in a chunk are read where they are; only one that lies across chunks is copied, once, into a
/// buffer that is used again unless a payload of it is still held. Memory: at most one frame (the body limit and 16
/// bytes), grown as bytes arrive, never by what a header announces.
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
    carry: BytesMut,
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
    /// The same, but what is left of the chunk is given back.
    GiveBack(usize),
}

/// Where the input of a step lies.
#[derive(Debug, Clone, Copy)]
pub enum Origin<'a> {
    /// In these bytes: the chunk that was received.
    Shared(&'a Bytes),
    /// In these bytes: a long frame put together, in memory that nothing else lies in as long as it is held. That may be
    /// twice as much.
    Own(&'a Bytes),
    /// In a buffer that the next frame overwrites: a short frame put together.
    Scratch,
}

impl Origin<'_> {
    /// A handle on `payload`, a part of the step's input, that outlives the step. Only the payload of a short frame
    /// that lay across chunks is copied for it.
    pub fn to_bytes(self, payload: &[u8]) -> Bytes {
        match self {
            Self::Shared(bytes) | Self::Own(bytes) if !payload.is_empty() => bytes.slice_ref(payload),
            _ => Bytes::copy_from_slice(payload),
        }
    }
}

/// Frames up to this length, in bytes, are put together in a buffer that is never shared.
const SCRATCH_MAX: usize = 512;

/// A buffer that one long frame made larger than this is not kept for those that follow. In bytes.
const KEPT_MAX: usize = 256 * 1024;

impl Reassembly {
    /// Nothing kept.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes kept for later.
    pub fn len(&self) -> usize {
        self.carry.len()
    }

    /// Memory that is kept for it, in bytes.
    pub fn capacity(&self) -> usize {
        self.carry.capacity()
    }

    /// Nothing is kept for later.
    pub fn is_empty(&self) -> bool {
        self.carry.is_empty()
    }

    /// Shows `step` what has arrived, again and again, until it needs more or stops. After a stop, go on with the next
    /// chunk or an empty one; what is returned, after an [`Advance::GiveBack`], comes before any newer chunk.
    ///
    /// # Errors
    /// Those of `step`; what it had not taken may be lost.
    pub fn drive<E>(
        &mut self,
        chunk: &Bytes,
        mut step: impl FnMut(&[u8], Origin<'_>) -> Result<Advance, E>,
    ) -> Result<Bytes, E> {
        let mut rest = &chunk[..];
        let mut stopped = Stopped::No;
        while !self.carry.is_empty() && stopped == Stopped::No {
            let missing = self.needed.saturating_sub(self.carry.len());
            if missing > rest.len() {
                self.carry.extend_from_slice(rest);
                return Ok(Bytes::new());
            }
            let (front, behind) = rest.split_at(missing);
            self.carry.extend_from_slice(front);
            rest = behind;
            stopped = self.run_carry(&mut step)?;
        }
        if stopped == Stopped::No && !rest.is_empty() {
            let at;
            (at, stopped) = run(rest, Origin::Shared(chunk), &mut self.needed, &mut step)?;
            rest = &rest[at..];
        }
        if stopped == Stopped::GivesBack && !rest.is_empty() {
            return Ok(chunk.slice_ref(rest));
        }
        self.carry.extend_from_slice(rest);
        Ok(Bytes::new())
    }

    /// Shows `step` what is kept.
    fn run_carry<E>(
        &mut self,
        step: &mut impl FnMut(&[u8], Origin<'_>) -> Result<Advance, E>,
    ) -> Result<Stopped, E> {
        if self.carry.len() <= SCRATCH_MAX {
            let (at, stopped) = run(&self.carry, Origin::Scratch, &mut self.needed, step)?;
            self.carry.advance(at);
            return Ok(stopped);
        }
        // Freezing a part shares the buffer, so that the next frame finds it free again once nobody holds this one.
        let frame = self.carry.split().freeze();
        let (at, stopped) = run(&frame, Origin::Own(&frame), &mut self.needed, step)?;
        if frame.len() > KEPT_MAX {
            self.carry = BytesMut::new();
        }
        self.carry.extend_from_slice(&frame[at..]);
        Ok(stopped)
    }
}

/// Whether a step wanted no more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stopped {
    No,
    Keeps,
    GivesBack,
}

/// Runs `step` over one contiguous input: how much was taken, and whether it stopped of its own will.
fn run<E>(
    input: &[u8],
    origin: Origin<'_>,
    needed: &mut usize,
    step: &mut impl FnMut(&[u8], Origin<'_>) -> Result<Advance, E>,
) -> Result<(usize, Stopped), E> {
    let mut at = 0;
    while at < input.len() {
        match step(&input[at..], origin)? {
            Advance::Consumed(n) => at += n,
            Advance::Needs { consumed, total } => {
                at += consumed;
                // A step that asks for what it has would never be given more.
                *needed = total.max(input.len() - at + 1);
                return Ok((at, Stopped::No));
            }
            Advance::Stop(consumed) => {
                *needed = 0;
                return Ok((at + consumed, Stopped::Keeps));
            }
            Advance::GiveBack(consumed) => {
                *needed = 0;
                return Ok((at + consumed, Stopped::GivesBack));
            }
        }
    }
    Ok((at, Stopped::No))
}
