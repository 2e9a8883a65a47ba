//! What arrives for calls that are kept, and what ends them.

use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, CallKey, Code, ConnectionError, Event, Extensions, Origin, Reassembly, SendError as RefusedSend,
};
use corewire_runtime::{CloseReason, Connection};

use super::{Kept, Link, Retained, State};
use crate::metadata::Metadata;
use crate::status::Status;

impl Link {
    /// Reads what has arrived; whether it stopped before the end of that. `own` takes the events that are not those of
    /// calls that are kept.
    #[inline]
    pub(crate) fn receive(
        &self,
        connection: &Connection,
        inbox: &mut Reassembly,
        chunk: &Bytes,
        mut own: impl FnMut(Event<'_>, Origin<'_>),
    ) -> bool {
        let now = Duration::from_millis(connection.now_ms());
        {
            let state = &mut *self.state.borrow_mut();
            if state.dead.is_some() {
                return false;
            }
            (state.is_receiving, state.is_stopped, state.has_heard) = (true, false, true);
            state.retainer.begin(chunk);
        }
        let mut is_deferred = false;
        let received = inbox.drive(chunk, |input, origin| {
            let mut rest = input;
            let event = {
                let state = &mut *self.state.borrow_mut();
                if state.must_stop() {
                    state.is_stopped = true;
                    return Ok(Advance::Stop(0));
                }
                let event = state.machine.receive(&mut rest, now, &mut state.out)?;
                let consumed = input.len() - rest.len();
                match event {
                    None => return Ok(Advance::Needs { consumed, total: state.machine.needed() }),
                    Some(event) => state.on_event(event, origin),
                }
            };
            if let Some(event) = event {
                own(event, origin);
            }
            let consumed = input.len() - rest.len();
            if !connection.frame_done(consumed) {
                // Others have their turn.
                is_deferred = true;
                return Ok(Advance::GiveBack(consumed));
            }
            Ok(Advance::Consumed(consumed))
        });
        if is_deferred
            && let Ok(rest) = &received
            && !(rest.is_empty() && inbox.is_empty())
        {
            connection.defer(rest.clone());
        }
        self.after_receive(connection, received.map(drop), inbox.capacity())
    }

    /// A handle that outlives the chunk on a payload that lies in it.
    #[inline]
    pub(crate) fn retain(&self, payload: &[u8], origin: Origin<'_>) -> Retained {
        self.state.borrow_mut().retainer.retain(payload, origin)
    }

    /// The same for one that is most likely dropped before the next receive.
    #[inline]
    pub(crate) fn borrow(&self, payload: &[u8], origin: Origin<'_>) -> Retained {
        self.state.borrow_mut().retainer.borrow(payload, origin)
    }

    fn after_receive(
        &self,
        connection: &Connection,
        received: Result<(), ConnectionError>,
        unread: usize,
    ) -> bool {
        let is_stopped = self.with(|state| {
            (state.is_receiving, state.woken) = (false, None);
            state.retainer.end();
            state.held.set_partial(connection, unread);
            if let Err(error) = &received {
                let State { machine, out, .. } = state;
                machine.abort(error, out);
            }
            // What handlers wrote is in cache: the batch is over.
            state.out.flush();
            state.is_stopped
        });
        if let Err(error) = received {
            tracing::debug!(%error, "a peer broke the protocol");
            connection.close_with(CloseReason::Protocol(error.to_string()));
            return false;
        }
        if is_stopped {
            connection.pause_receive();
            // What stopped it may be over already: a handler can have taken all since.
            self.resume();
        } else {
            connection.resume_receive();
        }
        is_stopped
    }

    /// The connection is gone: every call that is left ends, once.
    pub(crate) fn die(&self, why: &Status) {
        let tasks: Vec<_> = {
            let state = &mut *self.state.borrow_mut();
            state.dead = Some(why.clone());
            state.held.drop_partial();
            while let Some(key) = state.machine.next_lost() {
                if let Some(slot) = state.slot_of(key) {
                    slot.is_lost(why.clone());
                }
            }
            for (_, slot) in &mut state.slots {
                if slot.is_live {
                    slot.is_lost(why.clone());
                }
            }
            state.waiting.take().for_each(Waker::wake);
            state.slots.iter_mut().filter_map(|(_, slot)| slot.take_task()).collect()
        };
        tasks.into_iter().for_each(corewire_runtime::JoinHandle::abort);
        self.drop_if_done();
    }

    /// The peer will send nothing more: what it has not ended fails, and this side's halves go on.
    pub(crate) fn end_receiving(&self, why: &Status) {
        self.with(|state| {
            state.machine.end_receiving();
            for (_, slot) in &mut state.slots {
                if slot.is_live && slot.end.is_none() {
                    let deadline_ms = slot.deadline_ms;
                    slot.end(Err(why.clone()));
                    slot.deadline_ms = deadline_ms;
                }
            }
        });
    }

    /// Reading was stopped before the end of what has arrived.
    pub(crate) fn is_stopped(&self) -> bool {
        self.state.borrow().is_stopped
    }

    /// The send queue has room again.
    pub(crate) fn drained(&self) {
        {
            let state = &mut *self.state.borrow_mut();
            state.out.is_over = false;
            state.waiting.take().for_each(Waker::wake);
        }
        self.resume();
    }

