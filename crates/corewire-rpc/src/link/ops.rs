//! What calls do on their link.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_proto::rpc::{Code, SendError};

use super::{Entry, Kept, Link, Slot, State};
use crate::metadata::Metadata;
use crate::status::Status;

impl Link {
    /// The next message of the peer's half.
    #[inline]
    pub(crate) fn poll_next(
        &self,
        slot_index: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, Status>>> {
        let (polled, may_resume) = self.with(|state| {
            let polled = state.poll_next(slot_index, context);
            (polled, state.is_stopped)
        });
        if may_resume && polled.is_ready() {
            self.resume();
        }
        polled
    }

    /// The one message of the peer's half; then the slot is given back.
    #[inline]
    pub(crate) fn poll_reply(
        &self,
        slot_index: usize,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, Status>> {
        let mut may_resume = false;
        let taken = self.with(|state| {
            may_resume = state.is_stopped;
            let slot = state.slots.get_mut(slot_index)?;
            if slot.end.is_none() {
                match &mut slot.reader {
                    Some(waker) => waker.clone_from(context.waker()),
                    empty => *empty = Some(context.waker().clone()),
                }
                return Some(None);
            }
            state.remove(slot_index).map(Some)
        });
        let slot = match taken {
            Some(Some(slot)) => slot,
            Some(None) => return Poll::Pending,
            None => return Poll::Ready(Err(Status::closed())),
        };
        if may_resume {
            self.resume();
        }
        Poll::Ready(self.reply_of(slot))
    }

    #[inline]
    fn reply_of(&self, mut slot: Slot) -> Result<Bytes, Status> {
        if let Some(Entry { payload, .. }) = slot.pop() {
            return Ok(payload);
        }
        self.drop_if_done();
        match slot.end {
            Some(Err(status)) => Err(status),
            _ => Err(Status::new(Code::INVALID_RESPONSE, "the server ended the call without a response")),
        }
    }

    /// Sends a message once the peer has granted credit and the connection takes bytes. With `hold` it may be kept until
    /// the next one or the end, so that it can say that it is the last.
    #[inline]
    pub(crate) fn poll_send(
        &self,
        slot_index: usize,
        payload: &mut Bytes,
        hold: bool,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Status>> {
        self.with(|state| {
            ready!(state.poll_ready(slot_index, context))?;
            Poll::Ready(state.send(slot_index, std::mem::take(payload), hold))
        })
    }

    /// Sends what is held, since its sender waits.
    #[inline]
    pub(crate) fn release_held(&self, slot_index: usize) {
        self.with(|state| {
            let State { slots, machine, out, replies, .. } = state;
            if let Some(slot) = slots.get_mut(slot_index)
                && slot.is_live
                && slot.is_holding()
                && machine.poll_send(slot.key).is_ok()
                && let Some(held) = slot.take_held()
            {
                let _ = replies.send(machine, slot.key, Kept(&held), false, out);
            }
        });
    }

    /// Ends this side's half, with `last` or with what is held as the last message.
    #[inline]
    pub(crate) fn finish(&self, slot_index: usize, last: Option<Bytes>) -> Result<(), Status> {
        self.with(|state| {
            if !state.is_live(slot_index) {
                return Err(state.over(slot_index));
            }
            let State { slots, machine, out, replies, .. } = state;
            let slot = &mut slots[slot_index];
            let key = slot.key;
            let last = match (slot.take_held(), last) {
                (Some(held), Some(last)) => {
                    replies.send(machine, key, Kept(&held), false, out)?;
                    Some(last)
                }
                (held, last) => last.or(held),
            };
            let ended = match &last {
                Some(last) => replies.send(machine, key, Kept(last), true, out),
                None => replies.finish(machine, key, out),
            };
            ended?;
            replies.remove(key);
            Ok(())
        })
    }

    /// One holder fewer. The last one gives the slot back, and cancels the call if it is not over.
    #[inline]
    pub(crate) fn release_slot(&self, slot_index: usize, code: Code) {
        let is_last = {
            let state = &mut *self.state.borrow_mut();
            let Some(slot) = state.slots.get_mut(slot_index) else { return };
            slot.holders = slot.holders.saturating_sub(1);
            slot.holders == 0
        };
        if is_last {
            self.free_slot(slot_index, code);
        }
    }

    fn free_slot(&self, slot_index: usize, code: Code) {
        let slot = self.with(|state| {
            let mut slot = state.remove(slot_index)?;
            if !slot.is_watched() {
                state.recycle(&mut slot);
            }
            if slot.is_live {
                // Nothing happens if both halves have ended.
                let _ = state.machine.cancel(slot.key, code, "", &mut state.out);
            }
            Some(slot)
        });
        // Wakers and payloads are dropped outside of the borrow.
        if let Some(mut slot) = slot {
            slot.wake_reader();
            slot.tell_end();
            drop(slot);
            self.resume();
            self.drop_if_done();
        }
    }

    /// What came with the first frame of the peer's half, and with its last one.
    pub(crate) fn metadata(&self, slot_index: usize) -> (Metadata, Metadata) {
        let state = self.state.borrow();
        let slot = state.slots.get(slot_index);
        slot.map_or_else(Default::default, |slot| (slot.header().clone(), slot.trailer().clone()))
    }

    /// Nobody takes the peer's messages any more: those that came, and those that come, give their room back.
    pub(crate) fn stop_receiving(&self, slot_index: usize) {
        self.with(|state| {
            let Some(slot) = state.slots.get_mut(slot_index) else { return };
            slot.discards_incoming = true;
            while state.pop(slot_index).is_some() {}
        });
        self.resume();
    }
}

impl State {
    /// Takes the next message, which gives its room back.
    #[inline]
    fn pop(&mut self, slot_index: usize) -> Option<Bytes> {
        let slot = self.slots.get_mut(slot_index)?;
        let Entry { payload, cost, returns_credit } = slot.pop()?;
        self.held.unqueue(cost);
        if returns_credit {
            self.machine.release(slot.key, payload.len(), &mut self.out);
        }
        Some(payload)
    }

    #[inline]
    fn poll_next(&mut self, slot_index: usize, context: &Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if let Some(payload) = self.pop(slot_index) {
            return Poll::Ready(Some(Ok(payload)));
        }
        let Some(slot) = self.slots.get_mut(slot_index) else { return Poll::Ready(None) };
        match &slot.end {
            Some(Ok(())) => Poll::Ready(None),
            // Told once; then the stream is at its end.
            Some(Err(status)) => {
                let status = status.clone();
                slot.note_failure(status.code());
                slot.end = Some(Ok(()));
                Poll::Ready(Some(Err(status)))
            }
            None => {
                match &mut slot.reader {
                    Some(waker) => waker.clone_from(context.waker()),
                    empty => *empty = Some(context.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Ready when a message can be sent.
    #[inline]
    fn poll_ready(&mut self, slot_index: usize, context: &Context<'_>) -> Poll<Result<(), Status>> {
        if !self.is_live(slot_index) {
            return Poll::Ready(Err(self.over(slot_index)));
        }
        let State { slots, machine, out, waiting, .. } = self;
        let slot = &mut slots[slot_index];
        if out.is_over {
            waiting.add(context.waker());
            return Poll::Pending;
        }
        match machine.poll_send(slot.key) {
            Ok(()) => Poll::Ready(Ok(())),
            Err(SendError::Blocked | SendError::NotAccepted) => {
                // What is held goes first, as soon as there is credit.
                slot.set_writer(context.waker().clone());
                Poll::Pending
            }
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }

    /// Sends a message after [`poll_ready`](Self::poll_ready).
    #[inline]
    fn send(&mut self, slot_index: usize, payload: Bytes, hold: bool) -> Result<(), Status> {
        let State { slots, machine, out, replies, .. } = self;
        let slot = &mut slots[slot_index];
        if let Some(held) = slot.take_held() {
            replies.send(machine, slot.key, Kept(&held), false, out)?;
            // The one before may have taken the last of the credit.
            if machine.poll_send(slot.key).is_err() {
                slot.hold(payload);
                return Ok(());
            }
        }
        if hold {
            slot.hold(payload);
            return Ok(());
        }
        Ok(replies.send(machine, slot.key, Kept(&payload), false, out)?)
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

    #[inline]
    fn is_live(&self, slot_index: usize) -> bool {
        self.slots.get(slot_index).is_some_and(|slot| slot.is_live)
    }

    /// Why a call that is over takes no more.
    fn over(&self, slot_index: usize) -> Status {
        match self.slots.get(slot_index).map(|slot| &slot.end) {
            Some(Some(Err(status))) => status.clone(),
            _ => match &self.dead {
                Some(status) => status.clone(),
                None => Status::cancelled("the call is over"),
            },
        }
    }
}
