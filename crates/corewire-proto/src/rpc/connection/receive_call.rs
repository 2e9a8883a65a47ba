//! REQUEST, RESPONSE and ERROR.

use std::time::Duration;

use super::call::{Call, Kind, Own, Peer};
use super::receive::unexpected;
use super::{Connection, Event, Request, cost, emit, is_later};
use crate::rpc::block::BodyError;
use crate::rpc::body::{CancelBody, ErrorBody, MethodRef, RequestBody, ResponseBody};
use crate::rpc::code::Code;
use crate::rpc::error::ConnectionError;
use crate::rpc::extensions::Extensions;
use crate::rpc::header::{Flags, Header};
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

impl<T> Connection<T> {
    #[inline(always)]
    pub(super) fn on_request<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let (flags, version) = (header.flags, header.version);
        let found = self.calls.find(header.id, false);
        if flags.has(Flags::CONT) {
            return match found {
                // It crossed the end of its call.
                None => self.stray(header, now).map(|()| None),
                Some(index) => {
                    self.on_more_request(index, header, RequestBody::parse(version, flags, body), now, out)
                }
            };
        }
        if let Some(index) = found {
            return self.on_request_again(index, header, body, now, out);
        }
        self.check_order(header)?;
        if self.is_ignored() {
            self.expect_rest(!flags.has(Flags::END), i64::from(self.settings.window));
            return Ok(None);
        }
        let mode = flags.mode();
        let end = version.is_last(flags, mode.streams_requests());
        if !end && !mode.streams_requests() {
            return Err(ConnectionError::EndMissing { id: header.id });
        }
        let request = match self.check_request(header, body)? {
            Ok(request) => request,
            Err(code) => return self.refuse(header, code, end, body, out),
        };
        let RequestBody { extensions, method, payload } = request;
        let payload = (!flags.has(Flags::EMPTY)).then_some(payload);
        let mut call = Call::new(header.id, Kind::Call(mode));
        call.send_credit = i64::from(self.peer.window);
        if end {
            call.peer = Peer::Ended;
        } else {
            call.receive_credit = i64::from(self.settings.window);
            call.names_hash = version.names_hash(&request);
            if payload.is_some() {
                call.peer = Peer::Open;
            }
        }
        let index = self.calls.insert(call);
        self.last_accepted = Some(header.id);
        if !end && let Some(payload) = payload {
            self.charge(index, payload.len())?;
        }
        let request = Request { mode, method, payload, end, extensions };
        Ok(Some(Event::Request { call: self.calls.key(index), request }))
    }

    /// Calls that begin now are not answered: the client knows from the GOAWAY that they were not begun.
    #[inline]
    pub(super) fn is_ignored(&self) -> bool {
        self.is_going_away && self.dialect().has_control()
    }

    /// In version 2 each call begins under a later id than the one before: a frame that comes late then never belongs to
    /// another call, and what a GOAWAY names as the last one is.
    #[inline]
    pub(super) fn check_order(&mut self, header: &Header) -> Result<(), ConnectionError> {
        if !header.version.ids_increase() {
            return Ok(());
        }
        match self.last_begun.replace(header.id) {
            Some(last) if !is_later(header.id, last) => {
                Err(ConnectionError::IdOutOfOrder { id: header.id, last })
            }
            _ => Ok(()),
        }
    }

    /// The code that refuses every call.
    #[inline]
    pub(super) fn check_service(&self) -> Result<(), Code> {
        if self.is_going_away {
            return Err(Code::CONNECTION_CLOSED);
        }
        if self.is_version_served() { Ok(()) } else { Err(Code::INVALID_REQUEST) }
    }

    /// Which method the first frame of a call is for, and what follows that in its body; or the code that refuses the
    /// call. Both sides must remember the same numbers, so that names which cannot be read close the connection where they
    /// could be given one.
    #[inline]
    pub(super) fn method<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Result<(MethodRef<'a>, &'a [u8]), Code>, ConnectionError> {
        let parsed = match MethodRef::parse(header.version, header.flags, body) {
            Ok(parsed) => parsed,
            Err(error) if header.flags.has(Flags::NAMES) => {
                return Err(ConnectionError::Body { kind: header.kind, error });
            }
            Err(_) => return Ok(Err(Code::INVALID_REQUEST)),
        };
        match parsed.0 {
            MethodRef::Number(number) if self.methods.get(number).is_none() => {
                return Err(ConnectionError::MethodUndefined { id: header.id, number });
            }
            MethodRef::Names { number: number @ 1.., service, method } => {
                self.methods.define(number, service, method)?;
            }
            _ => {}
        }
        Ok(Ok(parsed))
    }

    /// The request, or the code that refuses it.
    #[inline]
    fn check_request<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Result<RequestBody<'a>, Code>, ConnectionError> {
        if let Err(code) = self.check_service() {
            return Ok(Err(code));
        }
        let flags = header.flags;
        let (method, rest) = match self.method(header, body)? {
            Ok(method) => method,
            Err(code) => return Ok(Err(code)),
        };
        let Ok(request) = RequestBody::parse_rest(method, flags, rest) else {
            return Ok(Err(Code::INVALID_REQUEST));
        };
        if flags.has(Flags::EMPTY) && !flags.mode().streams_requests() {
            return Ok(Err(Code::INVALID_REQUEST));
        }
        // Refused calls that go on arriving have a limit of their own.
        let refused = if header.version.marks_continuation() { 0 } else { self.calls.abandoned().calls };
        let live = self.calls.in_use().calls.saturating_sub(refused);
        let is_refused = live >= self.settings.max_calls || self.is_over_extension_limit(request.extensions);
        Ok(if is_refused { Err(Code::RESOURCE_EXHAUSTED) } else { Ok(request) })
    }

    #[inline]
    pub(super) fn is_over_extension_limit(&self, extensions: Extensions<'_>) -> bool {
        extensions.block_len() > self.settings.max_extension as usize && !extensions.is_empty()
    }

    /// Answers a request that is not begun. The rest of its half may have to be told from new calls.
    #[cold]
    fn refuse<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        code: Code,
        end: bool,
        body: &[u8],
        out: &mut O,
    ) -> Outcome<'a> {
        let (mode, version) = (header.flags.mode(), header.version);
        if version.marks_continuation() {
            self.expect_rest(!end, i64::from(self.settings.window));
        } else if !end {
            let limit = self.settings.max_calls.max(REFUSED_MIN);
            if self.calls.abandoned().calls >= limit {
                return Err(ConnectionError::TooManyRefused { limit });
            }
            let request = RequestBody::parse(version, header.flags, body);
            let mut call = Call::new(header.id, Kind::Call(mode));
            call.names_hash = request.map_or(0, |request| version.names_hash(&request));
            call.own = Own::Ended;
            let index = self.calls.insert(call);
            self.abandon(index);
        }
        emit::refusal(version, header.id, mode, code, out);
        Ok(None)
    }

    /// A REQUEST that begins a call under an id in use: in version 1 it may be a further message of the same call.
    fn on_request_again<'a, O: Output + ?Sized>(
        &mut self,
        index: u32,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let version = header.version;
        let request = RequestBody::parse(version, header.flags, body);
        let call = self.calls.at(index);
        let is_same = !version.marks_continuation()
            && !call.has_peer_ended()
            && call.kind == Kind::Call(header.flags.mode())
            && request.as_ref().map_or(true, |request| version.names_hash(request) == call.names_hash);
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
        if call.kind != Kind::Call(flags.mode()) {
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
        let payload = (!header.version.is_empty(flags, payload, false)).then_some(payload);
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
        if self.calls.at(index).has_peer_ended() {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        let is_awaited = !self.calls.is_abandoned(index);
        self.charge_abort(index, now)?;
        let call = self.calls.at(index);
        if header.flags.has(Flags::END) {
            call.peer = Peer::Ended;
        }
        let has_ended = call.has_peer_ended();
        if !call.has_own_ended() {
            emit::refusal(header.version, header.id, call.kind.mode(), code, out);
        }
        if is_awaited {
            self.forget(index);
        } else if has_ended {
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
        let (flags, version) = (header.flags, header.version);
        let call = self.calls.at(index);
        if call.has_peer_ended() {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        let (Kind::Call(mode), is_first) = (call.kind, call.peer == Peer::Silent) else {
            return Err(unexpected(header));
        };
        let is_single = !mode.streams_responses();
        let response = match ResponseBody::parse(flags, body) {
            Ok(response) if !self.is_over_extension_limit(response.extensions) => response,
            _ => return Ok(self.fail_locally(index, is_single || flags.has(Flags::END), out)),
        };
        let ResponseBody { extensions, code, payload } = response;
        if !code.is_ok() {
            let error = ErrorBody { extensions, code, message: "", details: payload };
            return Ok(self.on_failure(index, error, out));
        }
        let end = version.is_last(flags, !is_single);
        if !end && is_single {
            return Err(ConnectionError::EndMissing { id: header.id });
        }
        if flags.has(Flags::EMPTY) && (is_single || !end) {
            return Ok(self.fail_locally(index, end, out));
        }
        let is_empty = version.is_empty(flags, payload, is_first || is_single);
        self.on_part(index, header, Part { payload: (!is_empty).then_some(payload), end, extensions }, out)
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
        if self.calls.at(index).has_peer_ended() {
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
        let is_awaited = !self.calls.is_abandoned(index);
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
        let is_awaited = !self.calls.is_abandoned(index);
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
        let is_awaited = !self.calls.is_abandoned(index);
        let call = self.calls.at(index);
        if call.has_peer_ended() {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        call.peer = if end { Peer::Ended } else { Peer::Open };
        if let Some(payload) = payload
            && !end
        {
            self.charge(index, payload.len())?;
            if !is_awaited && !self.is_client {
                self.grant(index, cost(payload.len()), out);
            }
        }
        if end {
            let call = self.calls.at(index);
            if call.has_own_ended() {
                self.free(index);
            } else if self.is_client && !call.kind.mode().streams_responses() {
                self.close_own_half(index, out);
            }
        }
        if !is_awaited {
            return Ok(None);
        }
        Ok(Some(match payload {
            Some(payload) => Event::Message { call: key, payload, end, extensions },
            None => Event::Ended { call: key, extensions },
        }))
    }
}
