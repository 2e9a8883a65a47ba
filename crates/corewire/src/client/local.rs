//! A client on its worker.

use std::cell::{Cell, RefCell};
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_proto::codec::{Codec, EncodeError, Matching};
use corewire_runtime::{Charge, CloseReason, Connection, SendError, Sleep, Waiter, sleep, spawn_local};
use futures_channel::oneshot;
use slab::Slab;

use super::calls::{Calls, Expired};
use super::connection::{ClientConnection, State};
use super::ending::{End, Unsent, unsent_of};
use super::error::{CallError, ClientSendError};
use super::inbox::Inbox;
use super::outbox::Outbox;
use super::settings::Settings;
use crate::handler::Handler;
use crate::session::{FrameSendError, SessionInner};

/// Through the codec, or past it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendKind {
    OneWay,
    Raw,
    /// Nothing is sent; done when what was accepted before has left. In the outbox only.
    Flush,
}

/// How a send went. Two words, so that it passes in registers: this is the path of each message.
pub(super) enum SendStatus {
    Sent,
    Wait,
    Failed(Box<ClientSendError>),
}

impl SendStatus {
    #[inline]
    pub(super) fn into_poll(self) -> Poll<Result<(), ClientSendError>> {
        match self {
            Self::Sent => Poll::Ready(Ok(())),
            Self::Wait => Poll::Pending,
            Self::Failed(error) => Poll::Ready(Err(*error)),
        }
    }
}

/// How far a call is, on its worker.
#[derive(Debug, Default)]
pub(super) enum Progress {
    #[default]
    New,
    /// Waits for a connection, for room to send, or (with a ticket) for a free number; not for ever.
    Waiting {
        ticket: Option<u64>,
        deadline: Instant,
        sleep: usize,
    },
    InFlight(usize),
}

