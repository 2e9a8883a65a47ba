use super::{
    Codec, ConfigError, DEFAULT_FRAME_LIMIT, DecodeError, Decoded, EncodeError, FrameHead, FrameKind,
    Matching, Prefix,
};

/// SRMP, the "standard" message of NewLife.Net (`StandardCodec` / `DefaultMessage`).
///
/// `Flag(1) Sequence(1) Length(2, little-endian, payload bytes only) Payload`. Bits 7..6 of the flag are the
/// [`FrameKind`], bits 5..0 the data kind, which travels in [`FrameHead::tag`]. A length of `FFFF` means that
/// a 4-byte little-endian length follows; it is written from 65,535 payload bytes on. [`FrameKind::Message`],
/// which SRMP does not know, is written as one-way.
///
/// | setting | default | range |
/// |---|---|---|
/// | [`frame_limit`](Self::frame_limit): payload bytes, both directions | 16 MiB | up to 2,147,483,647 |
/// | [`data_kind`](Self::data_kind) of what this side begins | [`PACKET`](Self::PACKET) | 0 to 63 |
///
/// A length over the limit, or negative in the long form (which the original reads as signed), is an error at
/// once and ends the connection: there is no later byte at which the stream is known to be in step again.
///
/// ```
/// use corewire_proto::codec::{Codec, Decoded, Prefix, StandardCodec};
///
/// let mut codec = StandardCodec::new();
/// let mut prefix = Prefix::new();
/// codec.encode(codec.request_head(1), b"Open", &mut prefix)?;
/// assert_eq!(prefix.as_slice(), [0x01, 0x01, 0x04, 0x00]);
///
/// let Decoded::Frame { head, payload, consumed } = codec.decode(b"\x81\x01\x02\x00OK")? else { panic!() };
/// assert_eq!((head.sequence, payload, consumed), (1, 4..6, 6));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct StandardCodec {
    frame_limit: usize,
    data_kind: u8,
}

impl StandardCodec {
    /// Data kind of a text.
    pub const STRING: u8 = 0;
    /// Data kind of plain bytes; the default.
    pub const PACKET: u8 = 1;
    /// Data kind of a binary-serialized object.
    pub const BINARY_OBJECT: u8 = 2;
    /// Data kind of a JSON text.
    pub const JSON: u8 = 3;

    /// A codec with the default settings.
    pub const fn new() -> Self {
        Self { frame_limit: DEFAULT_FRAME_LIMIT, data_kind: Self::PACKET }
    }

    /// Sets the most payload bytes of a frame, for what is received and for what is sent.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] over 2,147,483,647, which the format cannot say.
    pub fn frame_limit(mut self, bytes: usize) -> Result<Self, ConfigError> {
        if bytes > i32::MAX as usize {
            return Err(ConfigError::OutOfRange {
                setting: "frame_limit",
                value: bytes as i128,
                allowed: "at most 2147483647 bytes",
            });
        }
        self.frame_limit = bytes;
        Ok(self)
    }

    /// Sets the data kind that [`request_head`](Codec::request_head) and
    /// [`one_way_head`](Codec::one_way_head) carry.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] over 63.
    pub fn data_kind(mut self, kind: u8) -> Result<Self, ConfigError> {
        if kind > TAG_MASK {
            return Err(ConfigError::OutOfRange {
                setting: "data_kind",
                value: i128::from(kind),
                allowed: "at most 63",
            });
        }
        self.data_kind = kind;
        Ok(self)
    }
}

impl Default for StandardCodec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for StandardCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        let Some(&[flag, sequence, low, high]) = input.first_chunk() else {
            return Ok(Decoded::Incomplete { needed: SHORT_HEADER });
        };
        let short = u16::from_le_bytes([low, high]);
        let (header, length) = if short == LONG_FORM {
            let Some(&[_, _, _, _, a, b, c, d]) = input.first_chunk() else {
                return Ok(Decoded::Incomplete { needed: LONG_HEADER });
            };
            // A negative length becomes a huge unsigned one, so that one comparison refuses both.
            (LONG_HEADER, u32::from_le_bytes([a, b, c, d]) as usize)
        } else {
            (SHORT_HEADER, usize::from(short))
        };
        if length > self.frame_limit {
            return Err(too_long(length, self.frame_limit));
        }
        let end = header + length;
        if input.len() < end {
            return Ok(Decoded::Incomplete { needed: end });
        }
        let head = FrameHead { kind: kind_of(flag), sequence: u32::from(sequence), tag: flag & TAG_MASK };
        Ok(Decoded::Frame { head, payload: header..end, consumed: end })
    }

    #[inline]
    fn encode(&mut self, head: FrameHead, payload: &[u8], prefix: &mut Prefix) -> Result<(), EncodeError> {
        if payload.len() > self.frame_limit {
            return Err(EncodeError::TooLong { len: payload.len(), limit: self.frame_limit });
        }
        let Ok(sequence) = u8::try_from(head.sequence) else {
            return Err(EncodeError::HeadOutOfRange { field: "sequence", value: head.sequence, limit: 255 });
        };
        if head.tag > TAG_MASK {
            return Err(EncodeError::HeadOutOfRange {
                field: "data kind",
                value: u32::from(head.tag),
                limit: u32::from(TAG_MASK),
            });
        }
        let flag = flag_of(head.kind) | head.tag;
        if payload.len() < usize::from(LONG_FORM) {
            let [low, high] = (payload.len() as u16).to_le_bytes();
            prefix.push(&[flag, sequence, low, high]);
        } else {
            let [a, b, c, d] = (payload.len() as u32).to_le_bytes();
            prefix.push(&[flag, sequence, 0xff, 0xff, a, b, c, d]);
        }
        Ok(())
    }

    fn matching(&self) -> Matching {
        Matching::Sequence { modulus: 256 }
    }

    #[inline]
    fn request_head(&self, sequence: u32) -> FrameHead {
        FrameHead { kind: FrameKind::Request, sequence, tag: self.data_kind }
    }

    #[inline]
    fn one_way_head(&self) -> FrameHead {
        FrameHead { kind: FrameKind::OneWay, sequence: 0, tag: self.data_kind }
    }
}

const SHORT_HEADER: usize = 4;
const LONG_HEADER: usize = 8;
/// The short length that says "a long length follows".
const LONG_FORM: u16 = 0xffff;
const TAG_MASK: u8 = 0x3f;

#[inline]
const fn kind_of(flag: u8) -> FrameKind {
    match flag >> 6 {
        0 => FrameKind::Request,
        1 => FrameKind::OneWay,
        2 => FrameKind::Reply,
        _ => FrameKind::ErrorReply,
    }
}

#[inline]
const fn flag_of(kind: FrameKind) -> u8 {
    match kind {
        FrameKind::Request => 0x00,
        FrameKind::Message | FrameKind::OneWay => 0x40,
        FrameKind::Reply => 0x80,
        FrameKind::ErrorReply => 0xc0,
    }
}

#[cold]
fn too_long(length: usize, limit: usize) -> DecodeError {
    // As the original reads it: signed.
    DecodeError::FrameTooLong { len: i128::from(length as u32 as i32), limit, recoverable: false }
}
