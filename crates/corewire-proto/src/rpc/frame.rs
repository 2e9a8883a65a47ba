//! Whole frames: checked views of their bodies that borrow from the input, and their writers.

use super::block::BodyError;
use super::body::{
    CancelBody, ErrorBody, GoAwayBody, InitBody, MethodRef, RequestBody, ResponseBody, SettingsBody,
    parse_credit, parse_ping,
};
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
            FrameType::Request => Self::Request(flags, RequestBody::parse(header.version, flags, body)?),
            FrameType::Response => Self::Response(flags, ResponseBody::parse(flags, body)?),
            FrameType::Ping if is_v1 => Self::Ping { ack: false, data: None },
            FrameType::Ping => Self::Ping { ack: flags.has(Flags::ACK), data: Some(parse_ping(body)?) },
            FrameType::Error if is_v1 => Self::Error(flags, None),
            FrameType::Error => Self::Error(flags, Some(ErrorBody::parse(flags, body)?)),
            FrameType::StreamInit => Self::StreamInit(flags, InitBody::parse(header.version, flags, body)?),
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

impl Frame<'_> {
    /// Writes the frame with its header.
    ///
    /// Lengths must fit their fields: names, blocks and messages at most 65,535 bytes, the body at most 4 GiB.
    /// A parsed frame always fits.
    pub fn emit<O: Output + ?Sized>(&self, version: Version, id: u32, out: &mut O) {
        let mut body = Vec::new();
        let (kind, flags) = self.emit_body(version, &mut body);
        let header = Header { version, kind, flags, id, body_len: body.len() as u32 };
        out.write(&header.emit());
        out.write(&body);
    }

    fn emit_body(&self, version: Version, out: &mut Vec<u8>) -> (FrameType, Flags) {
        match *self {
            Self::Request(flags, body) => {
                emit_method(version, body.method, out);
                emit_extensions(flags, body.extensions, out);
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
                emit_method(version, body.method, out);
                emit_extensions(flags, body.extensions, out);
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
                out.write(body.as_bytes());
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

fn emit_method(version: Version, method: MethodRef<'_>, out: &mut Vec<u8>) {
    if let (Version::V2, MethodRef::Names { number, .. } | MethodRef::Number(number)) = (version, method) {
        out.write(&number.to_be_bytes());
    }
    if let MethodRef::Names { service, method, .. } = method {
        emit_block(service, out);
        emit_block(method, out);
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
