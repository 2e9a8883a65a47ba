//! What can be wrong with bytes, payloads and settings.

/// The bytes of a peer break the format or a limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DecodeError {
    /// The header announces a frame over the limit.
    #[error(
        "the peer announces a frame of {len} bytes, over the limit of {limit}: raise the codec's frame limit or check that both sides use the same codec"
    )]
    FrameTooLong {
        /// What the header says, in bytes (signed as the format reads it).
        len: i128,
        /// The limit in force, in bytes.
        limit: usize,
        /// The codec skips the frame and goes on with the next one.
        recoverable: bool,
    },
    /// The header's value makes no frame (a length below what the header itself takes, an over-long varint, …).
    #[error("{what} at the front of a frame: {value}: check that both sides use the same codec")]
    Malformed {
        /// What is wrong.
        what: &'static str,
        /// The value that was read.
        value: i128,
    },
    /// The payload is not what an object codec expects (not JSON, for example); the stream is still in step.
    #[error("the payload cannot be read: {0}")]
    Payload(String),
}

impl DecodeError {
    /// The stream is still in step: the connection may go on with the next frame.
    pub const fn is_recoverable(&self) -> bool {
        match self {
            Self::FrameTooLong { recoverable, .. } => *recoverable,
            Self::Payload(_) => true,
            Self::Malformed { .. } => false,
        }
    }
}

/// A payload that this format cannot carry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// The payload is longer than the field can say or than the limit allows.
    #[error("a payload of {len} bytes does not fit: this codec carries at most {limit}")]
    TooLong {
        /// The payload's length in bytes.
        len: usize,
        /// The most that fits, in bytes.
        limit: usize,
    },
    /// A codec of fixed frame length was given another length.
    #[error("a payload of {len} bytes was given to a codec whose frames are {expected} bytes")]
    WrongLength {
        /// The payload's length in bytes.
        len: usize,
        /// The length of every frame.
        expected: usize,
    },
    /// The payload contains the byte string that ends a frame.
    #[error("the payload holds the frame delimiter at byte {at}: it would be read as two frames")]
    ContainsDelimiter {
        /// Where it begins.
        at: usize,
    },
    /// The length field would have to be negative: it counts fewer bytes than its adjustment takes off.
    #[error(
        "a payload of {len} bytes is too short: with this length adjustment a frame carries at least {least}"
    )]
    TooShort {
        /// The payload's length in bytes.
        len: usize,
        /// The least that the settings can express, in bytes.
        least: usize,
    },
    /// A value of the frame head that this format has no room for.
    #[error("{field} {value} cannot be written: this codec's largest is {limit}")]
    HeadOutOfRange {
        /// Which value of the head.
        field: &'static str,
        /// What was asked for.
        value: u32,
        /// The largest that fits.
        limit: u32,
    },
    /// An object codec could not turn the value into bytes.
    #[error("the value cannot be written: {0}")]
    Value(String),
}

/// Settings of a codec that contradict each other or the format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConfigError {
    /// A setting lies outside of what it may be.
    #[error("{setting} is {value}: it must be {allowed}")]
    OutOfRange {
        /// The setting's name.
        setting: &'static str,
        /// What was asked for.
        value: i128,
        /// What may be asked for.
        allowed: &'static str,
    },
    /// The header would be longer than a frame header may be, or than a whole frame.
    #[error(
        "the header takes {header} bytes, more than the limit of {limit}: make the offset smaller or the limit larger"
    )]
    HeaderTooLong {
        /// The header's length in bytes.
        header: usize,
        /// The most it may be, in bytes.
        limit: usize,
    },
    /// Two settings exclude each other.
    #[error("{0}")]
    Conflict(&'static str),
    /// One delimiter lies inside another before its end, so the longer one could never be found.
    #[error(
        "the delimiter {longer:?} can never be found, because {shorter:?} inside it ends the frame first: drop one"
    )]
    UnreachableDelimiter {
        /// The delimiter that cannot be reached.
        longer: Vec<u8>,
        /// The delimiter inside it.
        shorter: Vec<u8>,
    },
}
