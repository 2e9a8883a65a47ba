//! The two ends of a stream of messages.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_proto::rpc::Code;
use corewire_runtime::poll_with_quota;
use futures_core::Stream;

use crate::current::Current;
use crate::handle::{Away, Handle};
use crate::message::Message;
use crate::metadata::Metadata;
use crate::status::Status;

/// The messages of the peer, in order: those of the client in a handler, those of the server at a caller.
///
/// Messages that are not taken stop the peer once they fill the window of the call (in version 1, which has no
/// credits, they stop the whole connection). At a caller, dropping it before its end cancels the call; in a handler it
/// only gives up the rest.
///
/// It is a [`Stream`], `Send`, and can be read on any thread; each message then comes by way of the connection's worker.
pub struct Streaming<T = Bytes> {
    // Dropped before the handle: it must not outlive the hold on the call.
    away: Option<Away<Option<Result<Bytes, Status>>>>,
    handle: Handle,
    /// A message that was taken to see what came with it.
    peeked: Option<Option<Result<Bytes, Status>>>,
    is_done: bool,
    cancels: bool,
    message: PhantomData<fn() -> T>,
}

impl<T> Streaming<T> {
    pub(crate) const fn new(handle: Handle, cancels: bool) -> Self {
        Self { handle, away: None, peeked: None, is_done: false, cancels, message: PhantomData }
    }
}

impl<T: Message> Streaming<T> {
    /// The next message; `None` at the clean end. After an error there is nothing more. Dropping the future loses no
    /// message.
    ///
    /// # Errors
    /// The call failed or was cancelled, its connection was lost, or the message cannot be read.
    pub async fn next(&mut self) -> Option<Result<T, Status>> {
        poll_fn(|context| self.poll(context)).await
    }

    /// The one message of a half that has no more.
    pub(crate) fn poll_only(&mut self, context: &mut Context<'_>) -> Poll<Result<T, Status>> {
        let next = ready!(self.poll(context));
        self.is_done = true;
        Poll::Ready(next.unwrap_or_else(|| {
            Err(Status::new(Code::INVALID_RESPONSE, "the server ended the call without a response"))
        }))
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<T, Status>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        let next = match self.peeked.take() {
            Some(peeked) => peeked,
            None => ready!(poll_with_quota(context, |context| self.poll_payload(context))),
        };
        self.is_done = !matches!(next, Some(Ok(_)));
        Poll::Ready(next.map(|next| next.and_then(T::decode)))
    }
}

impl<T> Streaming<T> {
    /// What came with the first message of the other side (or with its end, if it sent none): waits for it, and takes no
    /// message away. At a caller these are the headers that the handler added; empty in version 1.
    ///
    /// # Errors
    /// The call failed before it; [`next`](Self::next) says so too.
    pub async fn header(&mut self) -> Result<Metadata, Status> {
        if !self.is_done && self.peeked.is_none() {
            let next = poll_fn(|context| self.poll_payload(context)).await;
            self.peeked = Some(next);
        }
        match &self.peeked {
            Some(Some(Err(status))) => Err(status.clone()),
            _ => Ok(self.metadata().await.0),
        }
    }

    /// What came with the end of the other side's half; empty as long as that has not come, and in version 1. That of a
    /// failure is in its [`Status::metadata`] as well.
    pub async fn trailer(&self) -> Metadata {
        self.metadata().await.1
    }

    async fn metadata(&self) -> (Metadata, Metadata) {
        if let Some(metadata) = self.handle.here(|link, slot_index| link.metadata(slot_index)) {
            return metadata;
        }
        let away = self.handle.away(|link, slot_index, _| Poll::Ready(link.metadata(slot_index)));
        away.await.unwrap_or_default()
    }

    #[inline]
    fn poll_payload(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if self.away.is_none()
            && let Some(polled) = self.handle.poll_next_here(context)
        {
            return polled;
        }
        let away = self.away.get_or_insert_with(|| {
            self.handle.away(|link, slot_index, context| link.poll_next(slot_index, context))
        });
        let next = ready!(Pin::new(away).poll(context));
        self.away = None;
        Poll::Ready(next.unwrap_or_else(|_| Some(Err(Status::closed()))))
    }
}

