//! What is asked of a client on its worker.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::codec::{Codec, Matching};
use corewire_runtime::{Connection, Waiter};
use futures_channel::oneshot;

use super::begin::Begun;
use super::connection::State;
use super::ending::Unsent;
use super::error::CallError;
use super::local::{LocalClient, Progress, SendKind, SendStatus};
use super::outbox::Outbox;
use super::worker_client::Client;

impl<C: Codec> LocalClient for Client<C> {
    #[inline]
    fn poll_send(
        &self,
        payload: &[u8],
        kind: SendKind,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> SendStatus {
        let state = self.connection.state();
        let State::Established(session) = &*state else {
            drop(state);
            return self.not_connected(context);
        };
        let sent = match kind {
            SendKind::OneWay => session.poll_send_with(C::one_way_head, payload, waiter, context),
            SendKind::Flush => Poll::Ready(Ok(())),
            SendKind::Raw => match session.connection().poll_send([&[], payload, &[]], waiter, context) {
                Poll::Ready(sent) => Poll::Ready(sent.map_err(Into::into)),
                Poll::Pending => Poll::Pending,
            },
        };
        match sent {
            Poll::Ready(Ok(())) => SendStatus::Sent,
            Poll::Pending => SendStatus::Wait,
            Poll::Ready(Err(error)) => self.not_sent(error, context),
        }
    }

    fn poll_send_bytes(&self, payload: &Bytes, waiter: &mut Waiter, context: &mut Context<'_>) -> SendStatus {
        let state = self.connection.state();
        let State::Established(session) = &*state else {
            drop(state);
            return self.not_connected(context);
        };
        match session.connection().poll_send_ready(waiter, context) {
            Poll::Ready(Ok(())) => {}
            Poll::Ready(Err(error)) => return self.not_sent(error.into(), context),
            Poll::Pending => return SendStatus::Wait,
        }
        match session.send_bytes_with(C::one_way_head, payload.clone()) {
            Ok(()) => SendStatus::Sent,
            Err(error) => self.not_sent(error, context),
        }
    }

    #[inline]
    fn poll_begin(
        &self,
        progress: &mut Progress,
        payload: &[u8],
        timeout: Option<Duration>,
        context: &mut Context<'_>,
    ) -> Poll<CallError> {
        if self.matching == Matching::None {
            return Poll::Ready(CallError::NoRequests);
        }
        let timeout = timeout.unwrap_or(self.settings.request_timeout);
        match *progress {
            Progress::Waiting(key) => self.poll_waiting(key, progress, payload, timeout, context),
            _ => match self.begin(None, payload, timeout, &mut Waiter::new(), context) {
                Ok(Begun::InFlight(slot)) => {
                    *progress = Progress::InFlight(slot);
                    Poll::Pending
                }
                Ok(Begun::Wait(ticket)) => self.wait(progress, ticket, timeout, context),
                Err(error) => Poll::Ready(error),
            },
        }
    }

    fn give_up(&self, progress: Progress) {
        match progress {
            Progress::InFlight(slot) => self.lane.calls.borrow_mut().give_up(slot),
            Progress::Waiting(key) => self.end_wait(key),
            Progress::New => {}
        }
    }

    fn close(&self, ended: oneshot::Sender<Result<(), Unsent>>) {
        self.shut();
        self.end.borrow_mut().tell(ended);
    }

    fn shut(&self) {
        Self::shut(self);
    }

    fn established(&self) -> Option<Connection> {
        match &*self.connection.state() {
            State::Established(session) => Some(session.connection().clone()),
            _ => None,
        }
    }

    fn take_lost(&self) -> usize {
        self.lost.take()
    }

    fn inbox_taken(&self, resumes: bool) {
        let Some(inbox) = &self.inbox else { return };
        inbox.recharge(&mut self.inbox_charge.borrow_mut());
        // The resume was on its way: the inbox may have filled again, on another connection.
        if !resumes || inbox.is_held_back() {
            return;
        }
        if let State::Established(session) = &*self.connection.state() {
            session.connection().resume_receive();
        }
    }

    fn outbox(&self) -> &Outbox {
        &self.outbox
    }
}
