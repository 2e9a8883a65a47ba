//! REQUEST, RESPONSE and ERROR.

use std::time::Duration;

use super::receive::unexpected;
use super::{Connection, Event, Request, cost, emit, is_later};
use crate::rpc::body::{BodyError, CancelBody, ErrorBody, RequestBody, ResponseBody};
use crate::rpc::code::Code;
use crate::rpc::error::ConnectionError;
use crate::rpc::extensions::Extensions;
use crate::rpc::header::{Flags, Header, Version};
use crate::rpc::output::Output;

type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;

/// Refused calls of version 1 that may go on arriving, where `Settings::max_calls` is lower: a client cannot know it.
const REFUSED_MIN: u32 = 1_024;

/// A message of the peer's half, or its end, or both.
pub(super) struct Part<'a> {
    /// None: the frame only ends the half.
    pub(super) payload: Option<&'a [u8]>,
    pub(super) end: bool,
    pub(super) extensions: Extensions<'a>,
}

impl Connection {
    #[inline(always)]
    pub(super) fn on_request<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let flags = header.flags;
        let found = self.calls.find(header.id, false);
        if flags.has(Flags::CONT) {
            return match found {
                // It crossed the end of its call.
                None => self.stray(header, now).map(|()| None),
                Some(index) => self.on_more_request(index, header, RequestBody::parse(flags, body), now, out),
            };
        }
        if let Some(index) = found {
            return self.on_request_again(index, header, body, now, out);
        }
        self.check_order(header)?;
        if self.is_going_away && self.is_v2() {
            self.expect_rest(!flags.has(Flags::END), i64::from(self.settings.window));
            return Ok(None);
        }
        let (mode, is_v1) = (flags.mode(), header.version == Version::V1);
        // A half of one message ends with it, whatever version 1 flags.
        let end = flags.has(Flags::END) || (is_v1 && !mode.streams_requests());
        if !end && !mode.streams_requests() {
            return Err(ConnectionError::EndMissing { id: header.id });
        }
        let request = match self.check_request(flags, body) {
            Ok(request) => request,
            Err(code) => return self.refuse(header, code, end, body, out),
        };
        let index = self.calls.insert(header.id, mode, false);
        self.last_accepted = Some(header.id);
        let payload = (!flags.has(Flags::EMPTY)).then_some(request.payload);
        let call = self.calls.at(index);
        call.received_end = end;
        call.received_any = payload.is_some();
        if !end {
            if is_v1 {
                call.names_hash = hash_names(&request);
            }
            self.fill_credit(index);
            if let Some(payload) = payload {
                self.charge(index, payload.len())?;
            }
        } else {
            call.send_credit = i64::from(self.peer.window);
        }
        let RequestBody { extensions, service, method, .. } = request;
        let request = Request { mode, service, method, payload, end, extensions };
        Ok(Some(Event::Request { call: self.calls.key(index), request }))
    }

    /// In version 2 each call begins under a later id than the one before: a frame that comes late then never belongs to
    /// another call, and what a GOAWAY names as the last one is.
    #[inline]
    pub(super) fn check_order(&mut self, header: &Header) -> Result<(), ConnectionError> {
        if !self.is_v2() {
            return Ok(());
        }
        match self.last_begun.replace(header.id) {
            Some(last) if !is_later(header.id, last) => {
                Err(ConnectionError::IdOutOfOrder { id: header.id, last })
            }
            _ => Ok(()),
        }
    }

    /// The request, or the code that refuses it.
    #[inline]
    fn check_request<'a>(&self, flags: Flags, body: &'a [u8]) -> Result<RequestBody<'a>, Code> {
        if self.is_going_away {
            return Err(Code::CONNECTION_CLOSED);
        }
        if !self.is_version_served() {
            return Err(Code::INVALID_REQUEST);
        }
        let request = RequestBody::parse(flags, body).map_err(|_| Code::INVALID_REQUEST)?;
        if flags.has(Flags::EMPTY) && !flags.mode().streams_requests() {
            return Err(Code::INVALID_REQUEST);
        }
        // In version 1 the abandoned ones are refused calls that go on arriving, which have a limit of their own.
        let refused = if self.is_v2() { 0 } else { self.abandoned[0] };
        let live = self.calls.calls_in_use.saturating_sub(refused);
        if live >= self.settings.max_calls || self.is_over_extension_limit(request.extensions) {
            return Err(Code::RESOURCE_EXHAUSTED);
        }
        Ok(request)
    }

    #[inline]
    pub(super) fn is_over_extension_limit(&self, extensions: Extensions<'_>) -> bool {
        extensions.block_len() > self.settings.max_extension as usize && !extensions.is_empty()
    }

    /// Answers a request that is not begun. In version 1 the rest of its half must be told from new calls.
    #[cold]
    fn refuse<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        code: Code,
        end: bool,
        body: &[u8],
        out: &mut O,
    ) -> Outcome<'a> {
        let mode = header.flags.mode();
        if header.version == Version::V1 && !end {
            let limit = self.settings.max_calls.max(REFUSED_MIN);
            if self.abandoned[0] >= limit {
                return Err(ConnectionError::TooManyRefused { limit });
            }
            let index = self.calls.insert(header.id, mode, false);
            self.abandon(index);
            let call = self.calls.at(index);
            call.sent_end = true;
            call.names_hash =
                RequestBody::parse(header.flags, body).map_or(0, |request| hash_names(&request));
        }
        if header.version == Version::V2 {
            self.expect_rest(!end, i64::from(self.settings.window));
        }
        emit::refusal(header.version, header.id, mode, code, out);
        Ok(None)
    }

    /// A REQUEST with names under an id in use: in version 1 it may be a further message of the same call.
    fn on_request_again<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let request = RequestBody::parse(header.flags, body);
        let call = self.calls.at(index);
        let is_same = header.version == Version::V1
            && !call.received_end
            && call.mode == header.flags.mode()
            && request.as_ref().map_or(true, |request| hash_names(request) == call.names_hash);
        if !is_same {
            return Err(ConnectionError::IdInUse { id: header.id });
        }
        self.on_more_request(index, header, request, now, out)
    }

    fn on_more_request<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        header: &Header,
        request: Result<RequestBody<'a>, BodyError>,
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let flags = header.flags;
        let call = self.calls.at(index);
        if call.is_stream || call.mode != flags.mode() {
            return Err(unexpected(header));
        }
        let end = flags.has(Flags::END);
        let is_over_limit = |request: &RequestBody<'_>| self.is_over_extension_limit(request.extensions);
        let request = match request {
            Ok(request) if is_over_limit(&request) => Err(Code::RESOURCE_EXHAUSTED),
            Ok(_) if flags.has(Flags::EMPTY) && !end => Err(Code::INVALID_REQUEST),
            Ok(request) => Ok(request),
            Err(_) => Err(Code::INVALID_REQUEST),
        };
        let RequestBody { payload, extensions, .. } = match request {
            Ok(request) => request,
            Err(code) => return self.break_call(index, header, code, now, out),
        };
        let is_v1_end = header.version == Version::V1 && end && payload.is_empty();
        let payload = (!flags.has(Flags::EMPTY) && !is_v1_end).then_some(payload);
        self.on_part(index, header, Part { payload, end, extensions }, out)
    }

    /// Fails a call whose client sent what cannot be read (server). Whoever works on it is stopped as by a CANCEL, and
    /// the client pays the same for it.
    #[cold]
    fn break_call<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        header: &Header,
        code: Code,
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let key = self.calls.key(index);
        let call = self.calls.at(index);
        if call.received_end {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        let is_awaited = !call.is_abandoned;
        self.charge_abort(index, now)?;
        let call = self.calls.at(index);
        call.received_end = header.flags.has(Flags::END);
        if !call.sent_end {
            emit::refusal(header.version, header.id, call.mode, code, out);
        }
        if is_awaited {
            self.forget(index);
        } else if self.calls.at(index).received_end {
            self.free(index);
        }
        let cancel = CancelBody { code, reason: "" };
        Ok(is_awaited.then_some(Event::Cancelled { call: key, cancel }))
    }

    #[inline(always)]
    pub(super) fn on_response<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        // A response to nobody crossed the end of its call.
        let Some(index) = self.calls.find(header.id, false) else {
            return self.stray(header, now).map(|()| None);
        };
        let flags = header.flags;
        let (is_v1, is_over) = (header.version == Version::V1, self.calls.at(index).received_end);
        let call = self.calls.at(index);
        if call.is_stream || is_over {
            return Err(if is_over {
                ConnectionError::AfterEnd { kind: header.kind, id: header.id }
            } else {
                unexpected(header)
            });
        }
        let is_single = !call.mode.streams_responses();
        let received_any = call.received_any;
        let response = match ResponseBody::parse(flags, body) {
            Ok(response) if !self.is_over_extension_limit(response.extensions) => response,
            _ => return Ok(self.fail_locally(index, is_single || flags.has(Flags::END), out)),
        };
        let ResponseBody { extensions, code, payload } = response;
        if !code.is_ok() {
            let error = ErrorBody { extensions, code, message: "", details: payload };
            return Ok(self.on_failure(index, error, out));
        }
        let end = flags.has(Flags::END) || (is_v1 && is_single);
        if !end && is_single {
            return Err(ConnectionError::EndMissing { id: header.id });
        }
        if flags.has(Flags::EMPTY) && (is_single || !end) {
            return Ok(self.fail_locally(index, end, out));
        }
        let is_v1_end = is_v1 && end && !is_single && received_any && payload.is_empty();
        let payload = (!flags.has(Flags::EMPTY) && !is_v1_end).then_some(payload);
        self.on_part(index, header, Part { payload, end, extensions }, out)
    }

    pub(super) fn on_error<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let Some(index) = self.calls.find(header.id, true) else {
            return self.stray(header, now).map(|()| None);
        };
        if self.calls.at(index).received_end {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        Ok(match ErrorBody::parse(header.flags, body) {
            Ok(error) if !self.is_over_extension_limit(error.extensions) => {
                self.on_failure(index, error, out)
            }
            _ => self.fail_locally(index, true, out),
        })
    }

    /// The server failed the call: it is over.
    fn on_failure<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        error: ErrorBody<'a>,
        out: &mut O,
    ) -> Option<Event<'a>> {
        let key = self.calls.key(index);
        let is_awaited = !self.calls.at(index).is_abandoned;
        self.close_own_half(index, out);
        is_awaited.then_some(Event::Failed { call: key, error })
    }

    /// What the server sent for the call cannot be read. Unless it ended its half by that, more may come: the call
    /// is then cancelled.
    #[cold]
    fn fail_locally<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        end: bool,
        out: &mut O,
    ) -> Option<Event<'a>> {
        let key = self.calls.key(index);
        let is_awaited = !self.calls.at(index).is_abandoned;
        let code = Code::INVALID_RESPONSE;
        if end {
            self.close_own_half(index, out);
        } else if is_awaited {
            self.cancel_as_client(index, code, "", out);
        }
        let error = ErrorBody { code, ..ErrorBody::default() };
        is_awaited.then_some(Event::Failed { call: key, error })
    }

    /// A readable frame of the peer's half of a call in use.
    #[inline(always)]
    pub(super) fn on_part<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        header: &Header,
        part: Part<'a>,
        out: &mut O,
    ) -> Outcome<'a> {
        let Part { payload, end, extensions } = part;
        let key = self.calls.key(index);
        let call = self.calls.at(index);
        if call.received_end {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        call.received_end = end;
        call.received_any = true;
        let is_awaited = !call.is_abandoned;
        if let Some(payload) = payload
            && !end
        {
            self.charge(index, payload.len())?;
            if !is_awaited && !self.is_client && self.is_v2() {
                self.grant(index, cost(payload.len()), out);
            }
        }
        let call = self.calls.at(index);
        if call.is_over() {
            self.free(index);
        } else if end && self.is_client && !call.mode.streams_responses() {
            self.close_own_half(index, out);
        }
        if !is_awaited {
            return Ok(None);
        }
        Ok(Some(match payload {
            Some(payload) => Event::Message { call: key, payload, end, extensions },
            None => Event::Ended { call: key, extensions },
        }))
    }

    /// Takes a message without END out of the peer's credit, and counts it as handed out.
    fn charge(&mut self, index: u32, payload_len: usize) -> Result<(), ConnectionError> {
        let cost = cost(payload_len);
        let (is_v2, window) = (self.is_v2(), u64::from(self.settings.window));
        let call = self.calls.at(index);
        if is_v2 {
            if call.receive_credit <= 0 {
                return Err(ConnectionError::NoCredit { id: call.id });
            }
            call.receive_credit -= cost as i64;
        }
        if call.is_abandoned {
            return Ok(());
        }
        call.unreleased += cost;
        if !is_v2 && !call.is_over_window && call.unreleased > window {
            call.is_over_window = true;
            self.over_window += 1;
        }
        self.buffered += cost;
        self.is_over_buffered |= self.buffered > self.settings.max_buffered;
        Ok(())
    }
}

/// A short hash (FNV-1a) that tells names apart without keeping them.
fn hash_names(request: &RequestBody<'_>) -> u32 {
    let bytes = request.service.iter().chain(&[0xff]).chain(request.method);
    bytes.fold(0x811c_9dc5, |hash: u32, &byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}
