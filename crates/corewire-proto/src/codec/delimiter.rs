use memchr::memmem::Finder;

use super::scan::{End, Rules, Scan};
use super::{
    Codec, ConfigError, DEFAULT_FRAME_LIMIT, DecodeError, Decoded, EncodeError, FrameHead, Matching,
    Overlong, Prefix,
};

/// Frames that are ended by a byte string, or by any one of several.
///
/// Of several delimiters the one that *ends* first ends the frame, and of those that end at the same byte the
/// longest is taken off; so the result never depends on how the stream falls into chunks. The first delimiter
/// given is the one that is written.
///
/// | setting | default |
/// |---|---|
/// | [`frame_limit`](Self::frame_limit): payload bytes, delimiter not counted, both directions | 16 MiB |
/// | [`overlong`](Self::overlong) | [`Overlong::FailFast`] |
/// | length of a delimiter | 1 to [`MAX_DELIMITER_LEN`](Self::MAX_DELIMITER_LEN) bytes |
///
/// A frame over the limit is [`DecodeError::FrameTooLong`]; it is skipped, and the next one is read. A payload
/// that would end early on the other side is [`EncodeError::ContainsDelimiter`].
///
/// ```
/// use corewire_proto::codec::{Codec, Decoded, DelimiterCodec};
///
/// let mut codec = DelimiterCodec::any_of(&[b"\0", b"||"])?;
/// let frame = codec.decode(b"a|b||c")?;
/// assert_eq!(frame, Decoded::Frame { head: Default::default(), payload: 0..3, consumed: 5 });
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone)]
pub struct DelimiterCodec {
    finder: Delimiters,
    rules: Rules,
    scan: Scan,
}

impl DelimiterCodec {
    /// The most bytes of a delimiter.
    pub const MAX_DELIMITER_LEN: usize = 64;

    /// Frames ended by `delimiter`.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] when it is empty or too long.
    pub fn new(delimiter: &[u8]) -> Result<Self, ConfigError> {
        Self::any_of(&[delimiter])
    }

    /// Frames ended by any of `delimiters`; the first is written.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] when there is none, or one is empty or too long;
    /// [`ConfigError::UnreachableDelimiter`] when one lies inside another before its end.
    pub fn any_of(delimiters: &[&[u8]]) -> Result<Self, ConfigError> {
        let finder = Delimiters::new(delimiters)?;
        let rules = Rules {
            frame_limit: DEFAULT_FRAME_LIMIT,
            longest: delimiters.iter().map(|delimiter| delimiter.len()).max().unwrap_or(1),
            overlong: Overlong::FailFast,
        };
        Ok(Self { finder, rules, scan: Scan::new() })
    }

    /// Sets the most payload bytes of a frame.
    pub fn frame_limit(mut self, bytes: usize) -> Self {
        self.rules.frame_limit = bytes;
        self
    }

    /// Sets when the error for a frame over the limit comes.
    pub fn overlong(mut self, overlong: Overlong) -> Self {
        self.rules.overlong = overlong;
        self
    }
}

impl Codec for DelimiterCodec {
    #[inline]
    fn decode(&mut self, input: &[u8]) -> Result<Decoded, DecodeError> {
        let finder = &self.finder;
        self.scan.cut(self.rules, input, |input, from| finder.find(input, from))
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
        match self.finder.early_end(payload, self.rules.longest) {
            Some(at) => Err(EncodeError::ContainsDelimiter { at }),
            None => Ok(()),
        }
    }

    fn suffix(&self) -> &[u8] {
        self.finder.written()
    }

    fn matching(&self) -> Matching {
        Matching::Fifo
    }
}

