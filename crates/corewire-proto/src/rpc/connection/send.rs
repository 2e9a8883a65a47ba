//! Messages after the first, and the clean end.

use super::call::{Kind, Own};
use super::{CallKey, Connection, cost, emit};
use crate::rpc::error::SendError;
use crate::rpc::extensions::Options;
use crate::rpc::header::{Flags, FrameType, Mode};
use crate::rpc::output::{Output, Payload};
use crate::rpc::path::MethodPath;

impl<T> Connection<T> {
    /// Sends a message of this side's half; `end` makes it the last. The only response of a unary or client-stream
    /// call always is.
    ///
    /// In version 1 an empty last message that is not the first of a streaming half reads as the end without one.
    /// A server that sends on a stream accepts it by that.
    ///
    /// # Errors
    /// The call is over or its half has ended; there is no credit ([`SendError::Blocked`]: try again after
    /// [`Event::Writable`](super::Event::Writable)); or the frame cannot be sent. Nothing was written.
    #[inline]
    pub fn send<P: Payload, O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        payload: P,
        end: bool,
        out: &mut O,
    ) -> Result<(), SendError> {
        if end
            && !self.is_client
            && let Some((index, id)) = self.calls.unanswered(call)
        {
            return self.answer(index, id, payload, out);
        }
        self.send_with(call, payload, end, &Options::default(), out)
    }

    /// Sends the one response of a unary call, which ends it.
    #[inline]
    fn answer<P: Payload, O: Output + ?Sized>(
        &mut self,
        index: u32,
        id: u32,
        payload: P,
        out: &mut O,
    ) -> Result<(), SendError> {
        self.check_body(2 + payload.size())?;
        emit::answer(self.dialect(), id, payload, out);
        self.aborts.give();
        self.calls.remove(index);
        self.expect_rest(false, 0);
        Ok(())
    }

    /// Sends a message with metadata (version 2; not on streams of the `STREAM_*` family, whose frames have none).
    ///
    /// # Errors
    /// Those of [`send`](Self::send).
    #[inline]
    pub fn send_with<P: Payload, O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        payload: P,
        end: bool,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        let index = self.open_half(call)?;
        let call = self.calls.at(index);
        let Kind::Call(mode) = call.kind else {
            return self.send_on_stream(index, payload, end, options, out);
        };
        let end = end || !(self.is_client || mode.streams_responses());
        if !end {
            self.check_credit(index)?;
        }
        let block_len = self.check_options(options)?;
        self.check_body(
            block_len + 2 + payload.size() + self.path(index).map_or(0, |path| path.wire().len()),
        )?;
        let call = self.calls.at(index);
        let mut flags = mode.flags();
        if end {
            call.own = Own::Ended;
            flags = flags.with(Flags::END);
        } else {
            call.own = Own::Open;
            call.send_credit -= cost(payload.size()) as i64;
            self.strays.expect(super::CREDIT_LEN);
        }
        if self.is_client {
            self.emit_more(index, flags, options, payload, out);
        } else {
            emit::response(self.dialect(), self.calls.id(index), flags, options, payload, out);
        }
        if end {
            self.after_own_end(index);
        }
        Ok(())
    }

    /// Whether a message without `end` could be sent now, so that none is made that cannot. After
    /// [`SendError::Blocked`] an [`Event::Writable`](super::Event::Writable) will come, as after a `send`.
    ///
    /// # Errors
    /// Those of [`send`](Self::send), but for what depends on the message.
    #[inline]
    pub fn poll_send(&mut self, call: CallKey) -> Result<(), SendError> {
        let index = self.open_half(call)?;
        self.check_acceptance(index)?;
        self.check_credit(index)
    }

    /// Whether a response to a call has been sent; `None` once the response half has ended (server). Metadata goes with the
    /// first response as its head, with the last as its trailer.
    pub fn has_responded(&mut self, call: CallKey) -> Option<bool> {
        let index = self.open_half(call).ok()?;
        Some(self.calls.at(index).own != Own::Silent)
    }

    /// Ends this side's half cleanly, without a message. Never waits for credit.
    ///
    /// # Errors
    /// The call is over, its half has ended, or it is a response half of one message.
    pub fn finish<O: Output + ?Sized>(&mut self, call: CallKey, out: &mut O) -> Result<(), SendError> {
        self.finish_with(call, &Options::default(), out)
    }

    /// Ends this side's half with metadata as its trailer (version 2; not on streams of the `STREAM_*` family).
    ///
    /// # Errors
    /// Those of [`finish`](Self::finish), and a block that cannot be sent.
    pub fn finish_with<O: Output + ?Sized>(
        &mut self,
        call: CallKey,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        let index = self.open_half(call)?;
        let block_len = self.check_options(options)?;
        self.check_body(block_len + 2)?;
        let version = self.dialect();
        let call = self.calls.at(index);
        let (id, kind) = (call.id, call.kind);
        let flags = version.end_flags(kind.mode());
        if kind.is_stream() {
            check_stream_options(options)?;
            self.accept_index(index, out);
            emit::head(version, FrameType::StreamEnd, Flags::default(), id, 0, out);
        } else if self.is_client {
            self.emit_more(index, flags, options, &[], out);
        } else if kind.mode().streams_responses() {
            emit::response(version, id, flags, options, &[], out);
        } else {
            return Err(SendError::MessageNeeded);
        }
        self.calls.at(index).own = Own::Ended;
        self.after_own_end(index);
        Ok(())
    }

    /// Accepts a stream (server). Sending on it does the same.
    ///
    /// # Errors
    /// The stream is over, or this side is a client.
    pub fn accept<O: Output + ?Sized>(&mut self, call: CallKey, out: &mut O) -> Result<(), SendError> {
        if self.is_client {
            return Err(SendError::NotAServer);
        }
        let index = self.open_half(call)?;
        self.accept_index(index, out);
        Ok(())
    }

    /// The slot of a call of which this side's half is open.
    #[inline]
    pub(super) fn open_half(&mut self, call: CallKey) -> Result<u32, SendError> {
        let index = self.calls.resolve(call).ok_or(SendError::CallOver)?;
        if self.calls.at(index).has_own_ended() {
            return Err(SendError::HalfEnded);
        }
        Ok(index)
    }

    /// A message without END can be sent; or else its sender waits for credit.
    #[inline]
    fn check_credit(&mut self, index: u32) -> Result<(), SendError> {
        let has_credit = self.dialect().has_credit();
        let call = self.calls.at(index);
        if has_credit && call.send_credit <= 0 {
            call.own = Own::Blocked;
            return Err(SendError::Blocked);
        }
        Ok(())
    }

    #[inline]
    fn check_acceptance(&mut self, index: u32) -> Result<(), SendError> {
        let waits = self.is_client && self.dialect().waits_for_acceptance();
        if waits && self.calls.at(index).kind == Kind::OpeningStream {
            return Err(SendError::NotAccepted);
        }
        Ok(())
    }

    fn send_on_stream<P: Payload, O: Output + ?Sized>(
        &mut self,
        index: u32,
        payload: P,
        end: bool,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        check_stream_options(options)?;
        self.check_body(payload.size())?;
        self.check_acceptance(index)?;
        self.check_credit(index)?;
        let version = self.dialect();
        self.strays.expect(super::CREDIT_LEN);
        self.accept_index(index, out);
        let call = self.calls.at(index);
        (call.own, call.send_credit) = (Own::Open, call.send_credit - cost(payload.size()) as i64);
        let id = call.id;
        emit::stream_data(version, id, payload, out);
        if end {
            emit::head(version, FrameType::StreamEnd, Flags::default(), id, 0, out);
            self.calls.at(index).own = Own::Ended;
            self.after_own_end(index);
        }
        Ok(())
    }

    /// Writes STREAM_INIT_ACK, if this side owes it.
    #[inline]
    fn accept_index<O: Output + ?Sized>(&mut self, index: u32, out: &mut O) {
        let version = self.dialect();
        if self.is_client {
            return;
        }
        let call = self.calls.at(index);
        if call.kind == Kind::OpeningStream {
            call.kind = Kind::Stream;
            emit::head(version, FrameType::StreamInitAck, Flags::default(), call.id, 0, out);
        }
    }

    /// What every request of a call repeats, where that is so.
    #[inline]
    fn path(&self, index: u32) -> Option<&MethodPath> {
        if self.dialect().marks_continuation() {
            return None;
        }
        self.repeated.get(index as usize)?.as_ref()
    }

    pub(super) fn emit_more<P: Payload, O: Output + ?Sized>(
        &mut self,
        index: u32,
        flags: Flags,
        options: &Options<'_>,
        payload: P,
        out: &mut O,
    ) {
        let id = self.calls.id(index);
        emit::more(self.dialect(), id, flags, self.path(index), options, payload, out);
    }

    /// Frees or keeps the slot after the end of this side's half has been written.
    #[inline]
    fn after_own_end(&mut self, index: u32) {
        // Work that was finished pays for an abort. A failure does not: it may have cost nothing.
        self.aborts.give();
        let call = self.calls.at(index);
        if call.has_peer_ended() {
            self.free(index);
        } else if !self.is_client && call.kind == Kind::Call(Mode::ClientStream) {
            // The one response ends the call, whatever the client still sends.
            self.forget(index);
        }
    }
}

fn check_stream_options(options: &Options<'_>) -> Result<(), SendError> {
    if options.is_empty() { Ok(()) } else { Err(SendError::NoExtensions) }
}
