mod builder;
mod field;

pub use builder::LengthFieldBuilder;
pub use field::ByteOrder;

use super::{
    Codec, ConfigError, DEFAULT_FRAME_LIMIT, DecodeError, Decoded, EncodeError, FrameHead, Matching, Prefix,
};
use field::Field;

/// Frames that begin with the length of what follows.
///
/// Covers NewLife's `LengthFieldCodec` ([`newlife`](Self::newlife)) and the parameters of Netty's
/// `LengthFieldBasedFrameDecoder` and `LengthFieldPrepender` and tokio-util's `LengthDelimitedCodec`
/// ([`builder`](Self::builder)). Replies are matched in the order of the requests.
///
/// The default is NewLife's: two little-endian bytes, frames up to 16 MiB.
///
/// ```
/// use corewire_proto::codec::{ByteOrder, Codec, Decoded, LengthFieldCodec, Prefix};
///
/// // A 2-byte kind, a 3-byte big-endian length that counts the whole frame; kind and length are stripped.
/// let mut codec = LengthFieldCodec::builder()
///     .field_offset(2)
///     .field_width(3)
///     .byte_order(ByteOrder::Big)
///     .length_adjustment(-5)
///     .build()?;
/// let frame = Decoded::Frame { head: Default::default(), payload: 5..7, consumed: 7 };
/// assert_eq!(codec.decode(b"\xca\xfe\x00\x00\x07hi")?, frame);
///
/// let mut prefix = Prefix::new();
/// codec.encode(codec.request_head(0), b"hi", &mut prefix)?;
/// assert_eq!(prefix.as_slice(), b"\x00\x00\x00\x00\x07");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors of a live connection
/// A frame over [`max_frame_length`](LengthFieldBuilder::max_frame_length) is
/// [`DecodeError::FrameTooLong`]; it is skipped, and the next one is read ([`Overlong`] says when the error
/// comes). A length that makes a frame shorter than its own header, a negative 8-byte length and a varint
/// beyond 32 bits are [`DecodeError::Malformed`] and end the connection. A payload that the field cannot say
/// is [`EncodeError::TooLong`], and nothing is written.
#[derive(Debug, Clone)]
pub struct LengthFieldCodec {
    field: Field,
    offset: usize,
    /// What is added to the value of the field to get the bytes that follow the field.
    adjustment: i64,
    /// Bytes not shown at the front of a frame; `None`: all through the end of the field.
    strip: Option<usize>,
    max_frame_length: usize,
    overlong: Overlong,
    writer: Writer,
    skip: Option<Skip>,
}

/// When the error for a frame over the limit comes. The next frame is read in both cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Overlong {
    /// As soon as it is known, before the frame is skipped.
    #[default]
    FailFast,
    /// Once the whole frame has been skipped.
    SkipThenFail,
}

impl LengthFieldCodec {
    /// NewLife's form: `offset` header bytes (zero on write, ignored on read), the length of the payload, the
    /// payload. `size` is 1, 2 or 4 for little-endian, -1, -2 or -4 for big-endian, 0 for a LEB128 varint.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] for another size, [`ConfigError::HeaderTooLong`] when offset and field take
    /// more than [`Prefix::CAPACITY`] bytes.
    pub fn newlife(offset: usize, size: i32) -> Result<Self, ConfigError> {
        let builder = Self::builder().field_offset(offset);
        match size {
            0 => builder.varint(),
            1 | 2 | 4 => builder.field_width(size as usize).byte_order(ByteOrder::Little),
            -1 | -2 | -4 => builder.field_width(size.unsigned_abs() as usize).byte_order(ByteOrder::Big),
            _ => {
                return Err(ConfigError::OutOfRange {
                    setting: "size",
                    value: i128::from(size),
                    allowed: "1, 2, 4, -1, -2, -4 or 0",
                });
            }
        }
        .build()
    }

    /// All parameters; see [`LengthFieldBuilder`] for the defaults.
    pub fn builder() -> LengthFieldBuilder {
        LengthFieldBuilder::default()
    }
}

impl Default for LengthFieldCodec {
    fn default() -> Self {
        Self::plain(Field::Fixed { width: 2, order: ByteOrder::Little }, usize::from(u16::MAX))
    }
}

