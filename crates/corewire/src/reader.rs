//! Cuts what arrives into frames, in place where it can.

use std::cell::RefCell;
use std::num::NonZeroU32;

use bytes::{Buf, Bytes, BytesMut};
use corewire_proto::codec::{Codec, DecodeError, Decoded};

use crate::frame::{Frame, Memory};

/// Keeps the beginning of a frame until the rest of it arrives. Whole frames are decoded where they were received;
/// only what is cut off at the end of a block is copied.
#[derive(Debug, Default)]
pub(crate) struct FrameReader {
    /// Made with the first frame that is cut off: most connections never see one.
    partial: Option<Box<Partial>>,
}

/// The beginning of a frame.
#[derive(Debug)]
struct Partial {
    bytes: BytesMut,
    /// Bytes below which decoding `bytes` again is of no use.
    needed: usize,
    /// Counts the frames that were cut off.
    begun: NonZeroU32,
}

/// Takes what the reader finds. Each answers whether to go on.
pub(crate) trait FrameSink {
    /// A whole frame.
    fn frame(&mut self, frame: Frame<'_>) -> bool;

    /// The bytes break the format. Going on is right only if the error is recoverable.
    fn error(&mut self, error: DecodeError) -> bool;
}

/// What came of an attempt to make the kept bytes a whole frame.
enum Progress {
    /// A frame, or bytes that were added or skipped.
    Made,
    /// More bytes are needed; all that there are, are kept.
    Starved,
    /// The sink wants no more.
    Stopped,
}

impl FrameReader {
    /// Bytes of a frame that is not whole yet.
    pub(crate) fn pending(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.bytes.len())
    }

    /// Bytes of memory that the reader occupies.
    #[inline]
    pub(crate) fn held(&self) -> usize {
        self.partial.as_ref().map_or(0, |partial| partial.bytes.capacity())
    }

    /// The frame that has begun and is not whole: each has another number.
    #[inline]
    pub(crate) fn in_frame(&self) -> Option<NonZeroU32> {
        self.partial.as_ref().filter(|partial| !partial.bytes.is_empty()).map(|partial| partial.begun)
    }

    /// Hands each frame that ends in `data` to `sink` and keeps a frame that is not whole. The codec is not borrowed
    /// while the sink runs.
    ///
    /// Returns what was not decoded because the sink stopped: it is to be given to the next call, before anything newer.
    /// It is empty if all was taken; then no whole frame is left here either.
    #[inline]
    #[must_use = "what the sink stopped at is decoded later, or the stream loses step"]
    pub(crate) fn read<C: Codec>(
        &mut self,
        codec: &RefCell<C>,
        mut data: Bytes,
        sink: &mut impl FrameSink,
    ) -> Bytes {
        if let Some(partial) = &mut self.partial {
            while !partial.bytes.is_empty() {
                match partial.finish(codec, &mut data, sink) {
                    Progress::Made => {}
                    Progress::Starved => return Bytes::new(),
                    Progress::Stopped => return partial.take_rest(data),
                }
            }
        }
        let mut at = 0;
        while at < data.len() {
            let decoded = codec.borrow_mut().decode(&data[at..]);
            let goes_on = match decoded {
                Ok(Decoded::Frame { head, payload, consumed }) => {
                    let payload = &data[at + payload.start..at + payload.end];
                    at += consumed;
                    sink.frame(Frame::new(head, payload, &data, Memory::Received))
                }
                Ok(Decoded::Skipped { consumed }) => {
                    at += consumed;
                    true
                }
                Ok(Decoded::Incomplete { needed }) => {
                    self.partial.get_or_insert_default().keep(&data[at..], needed);
                    break;
                }
                Err(error) => sink.error(error),
            };
            if !goes_on {
                data.advance(at);
                return data;
            }
        }
        Bytes::new()
    }
}

impl Default for Partial {
    fn default() -> Self {
        Self { bytes: BytesMut::new(), needed: 0, begun: NonZeroU32::MIN }
    }
}

impl Partial {
    /// A frame that is not whole is finished with at least this much of the next block: more may be needed than
    /// its header could say, and what is copied too much is read again in place.
    const STEP: usize = 4 * 1024;
    /// A buffer grown beyond this is given up once it is empty.
    const KEPT_MAX: usize = 64 * 1024;

