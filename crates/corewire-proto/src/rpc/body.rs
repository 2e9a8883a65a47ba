//! Bodies of frames: checked views that borrow from the input.

use super::block::{BodyError, split_block};
use super::code::Code;
use super::extensions::Extensions;
use super::header::{Flags, Version};

/// How the first frame of a call says which method it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MethodRef<'a> {
    /// Not at all: the frame is not the first of its call.
    #[default]
    Unsaid,
    /// By its names.
    Names {
        /// In version 2 the number that stands for them from now on; 0: for this call alone.
        number: u16,
        /// The service's name, as it came: not checked to be UTF-8.
        service: &'a [u8],
        /// The method's name, as it came: not checked to be UTF-8.
        method: &'a [u8],
    },
    /// By the number that stands for its names (version 2).
    Number(u16),
}

impl<'a> MethodRef<'a> {
    /// Splits what says the method off the front of a REQUEST's or STREAM_INIT's body.
    ///
    /// # Errors
    /// A length points beyond the body, or names come where there can be none.
    #[inline]
    pub fn parse(version: Version, flags: Flags, body: &'a [u8]) -> Result<(Self, &'a [u8]), BodyError> {
        if flags.has(Flags::CONT) {
            let is_named = flags.has(Flags::NAMES);
            return if is_named {
                Err(BodyError::Value("names of a call that goes on"))
            } else {
                Ok((Self::Unsaid, body))
            };
        }
        let (number, body) = match version {
            Version::V1 => (0, body),
            Version::V2 => {
                let (number, body) =
                    body.split_first_chunk::<2>().ok_or(BodyError::TooShort("a method's number"))?;
                (u16::from_be_bytes(*number), body)
            }
        };
        if version == Version::V2 && !flags.has(Flags::NAMES) {
            return Ok((Self::Number(number), body));
        }
        let (service, body) = split_block(body).ok_or(BodyError::TooShort("a service name"))?;
        let (method, body) = split_block(body).ok_or(BodyError::TooShort("a method name"))?;
        Ok((Self::Names { number, service, method }, body))
    }
}

/// The body of a REQUEST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestBody<'a> {
    /// Which method, on the first frame of a call.
    pub method: MethodRef<'a>,
    /// The extension block; empty without the EXT flag.
    pub extensions: Extensions<'a>,
    /// The message.
    pub payload: &'a [u8],
}

impl<'a> RequestBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// A length points beyond the body, or a frame flagged EMPTY carries something.
    #[inline]
    pub fn parse(version: Version, flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (method, body) = MethodRef::parse(version, flags, body)?;
        Self::parse_rest(method, flags, body)
    }

    /// Reads what follows the method.
    #[inline]
    pub(super) fn parse_rest(method: MethodRef<'a>, flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, payload) = parse_extensions(flags, body)?;
        check_empty(flags, payload)?;
        Ok(Self { method, extensions, payload })
    }
}

/// The body of a RESPONSE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseBody<'a> {
    /// The extension block; empty without the EXT flag.
    pub extensions: Extensions<'a>,
    /// How the call went.
    pub code: Code,
    /// The message.
    pub payload: &'a [u8],
}

impl<'a> ResponseBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// There is no code, or a frame flagged EMPTY carries something.
    #[inline]
    pub fn parse(flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, body) = parse_extensions(flags, body)?;
        let (code, payload) = body.split_first_chunk::<2>().ok_or(BodyError::TooShort("a response code"))?;
        check_empty(flags, payload)?;
        Ok(Self { extensions, code: Code(u16::from_be_bytes(*code)), payload })
    }
}

/// The body of an ERROR.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ErrorBody<'a> {
    /// The extension block (a trailer); empty without the EXT flag.
    pub extensions: Extensions<'a>,
    /// Why the call failed.
    pub code: Code,
    /// The same for people.
    pub message: &'a str,
    /// Whatever the application adds.
    pub details: &'a [u8],
}

impl<'a> ErrorBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// It is cut short, or the message is not UTF-8.
    pub fn parse(flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, body) = parse_extensions(flags, body)?;
        let (code, body) = body.split_first_chunk::<2>().ok_or(BodyError::TooShort("an error code"))?;
        let (message, details) = split_block(body).ok_or(BodyError::TooShort("an error message"))?;
        let message = std::str::from_utf8(message).map_err(|_| BodyError::NotText("error message"))?;
        Ok(Self { extensions, code: Code(u16::from_be_bytes(*code)), message, details })
    }
}

/// The body of a STREAM_INIT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InitBody<'a> {
    /// The route.
    pub method: MethodRef<'a>,
    /// The extension block; empty without the EXT flag.
    pub extensions: Extensions<'a>,
}