#[derive(Debug, Clone)]
enum Delimiters {
    One(Box<Finder<'static>>),
    Several {
        written: Vec<u8>,
        /// Longest first.
        by_length: Vec<Vec<u8>>,
        /// For each byte, whether a delimiter ends in it.
        ends: Box<[bool; 256]>,
        /// The bytes that delimiters end in, where there are at most three of them.
        few_ends: Option<[u8; 3]>,
    },
}

impl Delimiters {
    fn new(delimiters: &[&[u8]]) -> Result<Self, ConfigError> {
        check(delimiters)?;
        if let [delimiter] = delimiters {
            return Ok(Self::One(Box::new(Finder::new(delimiter).into_owned())));
        }
        let mut by_length: Vec<Vec<u8>> = delimiters.iter().map(|delimiter| delimiter.to_vec()).collect();
        let written = by_length[0].clone();
        by_length.sort_by_key(|delimiter| std::cmp::Reverse(delimiter.len()));
        let mut ends = Box::new([false; 256]);
        for last in by_length.iter().filter_map(|delimiter| delimiter.last()) {
            ends[usize::from(*last)] = true;
        }
        let few: Vec<u8> = (0..=u8::MAX).filter(|byte| ends[usize::from(*byte)]).collect();
        let few_ends = match few[..] {
            [a] => Some([a; 3]),
            [a, b] => Some([a, b, b]),
            [a, b, c] => Some([a, b, c]),
            _ => None,
        };
        Ok(Self::Several { written, by_length, ends, few_ends })
    }

    fn written(&self) -> &[u8] {
        match self {
            Self::One(finder) => finder.needle(),
            Self::Several { written, .. } => written,
        }
    }

    /// The delimiter that ends first, and not before `from`.
    #[inline]
    fn find(&self, input: &[u8], from: usize) -> Option<End> {
        match self {
            Self::One(finder) => {
                let length = finder.needle().len();
                let start = from.saturating_sub(length - 1);
                let at = start + finder.find(&input[start..])?;
                Some(End { payload: at, next: at + length })
            }
            Self::Several { by_length, ends, few_ends, .. } => {
                let mut from = from;
                loop {
                    let rest = &input[from..];
                    let last = from
                        + match few_ends {
                            Some([a, b, c]) => memchr::memchr3(*a, *b, *c, rest)?,
                            None => rest.iter().position(|byte| ends[usize::from(*byte)])?,
                        };
                    from = last + 1;
                    if let Some(delimiter) = by_length.iter().find(|one| input[..from].ends_with(one)) {
                        return Some(End { payload: from - delimiter.len(), next: from });
                    }
                }
            }
        }
    }

    /// Where a reader would end `payload` before its end, when the written delimiter follows it.
    fn early_end(&self, payload: &[u8], longest: usize) -> Option<usize> {
        if let Some(end) = self.find(payload, 0) {
            return Some(end.payload);
        }
        // The last bytes of the payload and the first of the delimiter can make another delimiter.
        let tail = &payload[payload.len().saturating_sub(longest - 1)..];
        if tail.is_empty() {
            return None;
        }
        let written = self.written();
        let mut seam = [0; 2 * DelimiterCodec::MAX_DELIMITER_LEN];
        seam[..tail.len()].copy_from_slice(tail);
        let seam_len = tail.len() + written.len();
        seam[tail.len()..seam_len].copy_from_slice(written);
        let end = self.find(&seam[..seam_len], tail.len())?;
        (end.payload < tail.len()).then(|| payload.len() - (tail.len() - end.payload))
    }
}

fn check(delimiters: &[&[u8]]) -> Result<(), ConfigError> {
    if delimiters.is_empty() {
        return Err(ConfigError::OutOfRange { setting: "delimiters", value: 0, allowed: "at least one" });
    }
    for delimiter in delimiters {
        if delimiter.is_empty() || delimiter.len() > DelimiterCodec::MAX_DELIMITER_LEN {
            return Err(ConfigError::OutOfRange {
                setting: "the length of a delimiter",
                value: delimiter.len() as i128,
                allowed: "1 to 64 bytes",
            });
        }
    }
    for delimiter in delimiters {
        let before_end = &delimiter[..delimiter.len() - 1];
        if let Some(shorter) = delimiters.iter().find(|one| memchr::memmem::find(before_end, one).is_some()) {
            return Err(ConfigError::UnreachableDelimiter {
                longer: delimiter.to_vec(),
                shorter: shorter.to_vec(),
            });
        }
    }
    Ok(())
}
