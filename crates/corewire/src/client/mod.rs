//! Clients from a URI.

mod begin;
mod builder;
mod call;
mod calls;
mod connect;
mod connection;
mod connector;
mod ending;
mod endpoint;
mod error;
mod inbox;
mod local;
mod object;
mod operations;
mod outbox;
mod retries;
mod settings;
mod wakers;
mod worker_client;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_runtime::{Waiter, WorkerHandle, WorkerId, current_worker, poll_with_quota};
use futures_channel::oneshot;

pub use self::builder::{ClientBuilder, Framing, OwnProtocol};
pub use self::call::Call;
pub use self::connection::{ClientConnection, ConnectionOwner, Keep, State};
pub use self::connector::{Attempt, Connector};
pub use self::ending::{Closing, Unsent};
pub use self::error::{CallError, ClientSendError, ConnectError};
use self::inbox::Inbox;
use self::local::{SendKind, SendStatus, with_local};
pub use self::object::ObjectCallError;
pub use self::settings::Reconnect;
use crate::frame::Message;
use crate::uri::NetUri;

/// A client. Cheap to clone, usable from any thread and any executor; on its own worker its calls take the direct
/// path, without locks or messages between threads.
///
/// When the connection is lost, every call in flight fails at once with [`CallError::ConnectionLost`]; the client
/// reconnects, and what is sent meanwhile waits. It closes when the last clone is dropped.
#[derive(Clone)]
pub struct NetClient {
    shared: Arc<Shared>,
}

/// What the clones share.
struct Shared {
    /// Of `worker`: asked for each message.
    worker_id: WorkerId,
    worker: WorkerHandle,
    /// The client's place among its worker's clients.
    key: usize,
    uri: NetUri,
    inbox: Option<Arc<Inbox>>,
    /// Closed for good; what is sent from now on is refused.
    closed: Arc<AtomicBool>,
    /// Bytes on their way from other threads to the worker.
    remote_bytes: AtomicUsize,
    remote_high_water: usize,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let key = self.key;
        // A worker that has stopped has closed its clients.
        let _ = self.worker.run(move || local::remove(key));
    }
}

impl NetClient {
    /// Sends a message that expects no reply. Ready at once, unless the send queue is over its high-water mark: then it
    /// waits until the server has taken most of it. While the client reconnects it waits too.
    ///
    /// The payload is taken when the future is first polled, whole or not at all.
    #[inline]
    pub fn send<'a>(&'a self, payload: &'a [u8]) -> Sending<'a> {
        Sending::new(self, payload, SendKind::OneWay)
    }

    /// As [`send`](Self::send), sharing the payload instead of copying it (when it is more than a few KiB).
    pub async fn send_bytes(&self, payload: Bytes) -> Result<(), ClientSendError> {
        if !self.is_here() {
            let mut sent = outbox::send(self, payload, SendKind::OneWay);
            return std::future::poll_fn(|context| sent.poll(context)).await;
        }
        let mut waiter = Waiter::new();
        std::future::poll_fn(|context| {
            let status = with_local(self.shared.key, |client| match client {
                Some(client) => client.poll_send_bytes(&payload, &mut waiter, context),
                None => SendStatus::Failed(Box::new(ClientSendError::Closed)),
            });
            status.into_poll()
        })
        .await
    }

    /// The same as [`send`](Self::send), under the name that request/response protocols use.
    pub fn one_way<'a>(&'a self, payload: &'a [u8]) -> Sending<'a> {
        self.send(payload)
    }

    /// Sends bytes past the codec; else as [`send`](Self::send).
    pub fn send_raw<'a>(&'a self, bytes: &'a [u8]) -> Sending<'a> {
        Sending::new(self, bytes, SendKind::Raw)
    }

    /// Sends a request and waits for its reply, matched by the codec. Many may be in flight; when all numbers are in
    /// use the call waits for a free one. Dropping the future gives the call up: its late reply goes nowhere.
    ///
    /// The call begins when the future is first polled.
    #[inline]
    pub fn request<'a>(&'a self, payload: &'a [u8]) -> Call<'a> {
        Call::new(self, payload)
    }

