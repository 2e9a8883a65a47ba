//! How the calls of a client begin, and how their time is over.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use corewire_proto::codec::Codec;
use corewire_runtime::{CloseReason, Waiter, sleep, spawn_local};

use super::calls::{Calls, Expired};
use super::connection::State;
use super::error::CallError;
use super::local::Progress;
use super::worker_client::{Client, unfit};

/// What came of an attempt to begin a call.
pub(super) enum Begun {
    InFlight(usize),
    Wait(Option<u64>),
}

impl<C: Codec> Client<C> {
    /// Begins the call if it can; otherwise says what it waits for.
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
        match session.connection().poll_send_ready(waiter, context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(_)) => {
                // The connection is going: the next one is near.
                self.wait_for_connection(context);
                return Ok(Begun::Wait(None));
            }
            Poll::Pending => return Ok(Begun::Wait(ticket)),
        }
        let mut calls = self.calls.borrow_mut();
        // A time beyond the clock's end is none.
        let timeout_ms = u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX);
        let deadline = session.connection().now_ms().saturating_add(timeout_ms).saturating_add(1);
        if !calls.can_begin(ticket) && session.connection().is_datagram() {
            calls.free_given_up(session.connection().now_ms());
        }
        let begun =
            if calls.can_begin(ticket) { calls.begin(context.waker(), deadline, timeout) } else { None };
        let Some((slot, sequence)) = begun else {
            if calls.is_exhausted() {
                let reason = "every sequence number is held by a call that was given up and never answered";
                session.connection().abort(CloseReason::Protocol(reason.to_owned()));
            }
            return Ok(Begun::Wait(Some(calls.wait(ticket, context.waker()))));
        };
        if let Some(ticket) = ticket {
            calls.begun(ticket);
        }
        if let Err(error) = session.send_with(|codec| codec.request_head(sequence), payload) {
            calls.withdraw(slot);
            return Err(unfit(error)
                .map_or_else(|error| CallError::ConnectionLost(error.to_string()), CallError::Encode));
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
        let mut calls = self.calls.borrow_mut();
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

    /// Waits for its turn, but not beyond the call's time.
    pub(super) fn wait(
        &self,
        progress: &mut Progress,
        ticket: Option<u64>,
        whole: Duration,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        let mut sleeps = self.sleeps.borrow_mut();
        let place = match progress {
            Progress::Waiting { ticket: kept, sleep, .. } => {
                *kept = ticket;
                *sleep
            }
            _ => {
                let place = sleeps.insert(sleep(whole));
                let deadline = sleeps[place].deadline();
                *progress = Progress::Waiting { ticket, deadline, sleep: place };
                place
            }
        };
        Pin::new(&mut sleeps[place]).poll(context)
    }

    pub(super) fn drop_sleep(&self, place: usize) {
        let sleep = self.sleeps.borrow_mut().try_remove(place);
        drop(sleep);
    }
}
