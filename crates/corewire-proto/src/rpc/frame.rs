//! Whole frames: checked views of their bodies that borrow from the input, and their writers.

use super::code::Code;
use super::extensions::Extensions;
use super::header::{Flags, FrameType, HEADER_LEN, Header, HeaderError, Version};
use super::output::Output;

/// One frame, read in place.
///
/// The state machine reads bodies only as far as a call needs them; this is the whole frame, for tools and tests.
/// [`Frame::emit`] of a parsed frame gives its bytes back, except that bodies which the format skips (of ACK and
/// END, of version 1's heartbeat and error) come out empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Frame<'a> {
    /// REQUEST.
    Request(Flags, RequestBody<'a>),
    /// RESPONSE.
    Response(Flags, ResponseBody<'a>),
    /// PING or its answer; `None` for version 1's heartbeat.
    Ping {
        /// It is the answer.
        ack: bool,
        /// What it carries.
        data: Option<[u8; 8]>,
    },
    /// ERROR; `None` in version 1.
    Error(Flags, Option<ErrorBody<'a>>),
    /// STREAM_INIT.
    StreamInit(Flags, InitBody<'a>),
    /// STREAM_INIT_ACK.
    StreamInitAck,
    /// STREAM_DATA and its payload.
    StreamData(&'a [u8]),
    /// STREAM_END.
    StreamEnd,
    /// CANCEL.
    Cancel(CancelBody<'a>),
    /// CREDIT and its amount in bytes.
    Credit(u32),
    /// SETTINGS.
    Settings(SettingsBody<'a>),
    /// GOAWAY.
    GoAway(GoAwayBody<'a>),
}

impl<'a> Frame<'a> {
    /// Reads the body that follows `header`.
    ///
    /// # Errors
    /// The body breaks its layout.
    pub fn parse_body(header: &Header, body: &'a [u8]) -> Result<Self, BodyError> {
        let flags = header.flags;
        let is_v1 = header.version == Version::V1;
        Ok(match header.kind {
            FrameType::Request => Self::Request(flags, RequestBody::parse(flags, body)?),
            FrameType::Response => Self::Response(flags, ResponseBody::parse(flags, body)?),
            FrameType::Ping if is_v1 => Self::Ping { ack: false, data: None },
            FrameType::Ping => Self::Ping { ack: flags.has(Flags::ACK), data: Some(parse_ping(body)?) },
            FrameType::Error if is_v1 => Self::Error(flags, None),
            FrameType::Error => Self::Error(flags, Some(ErrorBody::parse(flags, body)?)),
            FrameType::StreamInit => Self::StreamInit(flags, InitBody::parse(flags, body)?),
            FrameType::StreamInitAck => Self::StreamInitAck,
            FrameType::StreamData => Self::StreamData(body),
            FrameType::StreamEnd => Self::StreamEnd,
            FrameType::Cancel if is_v1 => Self::Cancel(CancelBody::default()),
            FrameType::Cancel => Self::Cancel(CancelBody::parse(body)?),
            FrameType::Credit => Self::Credit(parse_credit(body)?),
            FrameType::Settings => Self::Settings(SettingsBody::parse(body)?),
            FrameType::GoAway => Self::GoAway(GoAwayBody::parse(flags, body)?),
        })
    }

    /// Reads the frame at the front of `input`; `None` when it is not whole.
    ///
    /// # Errors
    /// The header or the body breaks the format.
    pub fn parse(input: &'a [u8]) -> Result<Option<(Header, Self)>, FrameError> {
        let Some(header) = Header::parse(input)? else {
            return Ok(None);
        };
        let Some(body) = input.get(HEADER_LEN..).and_then(|rest| rest.get(..header.body_len as usize)) else {
            return Ok(None);
        };
        Ok(Some((header, Self::parse_body(&header, body)?)))
    }
}

/// The body of a REQUEST.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequestBody<'a> {
    /// The extension block; empty without the EXT flag.
    pub extensions: Extensions<'a>,
    /// The service's name; empty with the CONT flag.
    pub service: &'a [u8],
    /// The method's name; empty with the CONT flag.
    pub method: &'a [u8],
    /// The message.
    pub payload: &'a [u8],
}

impl<'a> RequestBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// A length points beyond the body, or a frame flagged EMPTY carries something.
    #[inline]
    pub fn parse(flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, body) = parse_extensions(flags, body)?;
        let (service, method, payload) =
            if flags.has(Flags::CONT) { (&body[..0], &body[..0], body) } else { parse_names(body)? };
        check_empty(flags, payload)?;
        Ok(Self { extensions, service, method, payload })
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
    /// The extension block; empty without the EXT flag.
    pub extensions: Extensions<'a>,
    /// The route's service.
    pub service: &'a [u8],
    /// The route's method.
    pub method: &'a [u8],
}

impl<'a> InitBody<'a> {
    /// Reads a body that came with `flags`.
    ///
    /// # Errors
    /// A length points beyond the body, or something follows the names.
    pub fn parse(flags: Flags, body: &'a [u8]) -> Result<Self, BodyError> {
        let (extensions, body) = parse_extensions(flags, body)?;
        let (service, method, rest) = parse_names(body)?;
        if !rest.is_empty() {
            return Err(BodyError::TooLong("a stream's names"));
        }
        Ok(Self { extensions, service, method })
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

/// Splits `u16 length, bytes` off the front.
#[inline]
pub(super) fn split_block(at: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, at) = at.split_first_chunk::<2>()?;
    at.split_at_checked(usize::from(u16::from_be_bytes(*len)))
}

#[inline]
fn parse_extensions(flags: Flags, body: &[u8]) -> Result<(Extensions<'_>, &[u8]), BodyError> {
    if flags.has(Flags::EXT) { Extensions::parse(body) } else { Ok((Extensions::default(), body)) }
}

/// Service, method, and what follows them.
type Names<'a> = (&'a [u8], &'a [u8], &'a [u8]);

#[inline]
fn parse_names(body: &[u8]) -> Result<Names<'_>, BodyError> {
    let (service, rest) = split_block(body).ok_or(BodyError::TooShort("a service name"))?;
    let (method, rest) = split_block(rest).ok_or(BodyError::TooShort("a method name"))?;
    Ok((service, method, rest))
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

impl Frame<'_> {
    /// Writes the frame with its header.
    ///
    /// Lengths must fit their fields: names, blocks and messages at most 65,535 bytes, the body at most 4 GiB.
    /// A parsed frame always fits.
    pub fn emit<O: Output + ?Sized>(&self, version: Version, id: u32, out: &mut O) {
        let mut body = Vec::new();
        let (kind, flags) = self.emit_body(&mut body);
        let header = Header { version, kind, flags, id, body_len: body.len() as u32 };
        out.write(&header.emit());
        out.write(&body);
    }

    fn emit_body(&self, out: &mut Vec<u8>) -> (FrameType, Flags) {
        match *self {
            Self::Request(flags, body) => {
                emit_extensions(flags, body.extensions, out);
                if !flags.has(Flags::CONT) {
                    emit_block(body.service, out);
                    emit_block(body.method, out);
                }
                out.write(body.payload);
                (FrameType::Request, flags)
            }
            Self::Response(flags, body) => {
                emit_extensions(flags, body.extensions, out);
                out.write(&body.code.0.to_be_bytes());
                out.write(body.payload);
                (FrameType::Response, flags)
            }
            Self::Ping { ack, data } => {
                out.write(data.as_ref().map_or(&[][..], |data| data));
                (FrameType::Ping, if ack { Flags::ACK } else { Flags::default() })
            }
            Self::Error(flags, body) => {
                if let Some(body) = body {
                    emit_extensions(flags, body.extensions, out);
                    out.write(&body.code.0.to_be_bytes());
                    emit_block(body.message.as_bytes(), out);
                    out.write(body.details);
                }
                (FrameType::Error, flags)
            }
            Self::StreamInit(flags, body) => {
                emit_extensions(flags, body.extensions, out);
                emit_block(body.service, out);
                emit_block(body.method, out);
                (FrameType::StreamInit, flags)
            }
            Self::StreamInitAck => (FrameType::StreamInitAck, Flags::default()),
            Self::StreamData(payload) => {
                out.write(payload);
                (FrameType::StreamData, Flags::default())
            }
            Self::StreamEnd => (FrameType::StreamEnd, Flags::default()),
            Self::Cancel(body) => {
                if body != CancelBody::default() {
                    out.write(&body.code.0.to_be_bytes());
                    out.write(body.reason.as_bytes());
                }
                (FrameType::Cancel, Flags::default())
            }
            Self::Credit(amount) => {
                out.write(&amount.to_be_bytes());
                (FrameType::Credit, Flags::default())
            }
            Self::Settings(body) => {
                out.write(body.entries.as_flattened());
                (FrameType::Settings, Flags::default())
            }
            Self::GoAway(body) => {
                out.write(&body.last_accepted.unwrap_or(0).to_be_bytes());
                out.write(&body.code.0.to_be_bytes());
                out.write(body.reason.as_bytes());
                (FrameType::GoAway, body.last_accepted.map_or(Flags::NONE_ACCEPTED, |_| Flags::default()))
            }
        }
    }
}

fn emit_extensions(flags: Flags, extensions: Extensions<'_>, out: &mut Vec<u8>) {
    if flags.has(Flags::EXT) {
        emit_block(extensions.entries(), out);
    }
}

fn emit_block(bytes: &[u8], out: &mut Vec<u8>) {
    out.write(&(bytes.len() as u16).to_be_bytes());
    out.write(bytes);
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

/// Bytes that are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FrameError {
    /// The header is not one.
    #[error(transparent)]
    Header(#[from] HeaderError),
    /// The body is not what the header says.
    #[error(transparent)]
    Body(#[from] BodyError),
}
