//! Unclean ends: failure and cancellation by this side.

use super::call::Own;
use super::event::Failure;
use super::{CallKey, Connection, emit};
use crate::rpc::code::Code;
use crate::rpc::error::{SendError, Unsendable};
use crate::rpc::extensions::Options;
use crate::rpc::header::Flags;
use crate::rpc::output::Output;

impl<T> Connection<T> {
    /// Fails a call (server). The call is over on this side; a stream of version 1 gets STREAM_CANCEL.
    ///
    /// # Errors
    /// The call is over or its response half has ended; this side is a client; or the failure is too long to be sent.
    pub fn fail<O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        failure: &Failure<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        self.fail_with(call, failure, &Options::default(), out)
    }

    /// Fails a call with metadata as its trailer (version 2).
    ///
    /// # Errors
    /// Those of [`fail`](Self::fail), and a block that cannot be sent.
    pub fn fail_with<O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        failure: &Failure<'_>,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        if self.is_client {
            return Err(SendError::NotAServer);
        }
        let index = self.open_half(call)?;
        check_text(failure.message)?;
        self.check_options(options)?;
        self.check_body(emit::failure_len(failure, options))?;
        emit::failure(self.dialect(), self.calls.at(index), failure, options, out);
        self.forget(index);
        Ok(())
    }

    /// Cancels a call: this side's half ends unfinished, and what still arrives is dropped.
    ///
    /// The key is over and no more events come for it. A client tells the server (version 2, and streams in both
    /// versions). A call of version 1 goes on at the server, which may never answer: nothing of it is kept here, and a
    /// response that comes all the same is dropped, since its id does not come back before the whole sequence has passed.
    /// A server that has already ended its half tells nobody, and drops the rest of the client's.
    ///
    /// # Errors
    /// The call is over, or the reason is longer than 65,535 bytes.
    pub fn cancel<O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        code: Code,
        reason: &str,
        out: &mut O,
    ) -> Result<(), SendError> {
        let index = self.calls.resolve(call).ok_or(SendError::CallOver)?;
        check_text(reason)?;
        if self.is_client {
            self.cancel_as_client(index, code, reason, out);
        } else {
            self.cancel_as_server(index, code, reason, out);
        }
        Ok(())
    }

    pub(super) fn cancel_as_client<O: Output + ?Sized>(
        &mut self,
        index: u32,
        code: Code,
        reason: &str,
        out: &mut O,
    ) {
        let version = self.dialect();
        let call = self.calls.at(index);
        if version.cancels_calls() || call.kind.is_stream() {
            emit::cancel(version, call.id, code, reason, out);
        } else if !call.has_own_ended() {
            self.emit_last_request(index, out);
        }
        let call = self.calls.at(index);
        call.own = Own::Ended;
        // What does not answer a cancel may have messages on their way: `free` expects them.
        if call.has_peer_ended() || !version.cancels_calls() { self.free(index) } else { self.abandon(index) }
    }

    fn cancel_as_server<O: Output + ?Sized>(&mut self, index: u32, code: Code, reason: &str, out: &mut O) {
        let version = self.dialect();
        let call = self.calls.at(index);
        if call.has_own_ended() {
            return self.discard_rest(index, out);
        }
        emit::stop(version, call, code, reason, out);
        self.forget(index);
    }

    /// Drops the rest of the client's half, so that the client can end it. Only reached when this side's half has
    /// ended, so that nothing of the call is left but to wait for that.
    fn discard_rest<O: Output + ?Sized>(&mut self, index: u32, out: &mut O) {
        let unreleased = self.calls.at(index).unreleased;
        self.abandon(index);
        self.grant(index, unreleased, out);
    }

    /// After the server's half has ended uncleanly: where frames say whether they begin a call, and for streams, what
    /// still arrives for the id means nothing; else the client's half must be waited for.
    pub(super) fn forget(&mut self, index: u32) {
        let version = self.dialect();
        let call = self.calls.at(index);
        call.own = Own::Ended;
        if version.marks_continuation() || call.kind.is_stream() || call.has_peer_ended() {
            self.free(index);
        } else {
            self.abandon(index);
        }
    }

    /// Ends the client's half of a call that the server has ended as a whole. The slot is free after it.
    pub(super) fn close_own_half<O: Output + ?Sized>(&mut self, index: u32, out: &mut O) {
        let version = self.dialect();
        let call = self.calls.at(index);
        if !call.has_own_ended() {
            if version.cancels_calls() {
                emit::cancel(version, call.id, Code::OK, "", out);
            } else if !call.kind.is_stream() {
                self.emit_last_request(index, out);
            }
        }
        self.free(index);
    }

    /// The end of a request half, where that is a frame like any other.
    fn emit_last_request<O: Output + ?Sized>(&mut self, index: u32, out: &mut O) {
        let flags = self.calls.at(index).kind.mode().flags().with(Flags::END);
        self.emit_more(index, flags, &Options::default(), &[], out);
    }
}

fn check_text(text: &str) -> Result<(), Unsendable> {
    let len = text.len();
    if len > usize::from(u16::MAX) { Err(Unsendable::TextTooLong { len }) } else { Ok(()) }
}