    /// Adds from `data` until there is a whole frame.
    fn finish<C: Codec>(
        &mut self,
        codec: &RefCell<C>,
        data: &mut Bytes,
        sink: &mut impl FrameSink,
    ) -> Progress {
        let kept = self.bytes.len();
        let missing = self.needed.saturating_sub(kept);
        if data.len() < missing {
            self.keep(data, self.needed);
            return Progress::Starved;
        }
        let step = missing.max(Self::STEP).min(data.len());
        self.grow(step);
        self.bytes.extend_from_slice(&data[..step]);
        let decoded = codec.borrow_mut().decode(&self.bytes);
        let goes_on = match decoded {
            Ok(Decoded::Frame { head, payload, consumed }) if consumed >= kept => {
                // What was copied beyond the frame's end is read again in place.
                data.advance(consumed - kept);
                let block = self.bytes.split_to(consumed).freeze();
                self.clear();
                sink.frame(Frame::new(head, &block[payload], &block, Memory::Own))
            }
            Ok(Decoded::Frame { head, payload, consumed }) => {
                // After a recoverable error the kept bytes may hold whole frames.
                data.advance(step);
                let block = self.bytes.split_to(consumed).freeze();
                self.needed = 0;
                sink.frame(Frame::new(head, &block[payload], &block, Memory::Own))
            }
            Ok(Decoded::Skipped { consumed }) if consumed >= kept => {
                data.advance(consumed - kept);
                self.clear();
                true
            }
            Ok(Decoded::Skipped { consumed }) => {
                data.advance(step);
                self.bytes.advance(consumed);
                self.needed = 0;
                true
            }
            Ok(Decoded::Incomplete { needed }) => {
                data.advance(step);
                self.needed = needed;
                true
            }
            Err(error) => {
                // The codec goes on from the same bytes.
                self.bytes.truncate(kept);
                sink.error(error)
            }
        };
        if goes_on { Progress::Made } else { Progress::Stopped }
    }

    /// What is not decoded, in one piece: the kept bytes and `data` behind them. Bytes are left here only after
    /// an error that is stepped over, so `data` is copied only then.
    fn take_rest(&mut self, data: Bytes) -> Bytes {
        if self.bytes.is_empty() {
            return data;
        }
        let mut rest = self.bytes.split();
        rest.extend_from_slice(&data);
        self.clear();
        rest.freeze()
    }

    fn keep(&mut self, data: &[u8], needed: usize) {
        if self.bytes.is_empty() {
            self.begun = self.begun.checked_add(1).unwrap_or(NonZeroU32::MIN);
        }
        self.needed = needed;
        self.grow(data.len());
        self.bytes.extend_from_slice(data);
    }

    /// Makes room for `more` bytes, and for the whole frame once a good part of it is there: a peer that only
    /// announces a large frame costs little.
    fn grow(&mut self, more: usize) {
        let have = self.bytes.len() + more;
        let room = self.needed.min(2 * have).max(have);
        if self.bytes.capacity() < room {
            self.bytes.reserve(room - self.bytes.len());
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.needed = 0;
        if self.bytes.capacity() > Self::KEPT_MAX {
            self.bytes = BytesMut::new();
        }
    }
}

/// Hands each frame of a datagram, which lies in `block`, to `sink`. An error ends it, and so does a frame that is not
/// whole: the rest comes in a datagram of its own, or never.
#[inline]
pub(crate) fn read_datagram<C: Codec>(
    codec: &RefCell<C>,
    datagram: &[u8],
    block: &Bytes,
    sink: &mut impl FrameSink,
) {
    let mut rest = datagram;
    let mut is_cut = false;
    while !rest.is_empty() && !is_cut {
        let decoded = codec.borrow_mut().decode(rest);
        match decoded {
            Ok(Decoded::Frame { head, payload, consumed }) => {
                let payload = &rest[payload];
                rest = &rest[consumed..];
                if !sink.frame(Frame::new(head, payload, block, Memory::Received)) {
                    break;
                }
            }
            Ok(Decoded::Skipped { consumed }) => rest = &rest[consumed..],
            Ok(Decoded::Incomplete { .. }) => is_cut = true,
            Err(error) => {
                sink.error(error);
                break;
            }
        }
    }
    // A frame that it ends in the midst of is not skipped in the next.
    let untold = codec.borrow_mut().forget_input();
    let cut = || DecodeError::Malformed {
        what: "the datagram ends in the middle of a frame, of which it has",
        value: rest.len() as i128,
    };
    if let Some(error) = untold.or_else(|| is_cut.then(cut)) {
        sink.error(error);
    }
}

#[cfg(test)]
mod tests;
