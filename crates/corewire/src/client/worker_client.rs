//! A client on its worker: what it keeps, and its connection from the first to the last.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Waker};

use corewire_proto::codec::{Codec, EncodeError, Matching};
use corewire_runtime::{Charge, CloseReason, SendError};
use slab::Slab;

use super::begin::Wait;
use super::calls::Calls;
use super::connection::ClientConnection;
use super::ending::{End, unsent_of};
use super::error::{CallError, ClientSendError};
use super::inbox::Inbox;
use super::local::{Lane, SendKind, SendStatus};
use super::outbox::Outbox;
use super::settings::Settings;
use crate::handler::Handler;
use crate::session::{FrameSendError, SessionInner};

/// The state of a client: at most one connection, and the calls on it.
pub(super) struct Client<C> {
    pub(super) settings: Settings,
    pub(super) codec: Box<dyn Fn() -> C>,
    pub(super) handler: Box<dyn Fn() -> Box<dyn Handler>>,
    pub(super) connection: ClientConnection<Rc<SessionInner<C>>>,
    pub(super) lane: Rc<Lane>,
    /// Who waits for a connection.
    waiting: RefCell<Vec<Waker>>,
    pub(super) inbox: Option<Arc<Inbox>>,
    /// For what the inbox holds; made when it is more than a little.
    pub(super) inbox_charge: RefCell<Option<Charge>>,
    closed: Arc<AtomicBool>,
    pub(super) outbox: Outbox,
    pub(super) end: RefCell<End>,
    /// Bytes that connections were lost with.
    pub(super) lost: Cell<usize>,
    /// The calls that wait to begin.
    pub(super) waits: RefCell<Slab<Wait>>,
    pub(super) matching: Matching,
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
        let (matching, is_transparent) = {
            let codec = codec();
            (codec.matching(), codec.is_transparent())
        };
        Rc::new_cyclic(|weak| Self {
            connection: ClientConnection::new(
                &settings.connector.settings.reconnect.clone().unwrap_or_default(),
                corewire_driver::entropy::u64(),
            ),
            lane: Lane::new(is_transparent, Calls::new(matching, settings.max_in_flight)),
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
            waits: RefCell::default(),
            matching,
            connections: Cell::new(0),
            weak: weak.clone(),
        })
    }

    pub(super) fn established(&self, session: Rc<SessionInner<C>>) {
        let connection = session.connection().clone();
        if self.connection.established(session) {
            self.lane.set(Some(connection));
            self.wake_waiting();
        }
    }

    /// The connection is lost: calls fail, and the client comes back if it may.
    pub(super) fn lost(&self, reason: &CloseReason, has_received: bool, queued: usize) {
        self.lane.set(None);
        self.lost.set(self.lost.get() + unsent_of(reason, queued));
        self.lane.calls.borrow_mut().fail_all(&CallError::ConnectionLost(reason.to_string()));
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
        self.lane.set(None);
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
        self.lane.calls.borrow_mut().fail_all(&CallError::Closed);
        if let Some(inbox) = &self.inbox {
            inbox.end();
        }
        self.wake_waiting();
    }

    /// Waits for the next connection, which is wanted now.
    pub(super) fn wait_for_connection(&self, context: &Context<'_>) {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        drop(waiting);
        self.connection.want(&WeakClient(self.weak.clone()));
    }

    /// There is no connection: waits for the next, if there will be one.
    #[cold]
    pub(super) fn not_connected(&self, context: &Context<'_>) -> SendStatus {
        if self.is_closed() {
            return SendStatus::Failed(Box::new(ClientSendError::Closed));
        }
        self.wait_for_connection(context);
        SendStatus::Wait
    }

    /// The connection takes nothing more: the next one is near, unless the message itself is at fault.
    #[cold]
    pub(super) fn not_sent(&self, error: FrameSendError, context: &Context<'_>) -> SendStatus {
        match unfit(error) {
            Ok(error) => SendStatus::Failed(Box::new(error.into())),
            Err(_) => {
                self.wait_for_connection(context);
                SendStatus::Wait
            }
        }
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
pub(super) fn unfit(error: FrameSendError) -> Result<EncodeError, FrameSendError> {
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