impl Codec for LengthFieldCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        if self.skip.is_some() {
            return self.skip_on(input);
        }
        let Some(at_field) = input.get(self.offset..) else {
            return Ok(Decoded::Incomplete { needed: self.offset + self.field.min_width() });
        };
        let (value, width) = match self.field.read(at_field)? {
            Ok(read) => read,
            Err(needed) => return Ok(Decoded::Incomplete { needed: self.offset + needed }),
        };
        let header = self.offset + width;
        // The adjustment is of 32 bits and the header short, so that the sum cannot overflow.
        let sum = value <= MAX_FRAME_LENGTH as u64;
        let length = if sum { value as i64 + self.adjustment + header as i64 } else { i64::MAX };
        let shown_from = self.strip.unwrap_or(header);
        if length > self.max_frame_length as i64 {
            return self.too_long(i128::from(value) + i128::from(self.adjustment) + header as i128, input);
        }
        if length < header.max(shown_from) as i64 {
            return Err(too_short(value));
        }
        let end = length as usize;
        if input.len() < end {
            return Ok(Decoded::Incomplete { needed: end });
        }
        Ok(Decoded::Frame { head: FrameHead::default(), payload: shown_from..end, consumed: end })
    }

    #[inline]
    fn forget_input(&mut self) -> Option<DecodeError> {
        self.skip.take()?.then
    }

    #[inline]
    fn encode(&mut self, _: FrameHead, payload: &[u8], prefix: &mut Prefix) -> Result<(), EncodeError> {
        let Writer { lead, tail, add, max_payload } = self.writer;
        if payload.len() > max_payload {
            return Err(EncodeError::TooLong { len: payload.len(), limit: max_payload });
        }
        let value = payload.len() as i64 + add;
        if value < 0 {
            return Err(EncodeError::TooShort { len: payload.len(), least: add.unsigned_abs() as usize });
        }
        if lead > 0 {
            prefix.push(&ZEROS[..lead]);
        }
        self.field.write(value as u64, prefix);
        if tail > 0 {
            prefix.push(&ZEROS[..tail]);
        }
        Ok(())
    }

    fn matching(&self) -> Matching {
        Matching::Fifo
    }
}

/// What goes before a payload, and what is the most it may be.
#[derive(Debug, Clone, Copy)]
struct Writer {
    /// Zero bytes before the field.
    lead: usize,
    /// Zero bytes after it: what the reader strips beyond the field.
    tail: usize,
    /// Added to the payload's length to get the value of the field.
    add: i64,
    max_payload: usize,
}

/// A frame over the limit that is being stepped over.
#[derive(Debug, Clone)]
struct Skip {
    left: u64,
    /// The error to give when its last byte has come.
    then: Option<DecodeError>,
}

impl LengthFieldCodec {
    pub(super) const fn varint32() -> Self {
        Self::plain(Field::Varint, DEFAULT_FRAME_LIMIT - Field::Varint.max_width())
    }

    const fn plain(field: Field, max_payload: usize) -> Self {
        Self {
            field,
            offset: 0,
            adjustment: 0,
            strip: None,
            max_frame_length: DEFAULT_FRAME_LIMIT,
            overlong: Overlong::FailFast,
            writer: Writer { lead: 0, tail: 0, add: 0, max_payload },
            skip: None,
        }
    }

    #[cold]
    fn too_long(&mut self, length: i128, input: &[u8]) -> Result<Decoded, DecodeError> {
        let error =
            DecodeError::FrameTooLong { len: length, limit: self.max_frame_length, recoverable: true };
        let left = u64::try_from(length).unwrap_or(u64::MAX);
        match self.overlong {
            Overlong::FailFast => {
                self.skip = Some(Skip { left, then: None });
                Err(error)
            }
            Overlong::SkipThenFail => {
                self.skip = Some(Skip { left, then: Some(error) });
                self.skip_on(input)
            }
        }
    }

    #[cold]
    fn skip_on(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        let Some(skip) = self.skip.as_mut().filter(|_| !input.is_empty()) else {
            return Ok(Decoded::Incomplete { needed: 1 });
        };
        let here = input.len() as u64;
        if skip.left <= here {
            // The error comes before the last bytes are stepped over: a codec is not called without input, so
            // afterwards it would wait for the next frame.
            if let Some(error) = skip.then.take() {
                return Err(error);
            }
            let consumed = skip.left as usize;
            self.skip = None;
            return Ok(Decoded::Skipped { consumed });
        }
        skip.left -= here;
        Ok(Decoded::Skipped { consumed: input.len() })
    }
}

#[cold]
fn too_short(value: u64) -> DecodeError {
    DecodeError::Malformed { what: "a length shorter than its own header", value: i128::from(value) }
}

/// The most that `max_frame_length` may be; far enough below `i64::MAX` to add to it.
const MAX_FRAME_LENGTH: i64 = 1 << 62;

static ZEROS: [u8; Prefix::CAPACITY] = [0; Prefix::CAPACITY];
