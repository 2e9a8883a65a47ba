//! The receiving end of a stream of messages.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_proto::rpc::Code;
use corewire_runtime::poll_with_quota;
use futures_core::Stream;

use crate::handle::{Handle, Remote};
use crate::link::Home;
use crate::message::Message;
use crate::metadata::Metadata;
use crate::replay::{Replay, Responses};
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
    remote: Option<Remote<Option<Result<Bytes, Status>>>>,
    handle: Handle,
    /// A message that was taken to see what came with it.
    peeked: Option<Option<Result<Bytes, Status>>>,
    /// Of a call that may be made again: what gives the handle on the attempt that counts.
    replay: Option<Arc<Replay>>,
    is_done: bool,
    cancels: bool,
    message: PhantomData<fn() -> T>,
}

impl<T> Streaming<T> {
    pub(crate) const fn new(handle: Handle, cancels: bool) -> Self {
        Self {
            handle,
            remote: None,
            peeked: None,
            replay: None,
            is_done: false,
            cancels,
            message: PhantomData,
        }
    }

    /// That of a call that may be made again.
    pub(crate) fn replayed(home: Home, replay: Arc<Replay>) -> Self {
        let mut responses = Self::new(Handle::nothing(home), true);
        responses.replay = Some(replay);
        responses
    }

    /// The hold on the call, and what was taken to see what came with it.
    pub(crate) fn into_responses(mut self) -> Responses {
        self.is_done = true;
        (self.handle.take(), self.peeked.take())
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

    /// Sends all messages into a sink, and closes it behind the last one: a caller's [`Sink`](crate::Sink) ends its half, that
    /// of a handler waits until all is sent.
    ///
    /// # Errors
    /// This half failed, or the sink did. What was sent before is sent.
    pub async fn forward<S>(mut self, sink: S) -> Result<(), Status>
    where
        S: futures_sink::Sink<T>,
        Status: From<S::Error>,
    {
        let (mut sink, mut next) = (pin!(sink), None);
        poll_fn(|context| {
            loop {
                if next.is_some() {
                    ready!(sink.as_mut().poll_ready(context))?;
                }
                if let Some(message) = next.take() {
                    sink.as_mut().start_send(message)?;
                }
                match self.poll(context) {
                    Poll::Ready(Some(message)) => next = Some(message?),
                    Poll::Ready(None) => return sink.as_mut().poll_close(context).map_err(Status::from),
                    Poll::Pending => {
                        ready!(sink.as_mut().poll_flush(context))?;
                        return Poll::Pending;
                    }
                }
            }
        })
        .await
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
        poll_fn(|context| self.poll_response(context)).await?;
        Ok(self.metadata().await.0)
    }

    /// Waits for the first message, or the end, and takes nothing away.
    ///
    /// # Errors
    /// The call failed before it.
    pub(crate) fn poll_response(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        if !self.is_done && self.peeked.is_none() {
            self.peeked = Some(ready!(self.poll_payload(context)));
        }
        Poll::Ready(match &self.peeked {
            Some(Some(Err(status))) => Err(status.clone()),
            _ => Ok(()),
        })
    }

    /// What came with the end of the other side's half; empty as long as that has not come, and in version 1. That of a
    /// failure is in its [`Status::metadata`] as well.
    pub async fn trailer(&self) -> Metadata {
        self.metadata().await.1
    }

    async fn metadata(&self) -> (Metadata, Metadata) {
        if let Some((link, call)) = self.handle.local() {
            return link.metadata(call);
        }
        let remote = self.handle.remote(|link, call, _| Poll::Ready(link.metadata(call)));
        remote.await.unwrap_or_default()
    }

    #[inline]
    fn poll_payload(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, Status>>> {
        if self.remote.is_none()
            && let Some((link, call)) = self.handle.local()
        {
            return link.poll_next(call, context);
        }
        if let Some(replay) = &self.replay {
            let given = ready!(replay.poll_responses(context));
            self.replay = None;
            return match given {
                Err(status) => Poll::Ready(Some(Err(status))),
                Ok((handle, taken)) => {
                    self.handle = handle;
                    taken.map_or_else(|| self.poll_payload(context), Poll::Ready)
                }
            };
        }
        let remote = self
            .remote
            .get_or_insert_with(|| self.handle.remote(|link, call, context| link.poll_next(call, context)));
        let next = ready!(Pin::new(remote).poll(context));
        self.remote = None;
        Poll::Ready(next.unwrap_or_else(|_| Some(Err(Status::worker_stopped()))))
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
        if let Some(replay) = &self.replay {
            replay.cancel();
        }
        if self.cancels {
            if !self.is_done {
                self.handle.cancel(Code::CANCELLED, "the caller dropped the responses");
            }
        } else if !self.is_done {
            self.handle.run(|link, call| link.stop_receiving(call));
        }
    }
}

impl<T> fmt::Debug for Streaming<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streaming").field("is_done", &self.is_done).finish_non_exhaustive()
    }
}
