use super::{Codec, ConfigError, DecodeError, Decoded, EncodeError, FrameHead, Matching, Prefix};

/// Frames that are all of one length and carry no header.
///
/// Sending a payload of any other length is [`EncodeError::WrongLength`]: it is neither padded nor cut.
///
/// ```
/// use corewire_proto::codec::{Codec, Decoded, FixedLengthCodec};
///
/// let mut codec = FixedLengthCodec::new(3)?;
/// assert!(matches!(codec.decode(b"abcd")?, Decoded::Frame { consumed: 3, .. }));
/// assert_eq!(codec.decode(b"d")?, Decoded::Incomplete { needed: 3 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct FixedLengthCodec {
    length: usize,
}

impl FixedLengthCodec {
    /// Frames of `length` bytes.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] when `length` is 0.
    pub const fn new(length: usize) -> Result<Self, ConfigError> {
        if length == 0 {
            return Err(ConfigError::OutOfRange { setting: "length", value: 0, allowed: "at least 1 byte" });
        }
        Ok(Self { length })
    }
}

impl Codec for FixedLengthCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        if input.len() < self.length {
            return Ok(Decoded::Incomplete { needed: self.length });
        }
        Ok(Decoded::Frame { head: FrameHead::default(), payload: 0..self.length, consumed: self.length })
    }

    #[inline]
    fn encode(&mut self, _: FrameHead, payload: &[u8], _: &mut Prefix) -> Result<(), EncodeError> {
        if payload.len() != self.length {
            return Err(EncodeError::WrongLength { len: payload.len(), expected: self.length });
        }
        Ok(())
    }

    fn matching(&self) -> Matching {
        Matching::Fifo
    }
}
