//! What arrives for calls that are kept, and what ends them.

use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{
    Advance, CallKey, Code, ConnectionError, Event, Extensions, Origin, Reassembly, SendError as RefusedSend,
};
use corewire_runtime::{CloseReason, Connection};

use super::{Entry, Incoming, Link, Retained, Slot, State};
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
            if state.closed.is_some() {
                return false;
            }
            (state.is_receiving, state.is_stopped, state.has_received) = (true, false, true);
            state.tasks.next_batch();
            state.retainer.begin(chunk);
        }
        let (mut is_deferred, mut has_moved) = (false, false);
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
                has_moved |= consumed > 0;
                match event {
                    None => return Ok(Advance::Needs { consumed, total: state.machine.needed() }),
                    Some(Event::Message { call, payload, end, ref extensions }) => {
                        if !extensions.is_empty() {
                            state.on_metadata(call, extensions, end, origin);
                        }
                        state.on_message(call, payload, end, origin);
                        None
                    }
                    Some(event @ (Event::Request { .. } | Event::StreamOpened { .. })) => Some(event),
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
        let is_stopped = self.after_receive(connection, received.map(drop), inbox.capacity());
        // What waits for its turn is not a frame whose rest the peer owes.
        let is_cut_off = !inbox.is_empty() && !is_deferred && !is_stopped;
        self.state.borrow_mut().progress.tell(connection, is_cut_off, has_moved);
        is_stopped
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
            state.is_receiving = false;
            state.tasks.next_batch();
            state.retainer.end();
            state.held.set_partial(connection, unread + state.machine.method_bytes());
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
    pub(crate) fn on_closed(&self, why: &Status) {
        let tasks: Vec<_> = {
            let state = &mut *self.state.borrow_mut();
            state.closed = Some(why.clone());
            state.out.close();
            state.held.drop_partial();
            while let Some(call) = state.machine.next_lost() {
                state.lose(call, why.clone());
            }
            state.waiting.take().for_each(Waker::wake);
            state.give_up_places();
            let State { machine, tasks, .. } = state;
            let close = |slot: &mut Slot| {
                if !slot.incoming.has_ended() {
                    slot.lose(why.clone());
                    slot.reader.take().into_iter().for_each(|task| tasks.wake(task));
                }
                slot.take_task()
            };
            machine.states_mut().map(|(_, slot)| slot).filter_map(close).collect()
        };
        tasks.into_iter().for_each(corewire_runtime::JoinHandle::abort);
        self.drop_if_done();
    }

    /// The peer will send nothing more: what it has not ended fails, and this side's halves go on.
    pub(crate) fn end_receiving(&self, why: &Status) {
        self.with(|state| {
            state.machine.end_receiving();
            let State { machine, tasks, .. } = state;
            for (_, slot) in machine.states_mut().filter(|(_, slot)| !slot.incoming.has_ended()) {
                // The deadline goes on: it is that of this side's half too.
                slot.incoming = Incoming::Ended(Err(why.clone()));
                slot.reader.take().into_iter().for_each(|task| tasks.wake(task));
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
            let (mut next, mut due) = (u64::MAX, Vec::new());
            for (call, slot) in state.machine.states_mut() {
                if slot.deadline_ms > now {
                    next = next.min(slot.deadline_ms);
                } else {
                    slot.deadline_ms = u64::MAX;
                    tasks.extend(slot.take_task());
                    due.push(call);
                }
            }
            for call in due {
                let State { machine, out, .. } = state;
                let failed = machine.fail(call, &Code::DEADLINE_EXCEEDED.into(), out);
                if failed == Err(RefusedSend::NotAServer) {
                    let _ = machine.cancel(call, Code::DEADLINE_EXCEEDED, "", out);
                }
                state.lose(call, Status::deadline());
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
    /// Takes the other events of calls that are kept; gives back those of the connection.
    fn on_event<'a>(&mut self, event: Event<'a>, origin: Origin<'_>) -> Option<Event<'a>> {
        match event {
            Event::Ended { call, ref extensions } => {
                self.on_metadata(call, extensions, true, origin);
                self.end(call, Ok(()));
            }
            Event::Failed { call, ref error } => {
                self.on_metadata(call, &error.extensions, true, origin);
                self.lend(call, error.message.len() + error.details.len());
                self.end(call, Err(Status::from_wire(error)));
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
                    let why = match is_fault {
                        true => Status::new(why.code, why.reason.to_owned()),
                        false => Status::unavailable("the server is going away").unprocessed(),
                    };
                    self.lose(call, why);
                }
                return Some(event);
            }
            _ => return Some(event),
        }
        None
    }

    #[cold]
    fn on_metadata(&mut self, call: CallKey, extensions: &Extensions<'_>, is_last: bool, origin: Origin<'_>) {
        let Some(slot) = self.machine.state(call) else { return };
        // Between the first and the last frame it means nothing.
        if extensions.is_empty() || !(is_last || matches!(slot.incoming, Incoming::Silent)) {
            return;
        }
        let Retained { payload, cost } = self.retainer.retain(extensions.entries(), origin);
        if let Some(slot) = self.machine.state_mut(call) {
            slot.keep_metadata(Metadata::received(payload), is_last);
        }
        self.lend(call, cost as usize);
    }

    #[inline]
    fn on_message(&mut self, call: CallKey, payload: &[u8], end: bool, origin: Origin<'_>) {
        match self.machine.state_mut(call) {
            Some(slot) if !matches!(slot.incoming, Incoming::Discarded) => {
                let Retained { payload, cost } = self.retainer.retain(payload, origin);
                slot.push(Entry { payload, cost, returns_credit: !end });
                self.held.queue(cost);
                if end && slot.has_more() {
                    // Whoever sends may have to be told.
                    return self.end(call, Ok(()));
                }
                if end {
                    slot.end(Ok(()));
                }
                if let Some(task) = slot.reader.take() {
                    self.tasks.wake(task);
                }
            }
            _ if !end => self.machine.release(call, payload.len(), &mut self.out),
            Some(_) => self.end(call, Ok(())),
            None => {}
        }
    }

    fn on_writable(&mut self, call: CallKey) {
        // A call that is over takes nothing.
        let _ = self.send_held(call);
        if let Some(slot) = self.slot(call) {
            slot.wake_writer();
        }
    }

    fn on_cancelled(&mut self, call: CallKey, code: Code, reason: &str) {
        let Some(slot) = self.slot(call) else { return };
        let code = if code.is_ok() { Code::CANCELLED } else { code };
        let reason = if reason.is_empty() { "the peer cancelled the call" } else { reason };
        if let Some(task) = slot.take_task() {
            // Its turn to be dropped comes after this: nothing of it runs here.
            task.abort();
        }
        self.lose(call, Status::new(code, reason.to_owned()));
        self.lend(call, reason.len());
    }
}