impl<T: Message> Stream for Streaming<T> {
    type Item = Result<T, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll(context)
    }
}

impl<T> Drop for Streaming<T> {
    fn drop(&mut self) {
        if self.cancels {
            if !self.is_done {
                self.handle.cancel(Code::CANCELLED, "the caller dropped the responses");
            }
        } else if !self.is_done {
            self.handle.anywhere(|link, slot_index| link.stop_receiving(slot_index));
        }
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}

/// Sends messages to the peer: requests at a caller, responses in a handler.
///
/// A caller ends its half by [`finish`](Self::finish); dropping the sink without that cancels the call. A handler's
/// half ends when the handler does.
pub struct Sink<T = Bytes> {
    // Dropped before the handle: it must not outlive the hold on the call.
    away: Option<Away<Result<(), Status>>>,
    handle: Handle,
    /// At a caller: whether it has ended its half.
    is_finished: bool,
    is_caller: bool,
    /// The last message may be held back a moment so that it can say that it is the last.
    may_hold: bool,
    message: PhantomData<fn(T)>,
}

impl<T> Sink<T> {
    pub(crate) const fn of_handler(handle: Handle, may_hold: bool) -> Self {
        Self { handle, away: None, is_finished: false, is_caller: false, may_hold, message: PhantomData }
    }

    pub(crate) const fn of_caller(handle: Handle, is_finished: bool) -> Self {
        Self { handle, away: None, is_finished, is_caller: true, may_hold: false, message: PhantomData }
    }

    /// Ends the requests; responses go on. Sends nothing more after it.
    ///
    /// # Errors
    /// The call is over.
    pub async fn finish(mut self) -> Result<(), Status> {
        self.settle().await?;
        let ended = self.end();
        self.is_finished = true;
        match ended {
            Some(ended) => ended,
            None => {
                let away = self.handle.away(|link, slot_index, _| Poll::Ready(link.finish(slot_index, None)));
                away.await.unwrap_or_else(|_| Err(Status::closed()))
            }
        }
    }

    fn end(&self) -> Option<Result<(), Status>> {
        self.handle.here(|link, slot_index| link.finish(slot_index, None))
    }

    /// Waits for a message that was handed to the worker and whose future was dropped.
    async fn settle(&mut self) -> Result<(), Status> {
        if let Some(away) = &mut self.away {
            let sent = away.await.unwrap_or_else(|_| Err(Status::closed()));
            self.away = None;
            sent?;
        }
        Ok(())
    }
}

impl<T: Message> Sink<T> {
    /// Sends a message, once the peer has granted credit and the connection takes bytes. Dropping the future before it
    /// is ready sends it or not, but never a part of it.
    ///
    /// # Errors
    /// The call is over, or the message cannot be written or sent.
    pub async fn send(&mut self, message: T) -> Result<(), Status> {
        let mut payload = message.encode()?;
        if self.away.is_some() {
            self.settle().await?;
        }
        match poll_fn(|context| self.poll_send_here(&mut payload, context)).await {
            Some(sent) => sent,
            None => self.send_away(payload).await,
        }
    }
}

impl<T> Sink<T> {
    /// `None`: the calling code runs elsewhere.
    #[inline]
    fn poll_send_here(
        &self,
        payload: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(), Status>>> {
        let hold = self.may_hold && Current::get().slot == Some(self.handle.key());
        match self.handle.here(|link, slot_index| link.poll_send(slot_index, payload, hold, context)) {
            Some(polled) => polled.map(Some),
            None if self.handle.is_here() => Poll::Ready(Some(Err(Status::closed()))),
            None => Poll::Ready(None),
        }
    }

    async fn send_away(&mut self, mut payload: Bytes) -> Result<(), Status> {
        self.away =
            Some(self.handle.away(move |link, slot_index, context| {
                link.poll_send(slot_index, &mut payload, false, context)
            }));
        self.settle().await
    }
}

impl<T> Drop for Sink<T> {
    fn drop(&mut self) {
        if self.is_caller && !self.is_finished {
            self.handle.cancel(Code::CANCELLED, "the caller dropped its sink");
        }
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("is_finished", &self.is_finished).finish_non_exhaustive()
    }
}
