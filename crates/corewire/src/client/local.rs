//! The clients of a worker, whatever their codecs.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_runtime::{Connection, Waiter};
use futures_channel::oneshot;
use slab::Slab;

use super::ending::Unsent;
use super::error::{CallError, ClientSendError};
use super::outbox::Outbox;

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