    /// Ends the calls whose time is over; gives the time at which the next one's is.
    pub(crate) fn expire(&self) -> u64 {
        let mut tasks = Vec::new();
        let next = self.with(|state| {
            state.timer_at = u64::MAX;
            let now = state.now_ms();
            let State { slots, machine, out, .. } = state;
            let mut next = u64::MAX;
            for (_, slot) in slots {
                if slot.deadline_ms > now {
                    next = next.min(slot.deadline_ms);
                    continue;
                }
                slot.deadline_ms = u64::MAX;
                let status = Status::deadline();
                let failed = machine.fail(slot.key, &Code::DEADLINE_EXCEEDED.into(), out);
                if failed == Err(RefusedSend::NotAServer) {
                    let _ = machine.cancel(slot.key, Code::DEADLINE_EXCEEDED, "", out);
                }
                slot.is_lost(status);
                tasks.extend(slot.take_task());
            }
            next
        });
        tasks.into_iter().for_each(corewire_runtime::JoinHandle::abort);
        // What they had not taken counts no more.
        self.resume();
        next
    }
}

impl State {
    /// Takes the events of calls that are kept; gives back the others.
    #[inline]
    fn on_event<'a>(&mut self, event: Event<'a>, origin: Origin<'_>) -> Option<Event<'a>> {
        match event {
            Event::Message { call, payload, end, ref extensions } => {
                if !extensions.is_empty() {
                    self.on_metadata(call, extensions, end, origin);
                }
                self.on_message(call, payload, end, origin);
            }
            Event::Ended { call, ref extensions } => {
                self.on_metadata(call, extensions, true, origin);
                self.end(call, Ok(()));
            }
            Event::Failed { call, ref error } => {
                self.on_metadata(call, &error.extensions, true, origin);
                if let Some(slot_index) = self.slot_index(call) {
                    self.lend(slot_index, error.message.len() + error.details.len());
                    let slot = &mut self.slots[slot_index];
                    slot.is_live = false;
                    slot.end(Err(Status::from_wire(error)));
                    slot.wake_writer();
                }
            }
            Event::Cancelled { call, ref cancel } => self.on_cancelled(call, cancel.code, cancel.reason),
            Event::Writable { call } | Event::Accepted { call } => self.on_writable(call),
            Event::Settings(_) => {
                while let Some(call) = self.machine.next_writable() {
                    self.on_writable(call);
                }
            }
            Event::GoingAway(ref why) => {
                // A server that calls this side faulty would do so again.
                let is_fault = matches!(why.code, Code::PROTOCOL_ERROR | Code::FLOW_CONTROL_ERROR);
                while let Some(call) = self.machine.next_refused() {
                    if let Some(slot) = self.slot_of(call) {
                        slot.is_lost(match is_fault {
                            true => Status::new(why.code, why.reason.to_owned()),
                            false => Status::unavailable("the server is going away").unprocessed(),
                        });
                    }
                }
                return Some(event);
            }
            _ => return Some(event),
        }
        None
    }

    #[cold]
    fn on_metadata(&mut self, call: CallKey, extensions: &Extensions<'_>, is_last: bool, origin: Origin<'_>) {
        let Some(slot_index) = self.slot_index(call) else { return };
        let has_received = self.slots.get(slot_index).is_none_or(|slot| slot.has_received);
        // Between the first and the last frame it means nothing.
        if extensions.is_empty() || (has_received && !is_last) {
            return;
        }
        let Retained { payload, cost } = self.retainer.retain(extensions.entries(), origin);
        self.slots[slot_index].keep_metadata(Metadata::received(payload), is_last);
        self.lend(slot_index, cost as usize);
    }

    #[inline]
    fn on_message(&mut self, call: CallKey, payload: &[u8], end: bool, origin: Origin<'_>) {
        if let Some(slot_index) = self.slot_index(call)
            && let Some(slot) = self.slots.get_mut(slot_index)
        {
            if !slot.discards_incoming {
                let message = self.retainer.retain(payload, origin);
                self.push(slot_index, message, !end);
                let slot = &mut self.slots[slot_index];
                if end {
                    slot.end.get_or_insert(Ok(()));
                }
                if let Some(reader) = slot.reader.take() {
                    self.wake_once(reader);
                }
                return;
            }
            if end {
                slot.end(Ok(()));
            }
        }
        if !end {
            self.machine.release(call, payload.len(), &mut self.out);
        }
    }

    #[inline]
    fn wake_once(&mut self, waker: Waker) {
        if !self.woken.as_ref().is_some_and(|woken| woken.will_wake(&waker)) {
            waker.wake_by_ref();
            self.woken = Some(waker);
        }
    }

    fn on_writable(&mut self, call: CallKey) {
        let Some(slot_index) = self.slot_index(call) else { return };
        let Some(slot) = self.slots.get_mut(slot_index) else { return };
        if let Some(held) = slot.take_held() {
            let _ = self.replies.send(&mut self.machine, call, Kept(&held), false, &mut self.out);
        }
        slot.wake_writer();
    }

    fn end(&mut self, call: CallKey, how: Result<(), Status>) {
        if let Some(slot) = self.slot_of(call) {
            slot.end(how);
        }
    }

    fn on_cancelled(&mut self, call: CallKey, code: Code, reason: &str) {
        let Some(slot) = self.slot_of(call) else { return };
        let code = if code.is_ok() { Code::CANCELLED } else { code };
        let reason = if reason.is_empty() { "the peer cancelled the call" } else { reason };
        slot.is_lost(Status::new(code, reason.to_owned()));
        if let Some(task) = slot.take_task() {
            // Its turn to be dropped comes after this: nothing of it runs here.
            task.abort();
        }
        if let Some(slot_index) = self.slot_index(call) {
            self.lend(slot_index, reason.len());
        }
    }
}