    /// The next frame that is no reply, in the order of arrival; see [`ClientBuilder::inbox`]. `None` when the client
    /// is closed (or keeps no inbox).
    pub async fn recv(&self) -> Option<Message> {
        let inbox = self.shared.inbox.as_ref()?;
        let poll = |context: &mut Context<'_>| inbox.poll(&self.shared.worker, self.shared.key, context);
        std::future::poll_fn(|context| poll_with_quota(context, poll)).await
    }

    /// Waits until the kernel has taken all that was accepted by [`send`](Self::send) until now, from this thread and
    /// others; while the client reconnects, for the next connection. To be awaited before a process ends: a send says
    /// only that the message was accepted.
    ///
    /// # Errors
    /// The client is closed, or ([`ClientSendError::ConnectionLost`]) a connection was lost since the last flush with
    /// something that it had not sent.
    pub async fn flush(&self) -> Result<(), ClientSendError> {
        let mut flushed = outbox::send(self, Bytes::new(), SendKind::Flush);
        std::future::poll_fn(|context| flushed.poll(context)).await
    }

    /// Closes once what was sent before has left, or at the close timeout of the connection, whichever comes first. Calls
    /// in flight fail. It happens whether or not the result is awaited; awaited, it says what was not sent.
    pub fn close(&self) -> Closing {
        let key = self.shared.key;
        let (sender, ended) = oneshot::channel();
        // A worker that has stopped has closed its clients.
        let _ = self.shared.worker.run(move || {
            with_local(key, |client| client.map(|client| client.close(sender)));
        });
        Closing(ended)
    }

    /// What it connects to.
    pub fn uri(&self) -> &NetUri {
        &self.shared.uri
    }

    /// The worker that it lives on.
    pub fn worker(&self) -> &WorkerHandle {
        &self.shared.worker
    }

    #[inline]
    fn is_here(&self) -> bool {
        current_worker() == Some(self.shared.worker_id)
    }
}

impl fmt::Debug for NetClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NetClient")
            .field("uri", &self.shared.uri.to_string())
            .field("worker", &self.shared.worker.id())
            .finish_non_exhaustive()
    }
}

/// The future of [`NetClient::send`].
#[must_use = "futures do nothing unless awaited"]
pub struct Sending<'a> {
    client: &'a NetClient,
    payload: &'a [u8],
    kind: SendKind,
    wait: SendWait,
}

/// What a message that is not sent yet waits for.
enum SendWait {
    Nothing,
    /// For room, on the client's worker.
    Room(Waiter),
    /// For the worker: it comes from another thread.
    Remote(Box<outbox::Accepted>),
}

impl Future for Sending<'_> {
    type Output = Result<(), ClientSendError>;

    #[inline]
    fn poll(mut self: std::pin::Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        if self.client.is_here() && matches!(self.wait, SendWait::Nothing) {
            let mut waiter = Waiter::new();
            let Self { client, payload, kind, .. } = *self;
            let status = local::poll_send(client.shared.key, payload, kind, &mut waiter, context);
            if matches!(status, SendStatus::Wait) {
                self.wait = SendWait::Room(waiter);
            }
            return status.into_poll();
        }
        self.poll_again(context)
    }
}

impl<'a> Sending<'a> {
    #[inline]
    const fn new(client: &'a NetClient, payload: &'a [u8], kind: SendKind) -> Self {
        Self { client, payload, kind, wait: SendWait::Nothing }
    }

    #[cold]
    fn poll_again(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ClientSendError>> {
        let Self { client, payload, kind, wait } = self;
        match wait {
            SendWait::Room(waiter) if client.is_here() => {
                local::poll_send(client.shared.key, payload, *kind, waiter, context).into_poll()
            }
            SendWait::Remote(accepted) => accepted.poll(context),
            SendWait::Nothing | SendWait::Room(_) => {
                let mut accepted = Box::new(outbox::send(client, Bytes::copy_from_slice(payload), *kind));
                let polled = accepted.poll(context);
                *wait = SendWait::Remote(accepted);
                polled
            }
        }
    }
}

impl fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sending").field("len", &self.payload.len()).finish_non_exhaustive()
    }
}
