use super::{Codec, DecodeError, Decoded, EncodeError, FrameHead, Prefix};

/// No framing at all: every chunk of bytes is a frame as it arrives, and sending adds nothing.
///
/// How a stream falls into chunks is up to the network, so this suits echo, sinks and proxies, and protocols
/// whose handler cuts the stream itself. There are no requests ([`Matching::None`](super::Matching::None)) and
/// no limit: a chunk is never larger than the connection's receive buffer.
#[derive(Debug, Clone, Copy, Default)]
pub struct RawCodec;

impl Codec for RawCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        if input.is_empty() {
            return Ok(Decoded::Incomplete { needed: 1 });
        }
        Ok(Decoded::Frame { head: FrameHead::default(), payload: 0..input.len(), consumed: input.len() })
    }

    #[inline]
    fn encode(&mut self, _: FrameHead, _: &[u8], _: &mut Prefix) -> Result<(), EncodeError> {
        Ok(())
    }

    fn is_transparent(&self) -> bool {
        true
    }
}
