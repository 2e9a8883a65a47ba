use super::scan::{End, Rules, Scan};
use super::{
    Codec, DEFAULT_FRAME_LIMIT, DecodeError, Decoded, EncodeError, FrameHead, Matching, Overlong, Prefix,
};

/// Text lines: a frame ends at `\n`, and one `\r` right before it belongs to the line end.
///
/// | setting | default |
/// |---|---|
/// | [`frame_limit`](Self::frame_limit): bytes of a line without its end, both directions | 16 MiB |
/// | [`ending`](Self::ending): what is written | [`LineEnding::Lf`] |
/// | [`overlong`](Self::overlong) | [`Overlong::FailFast`] |
///
/// A line over the limit is [`DecodeError::FrameTooLong`]; it is skipped, and the next line is read. A payload
/// that would not come out as one line again (it holds `\n`, or ends in `\r` where `\n` is written) is
/// [`EncodeError::ContainsDelimiter`]. What came without a line end before the peer closed is not a frame.
///
/// ```
/// use corewire_proto::codec::{Codec, Decoded, LineCodec};
///
/// let mut codec = LineCodec::new();
/// let line = codec.decode(b"hello\r\nwor")?;
/// assert_eq!(line, Decoded::Frame { head: Default::default(), payload: 0..5, consumed: 7 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct LineCodec {
    rules: Rules,
    ending: LineEnding,
    scan: Scan,
}

/// What [`LineCodec`] writes after a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum LineEnding {
    /// `\n`.
    #[default]
    Lf,
    /// `\r\n`.
    CrLf,
}

impl LineCodec {
    /// A codec with the default settings.
    pub const fn new() -> Self {
        let rules = Rules { frame_limit: DEFAULT_FRAME_LIMIT, longest: 2, overlong: Overlong::FailFast };
        Self { rules, ending: LineEnding::Lf, scan: Scan::new() }
    }

    /// Sets the most bytes of a line, not counting its end.
    pub const fn frame_limit(mut self, bytes: usize) -> Self {
        self.rules.frame_limit = bytes;
        self
    }

    /// Sets what is written after a line. Both endings are read, whatever is set.
    pub const fn ending(mut self, ending: LineEnding) -> Self {
        self.ending = ending;
        self
    }

    /// Sets when the error for a line over the limit comes.
    pub const fn overlong(mut self, overlong: Overlong) -> Self {
        self.rules.overlong = overlong;
        self
    }
}

impl Default for LineCodec {
    fn default() -> Self {
        Self::new()
    }
}

impl Codec for LineCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        self.scan.cut(self.rules, input, |input, from| {
            let at = from + memchr::memchr(b'\n', &input[from..])?;
            let carriage_return = at > 0 && input[at - 1] == b'\r';
            Some(End { payload: at - usize::from(carriage_return), next: at + 1 })
        })
    }

    #[inline]
    fn forget_input(&mut self) -> Option<DecodeError> {
        self.scan.forget()
    }

    #[inline]
    fn encode(&mut self, _: FrameHead, payload: &[u8], _: &mut Prefix) -> Result<(), EncodeError> {
        if payload.len() > self.rules.frame_limit {
            return Err(EncodeError::TooLong { len: payload.len(), limit: self.rules.frame_limit });
        }
        if let Some(at) = memchr::memchr(b'\n', payload) {
            return Err(EncodeError::ContainsDelimiter { at });
        }
        if self.ending == LineEnding::Lf && payload.last() == Some(&b'\r') {
            return Err(EncodeError::ContainsDelimiter { at: payload.len() - 1 });
        }
        Ok(())
    }

    fn suffix(&self) -> &[u8] {
        match self.ending {
            LineEnding::Lf => b"\n",
            LineEnding::CrLf => b"\r\n",
        }
    }

    fn matching(&self) -> Matching {
        Matching::Fifo
    }
}
