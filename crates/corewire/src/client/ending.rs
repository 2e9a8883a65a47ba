//! The end of a client, and what it left unsent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use corewire_runtime::CloseReason;
use futures_channel::oneshot;

/// A client that was closed could not send all that it had accepted.
#[derive(Debug, Clone, Default, PartialEq, Eq, thiserror::Error)]
#[error("closed with {bytes} bytes unsent, {messages} messages of them whole: {reason}")]
#[non_exhaustive]
pub struct Unsent {
    /// Messages that no connection took: there was none, or its queue was full.
    pub messages: usize,
    /// Bytes that were not handed to the kernel, those of these messages included.
    pub bytes: usize,
    /// Why.
    pub reason: String,
}

/// The end of a client; made by [`NetClient::close`](super::NetClient::close). It comes whether or not this is awaited.
#[derive(Debug)]
pub struct Closing(pub(super) oneshot::Receiver<Result<(), Unsent>>);

impl Future for Closing {
    type Output = Result<(), Unsent>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let stopped =
            |_| Err(Unsent { reason: "the client's worker has stopped".to_owned(), ..Unsent::default() });
        Pin::new(&mut self.0).poll(context).map(|ended| ended.unwrap_or_else(stopped))
    }
}

/// How far the end of a client is.
#[derive(Debug, Default)]
pub(super) enum End {
    #[default]
    Open,
    /// The connection has still to send what is queued.
    Draining(Unsent, Vec<oneshot::Sender<Result<(), Unsent>>>),
    Over(Result<(), Unsent>),
}

impl End {
    /// Somebody waits for the end.
    pub(super) fn tell(&mut self, to: oneshot::Sender<Result<(), Unsent>>) {
        match self {
            Self::Open => {}
            Self::Draining(_, waiting) => waiting.push(to),
            // Nobody may want to know.
            Self::Over(ended) => drop(to.send(ended.clone())),
        }
    }

    /// No connection took these messages. What is queued on one, if there is one, may still leave.
    pub(super) fn begin(&mut self, unsent: Unsent, has_connection: bool) {
        if let Self::Open = self {
            *self = Self::Draining(unsent, Vec::new());
            if !has_connection {
                self.finish(&CloseReason::Local, 0);
            }
        }
    }

    /// The connection has ended; `queued` bytes are lost with it.
    pub(super) fn finish(&mut self, reason: &CloseReason, queued: usize) {
        let Self::Draining(unsent, waiting) = self else { return };
        let (mut unsent, waiting) = (std::mem::take(unsent), std::mem::take(waiting));
        let lost = unsent_of(reason, queued);
        unsent.bytes += lost;
        if lost > 0 || unsent.reason.is_empty() {
            unsent.reason = reason.to_string();
        }
        let is_sent = unsent.bytes == 0 && unsent.messages == 0;
        let ended = if is_sent { Ok(()) } else { Err(unsent) };
        for to in waiting {
            // As above.
            let _ = to.send(ended.clone());
        }
        *self = Self::Over(ended);
    }
}

/// Bytes that a connection which ended for this reason did not send, of those that are still queued.
pub(super) fn unsent_of(reason: &CloseReason, queued: usize) -> usize {
    match reason {
        CloseReason::CloseTimeout { unsent, .. } => *unsent,
        _ => queued,
    }
}
