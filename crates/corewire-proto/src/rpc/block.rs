//! Blocks of bytes behind their length, and what is wrong with a body.

/// Splits `u16 length, bytes` off the front.
#[inline]
pub(super) fn split_block(at: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, at) = at.split_first_chunk::<2>()?;
    at.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

/// A body breaks the layout of its frame; the frame's boundaries are sound.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BodyError {
    /// A field reaches beyond the body.
    #[error("the body ends inside {0}: check the peer's implementation")]
    TooShort(&'static str),
    /// Bytes are left over.
    #[error("the body goes on after {0}: check the peer's implementation")]
    TooLong(&'static str),
    /// Text that is not UTF-8.
    #[error("the {0} is not UTF-8: check the peer's implementation")]
    NotText(&'static str),
    /// A value that means nothing.
    #[error("{0}: check the peer's implementation")]
    Value(&'static str),
    /// The extension block cannot be read.
    #[error("the extension block has {0}: check the peer's implementation")]
    Extension(&'static str),
}
