//! How a call ended.

use std::borrow::Cow;
use std::fmt;

use bytes::Bytes;
use corewire_proto::rpc::{Code, ErrorBody};

use crate::metadata::Metadata;

/// A call that did not succeed: a code, a text for people, and details that the application may add.
///
/// ```
/// use corewire_rpc::{Code, Status};
///
/// let status = Status::new(Code::PERMISSION_DENIED, "ann may not write");
/// assert_eq!(status.code(), Code::PERMISSION_DENIED);
/// assert_eq!(status.to_string(), "permission denied (14): ann may not write");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Status {
    // Boxed, so that a result of a call stays small: it lies in every future on the way.
    inner: Box<Inner>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Inner {
    code: Code,
    message: Cow<'static, str>,
    details: Bytes,
    metadata: Metadata,
    is_unprocessed: bool,
}

impl Status {
    /// Longest message that goes over the wire, in bytes; a longer one is cut at a character.
    pub const MESSAGE_MAX: usize = 16 * 1024;

    /// A status with a text for people.
    pub fn new(code: Code, message: impl Into<Cow<'static, str>>) -> Self {
        let inner = Inner {
            code,
            message: message.into(),
            details: Bytes::new(),
            metadata: Metadata::EMPTY,
            is_unprocessed: false,
        };
        Self { inner: Box::new(inner) }
    }

    /// A fault of this side.
    pub fn internal(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::INTERNAL, message)
    }

    /// The request means nothing.
    pub fn invalid(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::INVALID_REQUEST, message)
    }

    /// Adds details, which version 1 cannot carry.
    #[must_use]
    pub fn with_details(mut self, details: impl Into<Bytes>) -> Self {
        self.inner.details = details.into();
        self
    }

    /// Why.
    pub fn code(&self) -> Code {
        self.inner.code
    }

    /// The same for people; may be empty.
    pub fn message(&self) -> &str {
        &self.inner.message
    }

    /// What the application added. Of a server of version 1: the payload of its response.
    pub fn details(&self) -> &Bytes {
        &self.inner.details
    }

    /// What the server sent beside the failure, as a trailer; empty in version 1.
    pub fn metadata(&self) -> &Metadata {
        &self.inner.metadata
    }

    /// No server has begun the call: it can be made again without harm. False where that is not certain.
    pub fn is_unprocessed(&self) -> bool {
        self.inner.is_unprocessed
    }

    pub(crate) fn unprocessed(mut self) -> Self {
        self.inner.is_unprocessed = true;
        self
    }

    /// The message as it fits on the wire.
    pub(crate) fn wire_message(&self) -> &str {
        let message = self.message();
        let mut end = message.len().min(Self::MESSAGE_MAX);
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        &message[..end]
    }

    pub(crate) fn from_wire(error: &ErrorBody<'_>) -> Self {
        let mut status = Self::new(error.code, error.message.to_owned());
        status.inner.details = Bytes::copy_from_slice(error.details);
        status.inner.metadata = Metadata::received(Bytes::copy_from_slice(error.extensions.entries()));
        status
    }

    pub(crate) fn unavailable(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::UNAVAILABLE, message)
    }

    pub(crate) fn cancelled(message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Code::CANCELLED, message)
    }

    pub(crate) fn deadline() -> Self {
        Self::new(Code::DEADLINE_EXCEEDED, "the call was not done within its time")
    }

    pub(crate) fn connection_lost(reason: impl fmt::Display) -> Self {
        Self::new(Code::CONNECTION_CLOSED, format!("the connection was lost: {reason}"))
    }

    /// Of a call that may have been begun; add [`unprocessed`](Self::unprocessed) where it was not.
    pub(crate) fn closed() -> Self {
        Self::new(Code::CONNECTION_CLOSED, "the channel is closed")
    }

    /// As [`closed`](Self::closed), of one whose worker is no more.
    pub(crate) fn worker_stopped() -> Self {
        Self::new(Code::CONNECTION_CLOSED, "the worker of the channel has stopped")
    }

    /// Of a future that is polled again after it was ready.
    pub(crate) fn over() -> Self {
        Self::cancelled("the call is over")
    }
}

impl From<Code> for Status {
    fn from(code: Code) -> Self {
        Self::new(code, "")
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Code(number) = self.code();
        write!(f, "{} ({number})", name(self.code()))?;
        if self.message().is_empty() { Ok(()) } else { write!(f, ": {}", self.message()) }
    }
}

impl fmt::Debug for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Status({self})")
    }
}

impl std::error::Error for Status {}

/// The name of a code, for people.
pub(crate) const fn name(code: Code) -> &'static str {
    match code {
        Code::OK => "ok",
        Code::UNKNOWN => "unknown error",
        Code::SERVICE_NOT_FOUND => "service not found",
        Code::METHOD_NOT_FOUND => "method not found",
        Code::INVALID_REQUEST => "invalid request",
        Code::INVALID_RESPONSE => "invalid response",
        Code::DEADLINE_EXCEEDED => "deadline exceeded",
        Code::CONNECTION_CLOSED => "connection closed",
        Code::SERIALIZATION => "serialization failed",
        Code::DESERIALIZATION => "deserialization failed",
        Code::INTERNAL => "internal error",
        Code::CANCELLED => "cancelled",
        Code::RESOURCE_EXHAUSTED => "resource exhausted",
        Code::UNAUTHENTICATED => "unauthenticated",
        Code::PERMISSION_DENIED => "permission denied",
        Code::UNAVAILABLE => "unavailable",
        Code::PROTOCOL_ERROR => "protocol error",
        Code::FLOW_CONTROL_ERROR => "flow-control error",
        Code::INVALID_ARGUMENT => "invalid argument",
        Code::NOT_FOUND => "not found",
        Code::ALREADY_EXISTS => "already exists",
        Code::FAILED_PRECONDITION => "failed precondition",
        Code::ABORTED => "aborted",
        Code::OUT_OF_RANGE => "out of range",
        Code::UNIMPLEMENTED => "unimplemented",
        Code::DATA_LOSS => "data loss",
        _ => "application error",
    }
}
