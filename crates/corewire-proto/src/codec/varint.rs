use super::{
    Codec, ConfigError, DecodeError, Decoded, EncodeError, FrameHead, LengthFieldCodec, Matching, Prefix,
};

/// Frames led by a LEB128 varint of up to 32 bits, as protobuf streams and Netty's
/// `ProtobufVarint32FrameDecoder` have them.
///
/// The limit counts the payload and the varint. A frame over it is skipped after the error; a varint of more
/// than 32 bits ends the connection.
///
/// ```
/// use corewire_proto::codec::{Codec, Prefix, Varint32Codec};
///
/// let mut codec = Varint32Codec::new();
/// let mut prefix = Prefix::new();
/// codec.encode(Default::default(), &[0; 300], &mut prefix)?;
/// assert_eq!(prefix.as_slice(), [0xac, 0x02]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct Varint32Codec(LengthFieldCodec);

impl Varint32Codec {
    /// Frames of up to 16 MiB.
    pub const fn new() -> Self {
        Self(LengthFieldCodec::varint32())
    }

    /// Frames of up to `bytes`, the varint included.
    ///
    /// # Errors
    /// [`ConfigError::HeaderTooLong`] below 5 bytes, [`ConfigError::OutOfRange`] over 2^62.
    pub fn with_frame_limit(bytes: usize) -> Result<Self, ConfigError> {
        LengthFieldCodec::builder().varint().max_frame_length(bytes).build().map(Self)
    }
}

impl Default for Varint32Codec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for Varint32Codec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        self.0.decode(input)
    }

    #[inline]
    fn forget_input(&mut self) -> Option<DecodeError> {
        self.0.forget_input()
    }

    #[inline]
    fn encode(&mut self, head: FrameHead, payload: &[u8], prefix: &mut Prefix) -> Result<(), EncodeError> {
        self.0.encode(head, payload, prefix)
    }

    fn matching(&self) -> Matching {
        Matching::Fifo
    }
}

/// The most bytes of a 32-bit varint.
pub(super) const MAX_WIDTH: usize = 5;

/// The value and the bytes it took; `None` while it is not whole.
#[inline]
pub(super) fn read(input: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    match *input {
        [a, ..] if a < 0x80 => Ok(Some((u32::from(a), 1))),
        [a, b, ..] if b < 0x80 => Ok(Some((u32::from(a & 0x7f) | u32::from(b) << 7, 2))),
        _ => read_long(input),
    }
}

/// Appends `value`.
#[inline]
pub(super) fn write(mut value: u32, prefix: &mut Prefix) {
    while value >= 0x80 {
        prefix.push(&[value as u8 | 0x80]);
        value >>= 7;
    }
    prefix.push(&[value as u8]);
}

fn read_long(input: &[u8]) -> Result<Option<(u32, usize)>, DecodeError> {
    let mut value = 0u64;
    for (at, byte) in input.iter().take(MAX_WIDTH).enumerate() {
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte & 0x80 == 0 && value <= u64::from(u32::MAX) {
            return Ok(Some((value as u32, at + 1)));
        }
    }
    if input.len() < MAX_WIDTH {
        return Ok(None);
    }
    Err(DecodeError::Malformed { what: "a varint of more than 32 bits", value: i128::from(value) })
}
