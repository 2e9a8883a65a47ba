//! Framing codecs, and the contract between a codec and the connection that drives it.
//!
//! | codec | frame | matching |
//! |---|---|---|
//! | [`RawCodec`] | every chunk as it arrives | none |
//! | [`StandardCodec`] | SRMP: flag, sequence, 2- or 6-byte length | by sequence, 256 numbers |
//! | [`LengthFieldCodec`] | length field of NewLife's or Netty's parameters | in order |
//! | [`Varint32Codec`] | LEB128 length, as protobuf streams have it | in order |
//! | [`LineCodec`] | text line, ended by `\n` or `\r\n` | in order |
//! | [`DelimiterCodec`] | ended by one of several byte strings | in order |
//! | [`FixedLengthCodec`] | always the same number of bytes | in order |
//!
//! Where matching is "in order", a connection that makes no requests simply gets messages.
//! An [`ObjectCodec`] turns payloads into values and back; [`Pipeline`] puts it behind a framing codec.

mod delimiter;
mod error;
mod fixed;
mod frame;
#[cfg(feature = "json")]
mod json;
mod length_field;
mod line;
mod object;
mod raw;
mod scan;
mod standard;
mod varint;

pub use delimiter::DelimiterCodec;
pub use error::{ConfigError, DecodeError, EncodeError};
pub use fixed::FixedLengthCodec;
pub use frame::{Decoded, FrameHead, FrameKind, Matching, Prefix};
#[cfg(feature = "json")]
pub use json::JsonCodec;
pub use length_field::{ByteOrder, LengthFieldBuilder, LengthFieldCodec, Overlong};
pub use line::{LineCodec, LineEnding};
pub use object::{ObjectCodec, Pipeline, PipelineDecoded};
pub use raw::RawCodec;
pub use standard::StandardCodec;
pub use varint::Varint32Codec;

/// Default limit on a frame, in bytes: 16 MiB. What it counts is said by each codec.
pub const DEFAULT_FRAME_LIMIT: usize = 16 * 1024 * 1024;

/// A framing codec: cuts a byte stream into frames, and wraps payloads into frames.
///
/// One instance serves one connection and is never shared, so it may keep state (a codec that skips a frame
/// that is too long does). It never sees a socket. The connection calls [`decode`](Self::decode) on what has
/// arrived and not been consumed, again and again until it answers [`Decoded::Incomplete`]; an error ends the
/// connection, unless [`DecodeError::is_recoverable`] says that the stream is still in step.
pub trait Codec: 'static {
    /// Looks at the front of `input` (never empty).
    ///
    /// # Errors
    /// The bytes break the format or a limit. After an error for which `is_recoverable` is true the codec must
    /// make progress when it is called again with the same input.
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError>;

    /// The next input is a new beginning, where frames are not continued from one input to the next (datagrams): forgets
    /// what is remembered of a frame that is not whole or is being skipped. Gives the error that was to be told at its
    /// end. What is remembered for encoding stays.
    fn forget_input(&mut self) -> Option<DecodeError> {
        None
    }

    /// Builds the header for `payload`.
    ///
    /// # Errors
    /// The payload cannot be expressed in this format; nothing is written.
    fn encode(&mut self, head: FrameHead, payload: &[u8], prefix: &mut Prefix) -> Result<(), EncodeError>;

    /// Bytes that follow every payload (a line end); empty for most formats.
    fn suffix(&self) -> &[u8] {
        &[]
    }

    /// Frames are payloads and nothing else: [`encode`](Self::encode) never adds a byte and never refuses, so a payload
    /// may be sent past it.
    fn is_transparent(&self) -> bool {
        false
    }

    /// How replies find their calls.
    fn matching(&self) -> Matching {
        Matching::None
    }

    /// The head of a new request with this sequence (ignored by FIFO codecs).
    fn request_head(&self, sequence: u32) -> FrameHead {
        FrameHead { kind: FrameKind::Request, sequence, tag: 0 }
    }

    /// The head of a one-way message.
    fn one_way_head(&self) -> FrameHead {
        FrameHead { kind: FrameKind::OneWay, sequence: 0, tag: 0 }
    }
}
