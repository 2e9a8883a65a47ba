//! What calls do on their link.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_proto::rpc::{CallKey, Code, SendError};

use super::{Entry, Incoming, Kept, Link, Slot, State};
use crate::metadata::Metadata;
use crate::status::Status;

impl Link {
    /// The next message of the peer's half.
    #[inline]
    pub(crate) fn poll_next(
        &self,
        call: CallKey,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        let (polled, may_resume) = self.with(|state| {
            let polled = state.poll_next(call, context);
            (polled, state.is_stopped)
        });
        if may_resume && polled.is_ready() {
            self.resume();
        }
        polled
    }

    /// The one message of the peer's half; then the slot is given back.
    #[inline]
    pub(crate) fn poll_reply(&self, call: CallKey, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let (reply, may_resume) = self.with(|state| (state.poll_reply(call, context), state.is_stopped));
        let reply = ready!(reply);
        if may_resume {
            self.resume();
        }
        Poll::Ready(match reply {
            Reply::Message(payload) => Ok(payload),
            Reply::Other => self.take_reply(call),
        })
    }

    /// What a call that has ended came to, if that is not a message alone.
    #[cold]
    fn take_reply(&self, call: CallKey) -> Result<Bytes, Status> {
        let Some(mut slot) = self.with(|state| state.remove(call)) else { return Err(Status::closed()) };
        if let Some(Entry { payload, .. }) = slot.pop() {
            return Ok(payload);
        }
        self.drop_if_done();
        match slot.incoming {
            Incoming::Ended(Err(status)) => Err(status),
            _ => Err(Status::new(Code::INVALID_RESPONSE, "the server ended the call without a response")),
        }
    }

    /// Sends a message once the peer has granted credit and the connection takes bytes. With `hold` it may be kept until
    /// the next one or the end, so that it can say that it is the last.
    #[inline]
    pub(crate) fn poll_send(
        &self,
        call: CallKey,
        payload: &mut Bytes,
        hold: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Status>> {
        self.with(|state| {
            if !hold && !state.out.is_over && !state.slot(call).is_some_and(|slot| slot.is_holding()) {
                return state.poll_send_now(call, payload, context);
            }
            ready!(state.poll_ready(call, context))?;
            Poll::Ready(state.send(call, std::mem::take(payload), hold))
        })
    }

    /// Sends what is held, since its sender waits.
    #[inline]
    pub(crate) fn release_held(&self, call: CallKey) {
        self.with(|state| {
            if state.slot(call).is_some_and(|slot| slot.is_holding()) && state.machine.poll_send(call).is_ok()
            {
                // A call that is over takes nothing.
                let _ = state.send_held(call);
            }
        });
    }

    /// Ends this side's half, with `last` or with what is held as the last message.
    #[inline]
    pub(crate) fn finish(&self, call: CallKey, last: Option<Bytes>) -> Result<(), Status> {
        self.with(|state| {
            if !state.machine.is_live(call) {
                return Err(state.over(call));
            }
            let held = state.slot(call).and_then(Slot::take_held);
            let last = match (held, last) {
                (Some(held), Some(last)) => {
                    state.send_message(call, Kept(&held), false)?;
                    Some(last)
                }
                (held, last) => last.or(held),
            };
            match &last {
                Some(last) => state.send_message(call, Kept(last), true)?,
                None => state.send_end(call)?,
            }
            state.answered(call);
            Ok(())
        })
    }

    /// One holder fewer. The last one gives the slot back, and cancels the call if it is not over.
    #[inline]
    pub(crate) fn release_slot(&self, call: CallKey, code: Code) {
        let is_last = {
            let state = &mut *self.state.borrow_mut();
            let Some(slot) = state.slot(call) else { return };
            slot.holders = slot.holders.saturating_sub(1);
            slot.holders == 0
        };
        if is_last {
            self.free_slot(call, code);
        }
    }

    fn free_slot(&self, call: CallKey, code: Code) {
        let slot = self.with(|state| {
            state.wake_reader(call);
            let mut slot = state.remove(call)?;
            if !slot.is_watched() {
                state.recycle(&mut slot);
            }
            // Nothing happens if the call is over.
            let _ = state.machine.cancel(call, code, "", &mut state.out);
            Some(slot)
        });
        // Payloads are dropped outside of the borrow.
        if let Some(mut slot) = slot {
            slot.tell_end();
            drop(slot);
            self.resume();
            self.drop_if_done();
        }
    }

    /// What came with the first frame of the peer's half, and with its last one.
    pub(crate) fn metadata(&self, call: CallKey) -> (Metadata, Metadata) {
        let state = self.state.borrow();
        let slot = state.machine.state(call);
        slot.map_or_else(Default::default, |slot| (slot.header().clone(), slot.trailer().clone()))
    }

    /// Nobody takes the peer's messages any more: those that came, and those that come, give their room back.
    pub(crate) fn stop_receiving(&self, call: CallKey) {
        self.with(|state| {
            let Some(slot) = state.slot(call) else { return };
            if !slot.incoming.has_ended() {
                slot.incoming = Incoming::Discarded;
            }
            while state.pop(call).is_some() {}
        });
        self.resume();
    }
}

/// What is there of a call of one response.
enum Reply {
    Message(Bytes),
    /// An error, or a message and more: the slot is still there.
    Other,
}

impl State {
    /// Ready once the peer's half has ended. The slot of a call that was answered by a message, and has nothing else, is given
    /// back.
    #[inline]
    fn poll_reply(&mut self, call: CallKey, context: &Context<'_>) -> Poll<Reply> {
        let Some(slot) = self.machine.state_mut(call) else { return Poll::Ready(Reply::Other) };
        if !slot.incoming.has_ended() {
            self.wait_for_peer(call, context);
            return Poll::Pending;
        }
        let Some(Entry { payload, cost, .. }) = slot.take_only() else { return Poll::Ready(Reply::Other) };
        self.machine.drop_state(call);
        self.held.unqueue(cost);
        Poll::Ready(Reply::Message(payload))
    }

