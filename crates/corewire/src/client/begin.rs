//! How the calls of a client begin, and how their time is over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use corewire_proto::codec::Codec;
use corewire_runtime::{CloseReason, Sleep, Waiter, sleep, spawn_local};

use super::calls::{Calls, Expired};
use super::connection::State;
use super::error::CallError;
use super::local::Progress;
use super::worker_client::{Client, unfit};

/// A call that waits for a connection, for room to send, or (with a ticket) for a free number.
pub(super) struct Wait {
    ticket: Option<u64>,
    /// Until its time is over.
    sleep: Sleep,
    waiter: Waiter,
}

/// What came of an attempt to begin a call.
pub(super) enum Begun {
    InFlight(usize),
    Wait(Option<u64>),
}

impl<C: Codec> Client<C> {
    /// Begins the call if it can; otherwise says what it waits for.
    #[inline]
    pub(super) fn begin(
        &self,
        ticket: Option<u64>,
        payload: &[u8],
        timeout: Duration,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Result<Begun, CallError> {
        let state = self.connection.state();
        let session = match &*state {
            State::Established(session) => session,
            State::Closed => return Err(CallError::Closed),
            _ => {
                drop(state);
                self.wait_for_connection(context);
                return Ok(Begun::Wait(None));
            }
        };
        let mut calls = self.lane.calls.borrow_mut();
        // A time beyond the clock's end is none.
        let timeout_ms =
            timeout.as_secs().saturating_mul(1000).saturating_add(timeout.subsec_millis().into());
        let deadline = session.connection().now_ms().saturating_add(timeout_ms).saturating_add(1);
        let mut begun = calls.begin(ticket, context.waker(), deadline, timeout);
        if begun.is_none() && session.connection().is_datagram() {
            calls.free_given_up(session.connection().now_ms());
            begun = calls.begin(ticket, context.waker(), deadline, timeout);
        }
        let Some((slot, sequence)) = begun else {
            if calls.is_exhausted() {
                let reason = "every sequence number is held by a call that was given up and never answered";
                session.connection().abort(CloseReason::Protocol(reason.to_owned()));
            }
            return Ok(Begun::Wait(Some(calls.wait(ticket, context.waker()))));
        };
        match session.poll_send_with(|codec| codec.request_head(sequence), payload, waiter, context) {
            Poll::Ready(Ok(())) => {}
            Poll::Pending => {
                calls.take_back(slot);
                return Ok(Begun::Wait(ticket));
            }
            Poll::Ready(Err(error)) => {
                calls.take_back(slot);
                return match unfit(error) {
                    Ok(error) => Err(CallError::Encode(error)),
                    Err(_) => {
                        drop(calls);
                        // The connection is going: the next one is near.
                        self.wait_for_connection(context);
                        Ok(Begun::Wait(None))
                    }
                };
            }
        }
        if let Some(ticket) = ticket {
            calls.begun(ticket);
        }
        if deadline < calls.timer_at {
            self.sweep_after(&mut calls, deadline, timeout);
        }
        Ok(Begun::InFlight(slot))
    }

    /// Has the calls looked through once this deadline has come. The connection's own timer is the user's.
    #[cold]
    fn sweep_after(&self, calls: &mut Calls, deadline_ms: u64, delay: Duration) {
        calls.timer_at = deadline_ms;
        let weak = self.weak.clone();
        drop(spawn_local(async move {
            sleep(delay).await;
            if let Some(client) = weak.upgrade() {
                client.sweep(deadline_ms);
            }
        }));
    }

    /// Ends the calls whose time is over.
    fn sweep(&self, deadline_ms: u64) {
        // Without a connection no call is in flight.
        let State::Established(session) = &*self.connection.state() else { return };
        let now = session.connection().now_ms();
        let mut calls = self.lane.calls.borrow_mut();
        if calls.timer_at == deadline_ms {
            calls.timer_at = u64::MAX;
        }
        let Expired { next, is_out_of_step } = calls.expire(now);
        if is_out_of_step {
            let reason =
                "a reply that was due in order did not come in time, so that later ones cannot be told apart";
            return session.connection().abort(CloseReason::Protocol(reason.to_owned()));
        }
        if let Some(next) = next.filter(|next| *next < calls.timer_at) {
            let delay = Duration::from_millis(next.saturating_sub(now).max(1));
            self.sweep_after(&mut calls, next, delay);
        }
    }

    /// Has a call wait for its turn, but not beyond its time.
    pub(super) fn wait(
        &self,
        progress: &mut Progress,
        ticket: Option<u64>,
        timeout: Duration,
        context: &mut Context<'_>,
    ) -> Poll<CallError> {
        let wait = Wait { ticket, sleep: sleep(timeout), waiter: Waiter::new() };
        let key = self.waits.borrow_mut().insert(wait);
        *progress = Progress::Waiting(key);
        self.poll_timeout(key, progress, timeout, context)
    }

    /// Tries again to begin a call that waits.
    pub(super) fn poll_waiting(
        &self,
        key: usize,
        progress: &mut Progress,
        payload: &[u8],
        timeout: Duration,
        context: &mut Context<'_>,
    ) -> Poll<CallError> {
        let (ticket, deadline, mut waiter) = {
            let wait = &mut self.waits.borrow_mut()[key];
            (wait.ticket, wait.sleep.deadline(), std::mem::take(&mut wait.waiter))
        };
        let left = deadline.saturating_duration_since(corewire_driver::clock::now());
        match self.begin(ticket, payload, left, &mut waiter, context) {
            Ok(Begun::InFlight(slot)) => {
                *progress = Progress::InFlight(slot);
                self.drop_wait(key);
                Poll::Pending
            }
            Ok(Begun::Wait(ticket)) => {
                if let Some(wait) = self.waits.borrow_mut().get_mut(key) {
                    (wait.ticket, wait.waiter) = (ticket, waiter);
                }
                self.poll_timeout(key, progress, timeout, context)
            }
            Err(error) => {
                *progress = Progress::New;
                self.end_wait(key);
                Poll::Ready(error)
            }
        }
    }

    fn poll_timeout(
        &self,
        key: usize,
        progress: &mut Progress,
        timeout: Duration,
        context: &mut Context<'_>,
    ) -> Poll<CallError> {
        let polled = Pin::new(&mut self.waits.borrow_mut()[key].sleep).poll(context);
        polled.map(|()| {
            *progress = Progress::New;
            self.end_wait(key);
            CallError::TimedOut(timeout)
        })
    }

    /// A call waits no more.
    pub(super) fn end_wait(&self, key: usize) {
        if let Some(ticket) = self.drop_wait(key) {
            self.lane.calls.borrow_mut().leave(ticket);
        }
    }

    fn drop_wait(&self, key: usize) -> Option<u64> {
        let wait = self.waits.borrow_mut().try_remove(key);
        wait?.ticket
    }
}
