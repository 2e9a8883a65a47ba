//! Messages after the first, and the clean end.

use super::{CallKey, Connection, cost, emit};
use crate::rpc::error::SendError;
use crate::rpc::extensions::Options;
use crate::rpc::header::{Flags, FrameType, Mode, Version};
use crate::rpc::output::{Output, Payload};

impl Connection {
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
        self.send_with(call, payload, end, &Options::default(), out)
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
        let (index, version) = self.open_half(call)?;
        let call = self.calls.at(index);
        if call.is_stream {
            return self.send_on_stream(index, payload, end, options, out);
        }
        let end = end || !(self.is_client || call.mode.streams_responses());
        if !end && version == Version::V2 && call.send_credit <= 0 {
            call.is_blocked = true;
            return Err(SendError::Blocked);
        }
        let block_len = self.check_options(options)?;
        self.check_body(block_len + 2 + payload.size() + self.names_len(index))?;
        let call = self.calls.at(index);
        call.sent_any = true;
        if end {
            call.sent_end = true;
        } else {
            call.send_credit -= cost(payload.size()) as i64;
            self.strays.expect(super::CREDIT_LEN);
        }
        let call = self.calls.at(index);
        let flags = if end { call.mode.flags().with(Flags::END) } else { call.mode.flags() };
        let id = call.id;
        if self.is_client {
            self.emit_more_request(index, flags, options, payload, out);
        } else {
            emit::response(version, id, flags, options, payload, out);
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
    pub fn poll_send(&mut self, call: CallKey) -> Result<(), SendError> {
        let (index, version) = self.open_half(call)?;
        let is_client = self.is_client;
        let call = self.calls.at(index);
        match version {
            Version::V1 if is_client && call.is_stream && !call.is_accepted => Err(SendError::NotAccepted),
            Version::V2 if call.send_credit <= 0 => {
                call.is_blocked = true;
                Err(SendError::Blocked)
            }
            _ => Ok(()),
        }
    }

    /// Whether a response to a call has been sent; `None` once the response half has ended (server). Metadata goes with the
    /// first response as its head, with the last as its trailer.
    pub fn has_responded(&mut self, call: CallKey) -> Option<bool> {
        let (index, _) = self.open_half(call).ok()?;
        Some(self.calls.at(index).sent_any)
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
        let (index, version) = self.open_half(call)?;
        let block_len = self.check_options(options)?;
        self.check_body(block_len + 2)?;
        let call = self.calls.at(index);
        let (id, mode) = (call.id, call.mode);
        if call.is_stream {
            self.check_stream_options(options)?;
            self.accept_index(index, out);
            emit::head(version, FrameType::StreamEnd, Flags::default(), id, 0, out);
        } else if self.is_client {
            let flags = mode.flags().with(end_flags(version));
            self.emit_more_request(index, flags, options, &[], out);
        } else if mode.streams_responses() {
            emit::response(version, id, mode.flags().with(end_flags(version)), options, &[], out);
        } else {
            return Err(SendError::MessageNeeded);
        }
        self.calls.at(index).sent_end = true;
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
        let (index, _) = self.open_half(call)?;
        self.accept_index(index, out);
        Ok(())
    }

    /// Gives back the room of a message without `end` (or of a first request without it) that the consumer has
    /// taken, by its payload's length. In version 2 this is what grants the peer new credit, half a window at a time.
    pub fn release<O: Output + ?Sized>(&mut self, call: CallKey, payload_len: usize, out: &mut O) {
        let Some(index) = self.calls.resolve(call) else { return };
        let window = self.settings.window;
        let call = self.calls.at(index);
        let cost = cost(payload_len).min(call.unreleased);
        call.unreleased -= cost;
        if call.is_over_window && call.unreleased <= u64::from(window / 2) {
            call.is_over_window = false;
            self.over_window -= 1;
        }
        self.shrink_buffered(cost);
        if self.is_v2() {
            self.grant(index, cost, out);
        }
    }

    /// Counts `cost` towards the next CREDIT, and sends it when half a window has come together.
    pub(super) fn grant<O: Output + ?Sized>(&mut self, index: u32, cost: u64, out: &mut O) {
        let threshold = (self.settings.window / 2).max(1);
        let call = self.calls.at(index);
        if call.received_end {
            return;
        }
        call.ungranted = call.ungranted.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
        if call.ungranted >= threshold {
            let amount = std::mem::take(&mut call.ungranted);
            call.receive_credit += i64::from(amount);
            emit::credit(call.id, amount, out);
        }
    }

    /// The slot of a call of which this side's half is open.
    #[inline]
    pub(super) fn open_half(&mut self, call: CallKey) -> Result<(u32, Version), SendError> {
        let index = self.calls.resolve(call).ok_or(SendError::CallOver)?;
        let version = self.version.ok_or(SendError::CallOver)?;
        if self.calls.at(index).sent_end {
            return Err(SendError::HalfEnded);
        }
        Ok((index, version))
    }

    fn send_on_stream<P: Payload, O: Output + ?Sized>(
        &mut self,
        index: u32,
        payload: P,
        end: bool,
        options: &Options<'_>,
        out: &mut O,
    ) -> Result<(), SendError> {
        let version = self.version.ok_or(SendError::CallOver)?;
        self.check_stream_options(options)?;
        self.check_body(payload.size())?;
        let is_client = self.is_client;
        let call = self.calls.at(index);
        if version == Version::V1 {
            if is_client && !call.is_accepted {
                return Err(SendError::NotAccepted);
            }
        } else if call.send_credit <= 0 {
            call.is_blocked = true;
            return Err(SendError::Blocked);
        }
        call.send_credit -= cost(payload.size()) as i64;
        let id = call.id;
        self.strays.expect(super::CREDIT_LEN);
        self.accept_index(index, out);
        emit::head(version, FrameType::StreamData, Flags::default(), id, payload.size(), out);
        payload.write_to(out);
        if end {
            emit::head(version, FrameType::StreamEnd, Flags::default(), id, 0, out);
            self.calls.at(index).sent_end = true;
            self.after_own_end(index);
        }
        Ok(())
    }

    fn check_stream_options(&self, options: &Options<'_>) -> Result<(), SendError> {
        if options.is_empty() {
            return Ok(());
        }
        Err(SendError::NoExtensions)
    }

    /// Writes STREAM_INIT_ACK, if this side owes it.
    #[inline]
    fn accept_index<O: Output + ?Sized>(&mut self, index: u32, out: &mut O) {
        let is_client = self.is_client;
        let version = self.version.unwrap_or(Version::V1);
        let call = self.calls.at(index);
        if call.is_stream && !is_client && !call.is_accepted {
            call.is_accepted = true;
            emit::head(version, FrameType::StreamInitAck, Flags::default(), call.id, 0, out);
        }
    }

    /// What version 1 repeats in every request of a client that streams.
    #[inline]
    fn names_len(&self, index: u32) -> usize {
        self.path(index).len()
    }

    fn path(&self, index: u32) -> &[u8] {
        self.paths.get(index as usize).and_then(Option::as_ref).map_or(&[], |path| path.wire())
    }

    pub(super) fn emit_more_request<P: Payload, O: Output + ?Sized>(
        &mut self,
        index: u32,
        flags: Flags,
        options: &Options<'_>,
        payload: P,
        out: &mut O,
    ) {
        let id = self.calls.at(index).id;
        match self.version {
            Some(Version::V2) => {
                emit::request(Version::V2, id, flags.with(Flags::CONT), options, &[], payload, out);
            }
            _ => emit::request(Version::V1, id, flags, options, self.path(index), payload, out),
        }
    }

    /// Frees or keeps the slot after the end of this side's half has been written.
    #[inline]
    fn after_own_end(&mut self, index: u32) {
        let (is_client, is_v2) = (self.is_client, self.is_v2());
        // Work that was finished pays for an abort. A failure does not: it may have cost nothing.
        self.aborts.give();
        let call = self.calls.at(index);
        if call.received_end {
            self.free(index);
        } else if !is_client && call.mode == Mode::ClientStream {
            // The one response ends the call, whatever the client still sends.
            if is_v2 { self.free(index) } else { self.abandon(index) }
        }
    }
}

/// The end of a half without a message.
const fn end_flags(version: Version) -> Flags {
    match version {
        Version::V1 => Flags::END,
        Version::V2 => Flags::END.with(Flags::EMPTY),
    }
}
