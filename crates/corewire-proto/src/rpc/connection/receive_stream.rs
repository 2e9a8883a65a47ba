//! STREAM_INIT, STREAM_INIT_ACK, STREAM_DATA, STREAM_END, and CANCEL of either family.

use std::time::Duration;

use super::call::{Call, Kind, Own, Peer};
use super::receive::unexpected;
use super::receive_call::Part;
use super::{Connection, Event, Request, emit};
use crate::rpc::body::{ErrorBody, InitBody};
use crate::rpc::code::Code;
use crate::rpc::error::ConnectionError;
use crate::rpc::extensions::Extensions;
use crate::rpc::header::{Header, Mode};
use crate::rpc::output::Output;

type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;

impl<T> Connection<T> {
    pub(super) fn on_stream_init<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        out: &mut O,
    ) -> Outcome<'a> {
        if self.calls.find(header.id, true).is_some() {
            return Err(ConnectionError::IdInUse { id: header.id });
        }
        self.check_order(header)?;
        if self.is_ignored() {
            self.expect_rest(true, i64::from(self.settings.window));
            return Ok(None);
        }
        let init = match self.check_stream_init(header, body)? {
            Ok(init) => init,
            Err(code) => {
                emit::cancel(header.version, header.id, code, "", out);
                self.expect_rest(true, i64::from(self.settings.window));
                return Ok(None);
            }
        };
        let index = self.calls.insert(Call::new(header.id, Kind::OpeningStream));
        self.fill_credit(index);
        self.last_accepted = Some(header.id);
        let InitBody { extensions, method } = init;
        let request = Request { mode: Mode::Bidi, method, payload: None, end: false, extensions };
        Ok(Some(Event::StreamOpened { call: self.calls.key(index), request }))
    }

    /// The route, or the code that refuses it.
    fn check_stream_init<'a>(
        &mut self,
        header: &Header,
        body: &'a [u8],
    ) -> Result<Result<InitBody<'a>, Code>, ConnectionError> {
        if let Err(code) = self.check_service() {
            return Ok(Err(code));
        }
        let (method, rest) = match self.method(header, body)? {
            Ok(method) => method,
            Err(code) => return Ok(Err(code)),
        };
        let Ok(init) = InitBody::parse_rest(method, header.flags, rest) else {
            return Ok(Err(Code::INVALID_REQUEST));
        };
        let is_full = self.calls.in_use().streams >= self.settings.max_streams;
        let is_refused = is_full || self.is_over_extension_limit(init.extensions);
        Ok(if is_refused { Err(Code::RESOURCE_EXHAUSTED) } else { Ok(init) })
    }

    pub(super) fn on_stream_init_ack<'a>(&mut self, header: &Header, now: Duration) -> Outcome<'a> {
        let Some(index) = self.find_stream(header, now)? else { return Ok(None) };
        let call = self.calls.at(index);
        if call.kind == Kind::Stream {
            return Err(ConnectionError::AcceptedTwice { id: header.id });
        }
        call.kind = Kind::Stream;
        let is_awaited = !self.calls.is_abandoned(index);
        Ok(is_awaited.then(|| Event::Accepted { call: self.calls.key(index) }))
    }

    #[inline]
    pub(super) fn on_stream_data<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let Some(index) = self.find_stream(header, now)? else { return Ok(None) };
        let part = Part { payload: Some(body), end: false, extensions: Extensions::default() };
        self.on_part(index, header, part, out)
    }

    pub(super) fn on_stream_end<'a>(&mut self, header: &Header, now: Duration) -> Outcome<'a> {
        let Some(index) = self.find_stream(header, now)? else { return Ok(None) };
        let part = Part { payload: None, end: true, extensions: Extensions::default() };
        // An end grants no credit, so that there is nothing to write.
        self.on_part(index, header, part, &mut Vec::new())
    }

    pub(super) fn on_cancel<'a, O: Output + ?Sized>(
        &mut self,
        header: &Header,
        body: &'a [u8],
        now: Duration,
        out: &mut O,
    ) -> Outcome<'a> {
        let Some(index) = self.calls.find(header.id, true) else {
            return self.on_cancel_of_none(header, now);
        };
        let key = self.calls.key(index);
        let (is_abandoned, is_answered) = (self.calls.is_abandoned(index), header.version.cancels_calls());
        let call = self.calls.at(index);
        if is_answered && call.has_peer_ended() && self.is_client {
            return Err(ConnectionError::AfterEnd { kind: header.kind, id: header.id });
        }
        self.charge_abort(index, now)?;
        let call = self.calls.at(index);
        if is_answered && !call.has_own_ended() {
            emit::cancel(header.version, header.id, Code::OK, "", out);
        }
        call.peer = Peer::Ended;
        self.free(index);
        if is_abandoned {
            return Ok(None);
        }
        Ok(Some(Event::Cancelled { call: key, cancel: header.version.read_cancel(body) }))
    }

    /// A CANCEL for no stream. A server of version 1 that knows nothing but streams answers the REQUEST of a call so:
    /// calls and streams of this side have their ids from one sequence, so that it can mean nothing else.
    #[cold]
    fn on_cancel_of_none<'a>(&mut self, header: &Header, now: Duration) -> Outcome<'a> {
        let is_meant = self.is_client && !header.version.cancels_calls();
        let Some(index) = self.calls.find(header.id, false).filter(|_| is_meant) else {
            return self.stray(header, now).map(|()| None);
        };
        let key = self.calls.key(index);
        let call = self.calls.at(index);
        // It will not read the rest of the requests either.
        (call.own, call.peer) = (Own::Ended, Peer::Ended);
        self.free(index);
        let (code, message) =
            (Code::METHOD_NOT_FOUND, "the server knows streams only, and cancelled the call");
        Ok(Some(Event::Failed { call: key, error: ErrorBody { code, message, ..ErrorBody::default() } }))
    }

    /// The client ends a call before its time. If that stops somebody who works on it, it takes one of the client's
    /// aborts, of which work that was finished gives one back (server).
    pub(super) fn charge_abort(&mut self, index: u32, now: Duration) -> Result<(), ConnectionError> {
        let is_worked_on = !self.calls.is_abandoned(index) && !self.calls.at(index).has_own_ended();
        let is_aborted = !self.is_client && is_worked_on;
        if is_aborted && !self.aborts.take(now) {
            let rate = self.settings.cancels;
            return Err(ConnectionError::CancelFlood { burst: rate.burst, per_second: rate.per_second });
        }
        Ok(())
    }

    /// The slot of the stream that a frame belongs to; `None` if it crossed the stream's end.
    #[inline]
    fn find_stream(&mut self, header: &Header, now: Duration) -> Result<Option<u32>, ConnectionError> {
        let Some(index) = self.calls.find(header.id, true) else {
            return self.stray(header, now).map(|()| None);
        };
        if self.calls.at(index).kind.is_stream() { Ok(Some(index)) } else { Err(unexpected(header)) }
    }
}