/// A client but for the types of its codec and handler.
pub(super) trait LocalClient {
    fn poll_send(
        &self,
        payload: &[u8],
        kind: SendKind,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> SendStatus;

    fn poll_send_bytes(&self, payload: &Bytes, waiter: &mut Waiter, context: &mut Context<'_>) -> SendStatus;

    fn poll_call(
        &self,
        progress: &mut Progress,
        payload: &[u8],
        timeout: Option<Duration>,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, CallError>>;

    fn give_up(&self, progress: Progress);
    /// Closes, and says when that is done and what was not sent.
    fn close(&self, ended: oneshot::Sender<Result<(), Unsent>>);
    /// Closes, for nobody who waits.
    fn shut(&self);
    /// The connection, if it is established.
    fn established(&self) -> Option<Connection>;
    /// Bytes lost with connections since this was asked last.
    fn take_lost(&self) -> usize;
    /// Messages were taken from the inbox; `resumes`: so many that receiving goes on.
    fn inbox_taken(&self, resumes: bool);
    fn outbox(&self) -> &Outbox;
}

thread_local! {
    static CLIENTS: RefCell<Slab<Rc<dyn LocalClient>>> = const { RefCell::new(Slab::new()) };
}

/// Calls with a client of this worker. No user code may run inside.
#[inline]
pub(super) fn with_local<R>(key: usize, call: impl FnOnce(Option<&dyn LocalClient>) -> R) -> R {
    CLIENTS.with_borrow(|clients| call(clients.get(key).map(|client| &**client)))
}

pub(super) fn add(client: Rc<dyn LocalClient>) -> usize {
    CLIENTS.with_borrow_mut(|clients| clients.insert(client))
}

/// Closes a client and forgets it.
pub(super) fn remove(key: usize) {
    let client = CLIENTS.with_borrow_mut(|clients| clients.try_remove(key));
    if let Some(client) = client {
        client.shut();
    }
}

/// The state of a client: at most one connection, and the calls on it.
pub(super) struct Client<C> {
    pub(super) settings: Settings,
    pub(super) codec: Box<dyn Fn() -> C>,
    pub(super) handler: Box<dyn Fn() -> Box<dyn Handler>>,
    pub(super) calls: RefCell<Calls>,
    pub(super) connection: ClientConnection<Rc<SessionInner<C>>>,
    /// Who waits for a connection.
    waiting: RefCell<Vec<Waker>>,
    pub(super) inbox: Option<Arc<Inbox>>,
    /// For what the inbox holds; made when it is more than a little.
    pub(super) inbox_charge: RefCell<Option<Charge>>,
    closed: Arc<AtomicBool>,
    outbox: Outbox,
    end: RefCell<End>,
    /// Bytes that connections were lost with.
    lost: Cell<usize>,
    /// Timers of the calls that wait to begin.
    sleeps: RefCell<Slab<Sleep>>,
    matching: Matching,
    pub(super) connections: Cell<u64>,
    pub(super) weak: Weak<Self>,
}

/// A client as its connection knows it.
pub(super) struct WeakClient<C>(pub(super) Weak<Client<C>>);

impl<C> Clone for WeakClient<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Codec> Client<C> {
    pub(super) fn new(
        settings: Settings,
        codec: Box<dyn Fn() -> C>,
        handler: Box<dyn Fn() -> Box<dyn Handler>>,
        inbox: Option<Arc<Inbox>>,
        closed: Arc<AtomicBool>,
    ) -> Rc<Self> {
        let matching = codec().matching();
        Rc::new_cyclic(|weak| Self {
            connection: ClientConnection::new(
                &settings.connector.settings.reconnect.clone().unwrap_or_default(),
                corewire_driver::entropy::u64(),
            ),
            calls: RefCell::new(Calls::new(matching, settings.max_in_flight)),
            settings,
            codec,
            handler,
            waiting: RefCell::default(),
            inbox,
            inbox_charge: RefCell::default(),
            closed,
            outbox: Outbox::default(),
            end: RefCell::default(),
            lost: Cell::new(0),
            sleeps: RefCell::default(),
            matching,
            connections: Cell::new(0),
            weak: weak.clone(),
        })
    }

    pub(super) fn established(&self, session: Rc<SessionInner<C>>) {
        if self.connection.established(session) {
            self.wake_waiting();
        }
    }

    /// The connection is lost: calls fail, and the client comes back if it may.
    pub(super) fn lost(&self, reason: &CloseReason, has_received: bool, queued: usize) {
        self.lost.set(self.lost.get() + unsent_of(reason, queued));
        self.calls.borrow_mut().fail_all(&CallError::ConnectionLost(reason.to_string()));
        if self.is_closed() {
            return self.end.borrow_mut().finish(reason, queued);
        }
        match self.settings.connector.settings.reconnect {
            Some(_) => self.connection.lost(&WeakClient(self.weak.clone()), reason.to_string(), has_received),
            None => {
                self.shut();
                self.end.borrow_mut().finish(reason, queued);
            }
        }
        self.wake_waiting();
    }

    fn wake_waiting(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
    }

    pub(super) fn is_waited_for(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }

    pub(super) fn is_closed(&self) -> bool {
        self.connection.is_closed()
    }

    /// Ends for good: calls fail, waiters see it, the inbox ends.
    pub(super) fn shut(&self) {
        self.closed.store(true, Ordering::Release);
        let session = self.connection.close();
        let unsent = self.outbox.finish(|payload, kind| match &session {
            Some(session) => send_on(session, payload, kind)
                .map_err(|error| unfit(error).map_or(ClientSendError::Closed, ClientSendError::from)),
            None => Err(ClientSendError::Closed),
        });
        self.end.borrow_mut().begin(unsent, session.is_some());
        if let Some(session) = session {
            session.note_closed();
            session.connection().close();
        }
        self.calls.borrow_mut().fail_all(&CallError::Closed);
        if let Some(inbox) = &self.inbox {
            inbox.end();
        }
        self.wake_waiting();
    }

    /// Waits for the next connection, which is wanted now.
    fn wait_for_connection(&self, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        drop(waiting);
        self.connection.want(&WeakClient(self.weak.clone()));
    }

    /// There is no connection: waits for the next, if there will be one.
    #[cold]
    fn not_connected(&self, context: &Context<'_>) -> SendStatus {
        if self.is_closed() {
            return SendStatus::Failed(Box::new(ClientSendError::Closed));
        }
        self.wait_for_connection(context);
        SendStatus::Wait
    }

    /// The connection takes nothing more: the next one is near, unless the message itself is at fault.
    #[cold]
    fn not_sent(&self, error: FrameSendError, context: &Context<'_>) -> SendStatus {
        match unfit(error) {
            Ok(error) => SendStatus::Failed(Box::new(error.into())),
            Err(_) => {
                self.wait_for_connection(context);
                SendStatus::Wait
            }
        }
    }

    /// Begins the call if it can; otherwise says what it waits for.
    fn begin(
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
}

impl<C: Codec> Client<C> {
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
    fn wait(
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

    fn drop_sleep(&self, place: usize) {
        let sleep = self.sleeps.borrow_mut().try_remove(place);
        drop(sleep);
    }
}

impl<C> Drop for Client<C> {
    /// Its worker has stopped, if it was not closed before.
    fn drop(&mut self) {
        self.closed.store(true, Ordering::Release);
        if let Some(inbox) = &self.inbox {
            inbox.end();
        }
    }
}

/// Why no connection could carry the message; `Err`: it is this connection that does not take it.
fn unfit(error: FrameSendError) -> Result<EncodeError, FrameSendError> {
    match error {
        FrameSendError::Encode(error) => Ok(error),
        FrameSendError::Send(SendError::TooLong { len, max }) => Ok(EncodeError::TooLong { len, limit: max }),
        other => Err(other),
    }
}

#[inline]
fn send_on<C: Codec>(
    session: &SessionInner<C>,
    payload: &[u8],
    kind: SendKind,
) -> Result<(), FrameSendError> {
    match kind {
        SendKind::OneWay => session.send_with(C::one_way_head, payload),
        SendKind::Raw => session.connection().send(payload).map_err(Into::into),
        SendKind::Flush => Ok(()),
    }
}

enum Begun {
    InFlight(usize),
    Wait(Option<u64>),
}

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
    fn poll_call(
        &self,
        progress: &mut Progress,
        payload: &[u8],
        timeout: Option<Duration>,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<Bytes, CallError>> {
        if let Progress::InFlight(slot) = progress {
            return match self.calls.borrow_mut().poll(*slot, context.waker()) {
                Some(result) => {
                    *progress = Progress::New;
                    Poll::Ready(result)
                }
                None => Poll::Pending,
            };
        }
        if self.matching == Matching::None {
            return Poll::Ready(Err(CallError::NoRequests));
        }
        let whole = timeout.unwrap_or(self.settings.request_timeout);
        let (ticket, left) = match progress {
            Progress::Waiting { ticket, deadline, .. } => {
                (*ticket, deadline.saturating_duration_since(corewire_driver::clock::now()))
            }
            _ => (None, whole),
        };
        let begun = self.begin(ticket, payload, left, waiter, context);
        match begun {
            Ok(Begun::InFlight(slot)) => {
                if let Progress::Waiting { sleep, .. } = std::mem::replace(progress, Progress::InFlight(slot))
                {
                    self.drop_sleep(sleep);
                }
                Poll::Pending
            }
            Ok(Begun::Wait(ticket)) => self.wait(progress, ticket, whole, context).map(|()| {
                self.give_up(std::mem::take(progress));
                Err(CallError::TimedOut(whole))
            }),
            Err(error) => {
                self.give_up(std::mem::take(progress));
                Poll::Ready(Err(error))
            }
        }
    }

    fn give_up(&self, progress: Progress) {
        match progress {
            Progress::InFlight(slot) => self.calls.borrow_mut().give_up(slot),
            Progress::Waiting { ticket, sleep, .. } => {
                self.drop_sleep(sleep);
                if let Some(ticket) = ticket {
                    self.calls.borrow_mut().leave(ticket);
                }
            }
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
