//! What a call asks for.

use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_proto::rpc::Mode;

use super::options::{CallOptions, CallPath};
use crate::current::Current;
use crate::message::Message;
use crate::status::Status;

/// A call that is to be made.
pub(super) struct Request {
    pub(super) path: CallPath,
    pub(super) payload: Option<Bytes>,
    pub(super) mode: Mode,
    pub(super) is_stream: bool,
    /// The first message is the last.
    pub(super) end: bool,
    /// Of the slot.
    pub(super) holders: u8,
    pub(super) timeout: Option<Duration>,
    pub(super) options: Option<Box<CallOptions>>,
}

impl Request {
    pub(super) const fn new(path: CallPath, mode: Mode, payload: Option<Bytes>) -> Self {
        Self { path, payload, mode, is_stream: false, end: false, holders: 1, timeout: None, options: None }
    }

    /// One of a single message.
    pub(super) fn of_message<Req: Message>(path: CallPath, mode: Mode, message: Req) -> Self {
        let mut request = Self::new(path, mode, None);
        request.end = true;
        request.first(message.encode());
        request
    }

    /// Begins with this message; one that cannot be written fails the call.
    pub(super) fn first(&mut self, message: Result<Bytes, Status>) {
        match message {
            Ok(payload) => self.payload = Some(payload),
            Err(status) => self.path = CallPath::wrong(status),
        }
    }

    pub(super) fn options(&mut self) -> &mut CallOptions {
        self.options.get_or_insert_default()
    }

    /// Making it several times does no harm.
    #[inline]
    pub(super) fn is_repeatable(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.is_idempotent)
    }

    /// A call made by a handler has the deadline and the trace of that handler's call.
    #[inline]
    pub(super) fn inherits(&self) -> bool {
        self.options.as_ref().is_none_or(|options| !options.is_detached)
    }

    /// The deadline of the handler that makes it.
    #[inline]
    pub(super) fn outer_deadline(&self) -> Option<Instant> {
        if self.inherits() { Current::deadline() } else { None }
    }

    /// Says by itself how it is repeated.
    pub(super) fn repeats(&self) -> bool {
        self.options.as_ref().is_some_and(|options| options.retry.is_some() || options.hedge.is_some())
    }

    /// One more of the same.
    pub(super) fn again(&self) -> Self {
        Self {
            path: self.path.clone(),
            payload: self.payload.clone(),
            mode: self.mode,
            is_stream: self.is_stream,
            end: self.end,
            holders: self.holders,
            timeout: self.timeout,
            options: self.options.clone(),
        }
    }
}