    /// Takes the next message, which gives its room back.
    #[inline]
    fn pop(&mut self, call: CallKey) -> Option<Bytes> {
        let entry = self.slot(call)?.pop()?;
        Some(self.taken(call, entry))
    }

    /// A message is taken: it gives its room back.
    #[inline]
    fn taken(&mut self, call: CallKey, Entry { payload, cost, returns_credit }: Entry) -> Bytes {
        self.held.unqueue(cost);
        if returns_credit {
            self.machine.release(call, payload.len(), &mut self.out);
        }
        payload
    }

    #[inline]
    fn poll_next(&mut self, call: CallKey, context: &Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        let Some(slot) = self.machine.state_mut(call) else { return Poll::Ready(None) };
        if let Some(entry) = slot.pop() {
            return Poll::Ready(Some(Ok(self.taken(call, entry))));
        }
        match &slot.incoming {
            Incoming::Ended(Ok(())) => Poll::Ready(None),
            // Told once; then the stream is at its end.
            Incoming::Ended(Err(status)) => {
                let status = status.clone();
                slot.note_failure(status.code());
                slot.incoming = Incoming::Ended(Ok(()));
                Poll::Ready(Some(Err(status)))
            }
            _ => {
                self.tasks.update(&mut slot.reader, context.waker());
                Poll::Pending
            }
        }
    }

    /// Sends a message that need not be held, if none is.
    #[inline]
    fn poll_send_now(
        &mut self,
        call: CallKey,
        payload: &Bytes,
        context: &Context<'_>,
    ) -> Poll<Result<(), Status>> {
        match self.send_message(call, Kept(payload), false) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(error) => self.refused(call, error, context),
        }
    }

    /// Why a message cannot be sent; or else its sender is woken when it can.
    #[cold]
    fn refused(
        &mut self,
        call: CallKey,
        error: SendError,
        context: &Context<'_>,
    ) -> Poll<Result<(), Status>> {
        match error {
            SendError::Blocked | SendError::NotAccepted => {
                if let Some(slot) = self.slot(call) {
                    slot.set_writer(context.waker().clone());
                }
                Poll::Pending
            }
            SendError::CallOver => Poll::Ready(Err(self.over(call))),
            error => Poll::Ready(Err(error.into())),
        }
    }

    /// Ready when a message can be sent.
    #[inline]
    fn poll_ready(&mut self, call: CallKey, context: &Context<'_>) -> Poll<Result<(), Status>> {
        if !self.machine.is_live(call) {
            return Poll::Ready(Err(self.over(call)));
        }
        if self.out.is_over {
            self.waiting.add(context.waker());
            return Poll::Pending;
        }
        match self.machine.poll_send(call) {
            Ok(()) => Poll::Ready(Ok(())),
            // What is held goes first, as soon as there is credit.
            Err(error) => self.refused(call, error, context),
        }
    }

    /// Sends a message after [`poll_ready`](Self::poll_ready).
    #[inline]
    fn send(&mut self, call: CallKey, payload: Bytes, hold: bool) -> Result<(), Status> {
        // What is held goes before, and may take the last of the credit.
        let is_blocked = self.send_held(call)? && self.machine.poll_send(call).is_err();
        if hold || is_blocked {
            if let Some(slot) = self.slot(call) {
                slot.hold(payload);
            }
            return Ok(());
        }
        Ok(self.send_message(call, Kept(&payload), false)?)
    }

    /// Sends what is held, if anything is.
    #[inline]
    pub(super) fn send_held(&mut self, call: CallKey) -> Result<bool, SendError> {
        let Some(held) = self.slot(call).and_then(Slot::take_held) else { return Ok(false) };
        self.send_message(call, Kept(&held), false)?;
        Ok(true)
    }
}

impl State {
    /// Whether the send queue has no room; then the task is woken when it has.
    #[inline]
    pub(crate) fn waits(&mut self, context: &Context<'_>) -> bool {
        if self.out.is_over {
            self.waiting.add(context.waker());
        }
        self.out.is_over
    }

    /// Why a call that is over takes no more.
    fn over(&self, call: CallKey) -> Status {
        match (self.machine.state(call).map(|slot| &slot.incoming), &self.closed) {
            (Some(Incoming::Ended(Err(status))), _) | (_, Some(status)) => status.clone(),
            _ => Status::cancelled("the call is over"),
        }
    }
}
