//! The state machine that line and delimiter framing share: look for the end of a frame, never twice at the
//! same bytes.

use super::{DecodeError, Decoded, FrameHead, Overlong};

/// Where the end of a frame was found.
#[derive(Debug, Clone, Copy)]
pub(super) struct End {
    /// Where the delimiter begins: the length of the payload.
    pub(super) payload: usize,
    /// Where the next frame begins.
    pub(super) next: usize,
}

/// How frames are cut; the same for the whole life of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    /// The most payload bytes.
    pub(super) frame_limit: usize,
    /// The length of the longest delimiter.
    pub(super) longest: usize,
    pub(super) overlong: Overlong,
}

/// What a scan remembers from one chunk to the next.
#[derive(Debug, Clone)]
pub(super) struct Scan {
    /// Bytes at the front of the input in which no delimiter ends.
    seen: usize,
    skip: Option<Skip>,
}

/// A frame over the limit whose end is being looked for.
#[derive(Debug, Clone)]
struct Skip {
    /// The error to give at that end.
    then: Option<DecodeError>,
}

impl Scan {
    pub(super) const fn new() -> Self {
        Self { seen: 0, skip: None }
    }

    /// Begins anew; gives the error that was to come at the end of the frame that was being skipped.
    #[inline]
    pub(super) fn forget(&mut self) -> Option<DecodeError> {
        std::mem::replace(self, Self::new()).skip?.then
    }

    /// Cuts the next frame. `find(input, from)` looks for the delimiter that ends first, knowing that none ends
    /// before `from`.
    #[inline]
    pub(super) fn cut(
        &mut self,
        rules: Rules,
        input: &[u8],
        find: impl Fn(&[u8], usize) -> Option<End>,
    ) -> Result<Decoded, DecodeError> {
        let found = find(input, self.seen.min(input.len()));
        if self.skip.is_some() {
            return self.skip_on(rules, input.len(), found);
        }
        match found {
            Some(End { payload, next }) if payload <= rules.frame_limit => {
                self.seen = 0;
                Ok(Decoded::Frame { head: FrameHead::default(), payload: 0..payload, consumed: next })
            }
            None if input.len() < rules.frame_limit.saturating_add(rules.longest) => {
                self.seen = input.len();
                Ok(Decoded::Incomplete { needed: input.len() + 1 })
            }
            _ => self.too_long(rules, input.len(), found),
        }
    }

    #[cold]
    fn too_long(&mut self, rules: Rules, len: usize, found: Option<End>) -> Result<Decoded, DecodeError> {
        let payload = found.map_or(len, |end| end.payload);
        let error =
            DecodeError::FrameTooLong { len: payload as i128, limit: rules.frame_limit, recoverable: true };
        self.seen = 0;
        match rules.overlong {
            Overlong::FailFast => {
                self.skip = Some(Skip { then: None });
                Err(error)
            }
            Overlong::SkipThenFail => {
                self.skip = Some(Skip { then: Some(error) });
                self.skip_on(rules, len, found)
            }
        }
    }

    #[cold]
    fn skip_on(&mut self, rules: Rules, len: usize, found: Option<End>) -> Result<Decoded, DecodeError> {
        if let Some(End { next, .. }) = found {
            // The error comes before the last bytes are stepped over: a codec is not called without input, so
            // afterwards it would wait for the next frame.
            if let Some(error) = self.skip.as_mut().and_then(|skip| skip.then.take()) {
                return Err(error);
            }
            *self = Self::new();
            return Ok(Decoded::Skipped { consumed: next });
        }
        // The front of a delimiter may lie at the end of the input.
        let kept = len.min(rules.longest - 1);
        self.seen = kept;
        match len - kept {
            0 => Ok(Decoded::Incomplete { needed: len + 1 }),
            consumed => Ok(Decoded::Skipped { consumed }),
        }
    }
}
