//! Messages from other threads, on their way through the client's worker.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::ending::Unsent;
use super::error::ClientSendError;
use super::local::{LocalClient, SendKind, with_local};
use super::{NetClient, Sending};

/// Keeps the order of messages from other threads while the connection takes no more.
#[derive(Default)]
pub(super) struct Outbox {
    queue: RefCell<VecDeque<Item>>,
    /// A task empties the queue.
    pumped: Cell<bool>,
}

impl Outbox {
    /// The client closes: what was accepted before is sent now, without waiting for room. Says what was not.
    pub(super) fn finish(
        &self,
        mut send: impl FnMut(&[u8], SendKind) -> Result<(), ClientSendError>,
    ) -> Unsent {
        let mut unsent = Unsent::default();
        let queue = self.queue.take();
        for Item { payload, kind, sent } in queue {
            let result =
                if kind == SendKind::Flush { Err(ClientSendError::Closed) } else { send(&payload, kind) };
            if let Err(error) = &result
                && kind != SendKind::Flush
            {
                unsent.messages += 1;
                unsent.bytes += payload.len();
                unsent.reason = error.to_string();
            }
            report(sent, result);
        }
        unsent
    }
}

fn report(sent: oneshot::Sender<Result<(), ClientSendError>>, result: Result<(), ClientSendError>) {
    if let Err(Err(error)) = sent.send(result) {
        tracing::warn!(%error, "a message that its sender did not wait for was not sent");
    }
}

struct Item {
    payload: Bytes,
    kind: SendKind,
    /// Whoever waits for it.
    sent: oneshot::Sender<Result<(), ClientSendError>>,
}

/// A message that was handed to the worker.
pub(super) struct Accepted {
    /// Nobody need wait while little is on its way.
    wait: bool,
    sent: oneshot::Receiver<Result<(), ClientSendError>>,
}

impl Accepted {
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), ClientSendError>> {
        match Pin::new(&mut self.sent).poll(context) {
            Poll::Ready(sent) => Poll::Ready(sent.unwrap_or(Err(ClientSendError::Closed))),
            Poll::Pending if self.wait => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
        }
    }
}

/// Hands a message to the client's worker. While less than the high-water mark is on its way the sender need not
/// wait; then it waits until its message has been queued on the connection.
pub(super) fn send(client: &NetClient, payload: Bytes, kind: SendKind) -> Accepted {
    let shared = &client.shared;
    let (sender, sent) = oneshot::channel();
    if shared.closed.load(Ordering::Acquire) {
        // The sender's end is dropped: that means closed.
        return Accepted { wait: true, sent };
    }
    let len = payload.len();
    let before = shared.remote_bytes.fetch_add(len, Ordering::Relaxed);
    let wait = before + len > shared.remote_high_water || kind == SendKind::Flush;
    let (key, owner) = (shared.key, client.clone());
    let taken = shared.worker.run(move || {
        let begin = with_local(key, |client| {
            let outbox = client?.outbox();
            outbox.queue.borrow_mut().push_back(Item { payload, kind, sent: sender });
            Some(!outbox.pumped.replace(true))
        });
        if begin == Some(true) {
            drop(spawn_local(pump(owner)));
        }
    });
    if taken.is_err() {
        shared.remote_bytes.fetch_sub(len, Ordering::Relaxed);
    }
    Accepted { wait, sent }
}

/// Sends what is queued, in order. A message stays in the queue until it is sent, where [`Outbox::finish`] finds it.
async fn pump(client: NetClient) {
    let next = || {
        with_local(client.shared.key, |local| {
            let outbox = local.map(LocalClient::outbox)?;
            let first = outbox.queue.borrow().front().map(|item| (item.payload.clone(), item.kind));
            outbox.pumped.set(first.is_some());
            first
        })
    };
    while let Some((payload, kind)) = next() {
        if kind == SendKind::Flush {
            let item = with_local(client.shared.key, |local| local?.outbox().queue.borrow_mut().pop_front());
            drop(item.map(|item| spawn_local(flush(client.clone(), item.sent))));
            continue;
        }
        let result = Sending::new(&client, &payload, kind).await;
        client.shared.remote_bytes.fetch_sub(payload.len(), Ordering::Relaxed);
        let item = with_local(client.shared.key, |local| local?.outbox().queue.borrow_mut().pop_front());
        if let Some(item) = item {
            report(item.sent, result);
        }
    }
}

/// All that was accepted before is queued on a connection, or lost: waits until the kernel has it.
async fn flush(client: NetClient, flushed: oneshot::Sender<Result<(), ClientSendError>>) {
    let key = client.shared.key;
    if let Some(connection) = with_local(key, |local| local?.established()) {
        // If it is lost meanwhile, it is told below what it had not sent.
        let _ = connection.flushed().await;
        corewire_runtime::yield_now().await;
    }
    let unsent = with_local(key, |local| local.map_or(0, LocalClient::take_lost));
    let result = if unsent == 0 { Ok(()) } else { Err(ClientSendError::ConnectionLost { unsent }) };
    // Given up in the last moment.
    let _ = flushed.send(result);
}
