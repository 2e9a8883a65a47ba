//! The clients of a worker, whatever their codecs.

use std::cell::RefCell;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_runtime::{Connection, Waiter};
use futures_channel::oneshot;
use slab::Slab;

use super::calls::Calls;
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
    /// Waits to begin, under this key among those of its client.
    Waiting(usize),
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

    /// Has a call begin, or wait until it can. Ready only if it can never.
    fn poll_begin(
        &self,
        progress: &mut Progress,
        payload: &[u8],
        timeout: Option<Duration>,
        context: &mut Context<'_>,
    ) -> Poll<CallError>;

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

/// The part of a client that knows nothing of its codec: what needs none goes here, past all else.
pub(super) struct Lane {
    /// While it is established.
    connection: RefCell<Option<Connection>>,
    is_transparent: bool,
    pub(super) calls: RefCell<Calls>,
}

impl Lane {
    /// `is_transparent`: the client's codec adds nothing to payloads.
    pub(super) fn new(is_transparent: bool, calls: Calls) -> Rc<Self> {
        Rc::new(Self { connection: RefCell::default(), is_transparent, calls: RefCell::new(calls) })
    }

    /// The client's connection is established, or lost.
    pub(super) fn set(&self, connection: Option<Connection>) {
        self.connection.replace(connection);
    }

    /// Sends on the connection. `None`: there is none, it is lost, or the message needs the codec.
    #[inline(always)]
    fn poll_send(
        &self,
        payload: &[u8],
        kind: SendKind,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Option<SendStatus> {
        if kind != SendKind::Raw && !self.is_transparent {
            return None;
        }
        match self.connection.borrow().as_ref()?.poll_send([&[], payload, &[]], waiter, context) {
            Poll::Ready(Ok(())) => Some(SendStatus::Sent),
            Poll::Ready(Err(_)) => None,
            Poll::Pending => Some(SendStatus::Wait),
        }
    }
}

struct Entry {
    client: Rc<dyn LocalClient>,
    lane: Rc<Lane>,
}

thread_local! {
    static CLIENTS: RefCell<Slab<Entry>> = const { RefCell::new(Slab::new()) };
}

/// Calls with a client of this worker. No user code may run inside.
#[inline]
pub(super) fn with_local<R>(key: usize, call: impl FnOnce(Option<&dyn LocalClient>) -> R) -> R {
    CLIENTS.with_borrow(|clients| call(clients.get(key).map(|entry| &*entry.client)))
}

/// Sends a message of a client of this worker.
#[inline]
pub(super) fn poll_send(
    key: usize,
    payload: &[u8],
    kind: SendKind,
    waiter: &mut Waiter,
    context: &mut Context<'_>,
) -> SendStatus {
    CLIENTS.with(|clients| send_by(&clients.borrow(), key, payload, kind, waiter, context))
}

/// Apart from the access to the thread's table, which is only then part of the caller.
#[inline(never)]
fn send_by(
    clients: &Slab<Entry>,
    key: usize,
    payload: &[u8],
    kind: SendKind,
    waiter: &mut Waiter,
    context: &mut Context<'_>,
) -> SendStatus {
    let Some(Entry { client, lane }) = clients.get(key) else {
        return SendStatus::Failed(Box::new(ClientSendError::Closed));
    };
    lane.poll_send(payload, kind, waiter, context)
        .unwrap_or_else(|| client.poll_send(payload, kind, waiter, context))
}

/// Goes on with a call of a client of this worker.
#[inline]
pub(super) fn poll_call(
    key: usize,
    progress: &mut Progress,
    payload: &[u8],
    timeout: Option<Duration>,
    context: &mut Context<'_>,
) -> Poll<Result<Bytes, CallError>> {
    CLIENTS.with(|clients| call_by(&clients.borrow(), key, progress, payload, timeout, context))
}

/// As [`send_by`], for calls.
#[inline(never)]
fn call_by(
    clients: &Slab<Entry>,
    key: usize,
    progress: &mut Progress,
    payload: &[u8],
    timeout: Option<Duration>,
    context: &mut Context<'_>,
) -> Poll<Result<Bytes, CallError>> {
    let Some(Entry { client, lane }) = clients.get(key) else {
        return Poll::Ready(Err(CallError::Closed));
    };
    let Progress::InFlight(slot) = *progress else {
        return client.poll_begin(progress, payload, timeout, context).map(Err);
    };
    match lane.calls.borrow_mut().poll(slot, context.waker()) {
        Some(result) => {
            *progress = Progress::New;
            Poll::Ready(result)
        }
        None => Poll::Pending,
    }
}

pub(super) fn add(client: Rc<dyn LocalClient>, lane: Rc<Lane>) -> usize {
    CLIENTS.with_borrow_mut(|clients| clients.insert(Entry { client, lane }))
}

/// Closes a client and forgets it.
pub(super) fn remove(key: usize) {
    let entry = CLIENTS.with_borrow_mut(|clients| clients.try_remove(key));
    if let Some(Entry { client, .. }) = entry {
        client.shut();
    }
}