impl<'a> InitBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// A length points beyond the body, or something follows the names.
    pub fn parse(version: Version, flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (method, body) = MethodRef::parse(version, flags, body)?;
        Self::parse_rest(method, flags, body)
    }

    /// Reads what follows the route.
    pub(super) fn parse_rest(method: MethodRef<'a>, flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, rest) = parse_extensions(flags, body)?;
        if !rest.is_empty() {
            return Err(BodyError::TooLong("the beginning of a stream"));
        }
        Ok(Self { method, extensions })
    }
}

/// The body of a CANCEL; all zero when there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CancelBody<'a> {
    /// Why, or 0.
    pub code: Code,
    /// The same for people; may be empty.
    pub reason: &'a str,
}

impl<'a> CancelBody<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// It has one byte, or the reason is not UTF-8.
    pub fn parse(body: &'a [u8]) -> Result<Self, BodyError> {
        if body.is_empty() {
            return Ok(Self::default());
        }
        let (code, reason) = body.split_first_chunk::<2>().ok_or(BodyError::TooShort("a cancel code"))?;
        let reason = std::str::from_utf8(reason).map_err(|_| BodyError::NotText("cancel reason"))?;
        Ok(Self { code: Code(u16::from_be_bytes(*code)), reason })
    }
}

/// The body of a SETTINGS: pairs of key and value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SettingsBody<'a> {
    entries: &'a [[u8; 6]],
}

impl<'a> SettingsBody<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// Its length is no multiple of 6, or a value is over 2,147,483,647.
    pub fn parse(body: &'a [u8]) -> Result<Self, BodyError> {
        let (entries, rest) = body.as_chunks::<6>();
        if !rest.is_empty() {
            return Err(BodyError::TooShort("a settings entry"));
        }
        let settings = Self { entries };
        if settings.entries().any(|(_, value)| value > i32::MAX as u32) {
            return Err(BodyError::Value("a setting over 2147483647"));
        }
        Ok(settings)
    }

    pub(super) fn as_bytes(&self) -> &'a [u8] {
        self.entries.as_flattened()
    }

    /// Keys and values, in the order of the wire.
    pub fn entries(&self) -> impl Iterator<Item = (u16, u32)> + use<'a> {
        self.entries.iter().map(|&[k0, k1, v0, v1, v2, v3]| {
            (u16::from_be_bytes([k0, k1]), u32::from_be_bytes([v0, v1, v2, v3]))
        })
    }
}

/// The body of a GOAWAY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GoAwayBody<'a> {
    /// The last call that the sender accepted, if it accepted any.
    pub last_accepted: Option<u32>,
    /// Why, or 0.
    pub code: Code,
    /// The same for people; may be empty.
    pub reason: &'a str,
}

impl<'a> GoAwayBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// It is cut short, or the reason is not UTF-8.
    pub fn parse(flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (last, body) = body.split_first_chunk::<4>().ok_or(BodyError::TooShort("a last accepted id"))?;
        let (code, reason) = body.split_first_chunk::<2>().ok_or(BodyError::TooShort("a going-away code"))?;
        let reason = std::str::from_utf8(reason).map_err(|_| BodyError::NotText("going-away reason"))?;
        let last_accepted = (!flags.has(Flags::NONE_ACCEPTED)).then_some(u32::from_be_bytes(*last));
        Ok(Self { last_accepted, code: Code(u16::from_be_bytes(*code)), reason })
    }
}

pub(super) fn parse_ping(body: &[u8]) -> Result<[u8; 8], BodyError> {
    body.try_into().map_err(|_| BodyError::Value("a ping that is not 8 bytes"))
}

pub(super) fn parse_credit(body: &[u8]) -> Result<u32, BodyError> {
    let amount = body.try_into().map_err(|_| BodyError::Value("a credit that is not 4 bytes"))?;
    match u32::from_be_bytes(amount) {
        0 => Err(BodyError::Value("a credit of 0")),
        amount => Ok(amount),
    }
}

#[inline]
fn parse_extensions(flags: Flags, body: &[u8]) -> Result<(Extensions<'_>, &[u8]), BodyError> {
    if flags.has(Flags::EXT) { Extensions::parse(body) } else { Ok((Extensions::default(), body)) }
}

#[inline]
fn check_empty(flags: Flags, payload: &[u8]) -> Result<(), BodyError> {
    if !flags.has(Flags::EMPTY) {
        return Ok(());
    }
    if payload.is_empty() {
        return Ok(());
    }
    Err(BodyError::Value("a message in a frame flagged EMPTY"))
}
