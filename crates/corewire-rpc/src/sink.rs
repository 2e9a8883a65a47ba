//! The sending end of a stream of messages.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_runtime::spawn_local;

use crate::current::Current;
use crate::handle::{Handle, Remote};
use crate::link::Home;
use crate::message::Message;
use crate::replay::{Kept, Replay};
use crate::status::Status;

/// Sends messages to the peer: requests at a caller, responses in a handler.
///
/// A caller ends its half by [`finish`](Self::finish) or by dropping the sink, and the responses go on: what cancels the
/// call is dropping those. A handler's half ends when the handler does.
///
/// It is a [`futures_sink::Sink`] too, whose `close` ends a caller's half. That holds one message between `start_send` and
/// the next `poll_ready` or `poll_flush`. A caller's sink that is dropped before sends it all the same.
///
/// ```
/// use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Sink, Streaming};
///
/// let echo = Service::new("Chat")
///     .bidi("echo", |said: Streaming, answers: Sink, _: Context| async move { said.forward(answers).await });
/// let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).workers(1).start()?;
/// let channel = Channel::to(server.uri()).build()?;
/// corewire::block_on(async {
///     let (mut say, mut answers) = channel.bidi::<Bytes, Bytes>("Chat/echo").await?;
///     say.send("one".into()).await?;
///     drop(say);
///     assert_eq!(answers.next().await.transpose()?.as_deref(), Some(&b"one"[..]));
///     assert!(answers.next().await.is_none(), "the server has ended too");
///     Ok::<(), corewire_rpc::Status>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Sink<T = Bytes> {
    // Dropped before the handle: it must not outlive the hold on the call.
    remote: Option<Remote<Result<(), Status>>>,
    handle: Handle,
    /// A message that was taken by `start_send` and is not sent yet.
    queued: Option<Bytes>,
    /// What keeps the messages of a call that may be made again, until it has the handle on the attempt that counts.
    replay: Option<Arc<Replay>>,
    end: End,
    message: PhantomData<fn(T)>,
}

/// How the half of a sink ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// At a caller: by its sink.
    BySink,
    /// At a caller: its worker was told to end it.
    Finishing,
    /// At a caller: it has ended.
    Ended,
    /// In a handler, when that ends. A message may be held a moment so that the last one can say that it is.
    ByHandler { may_hold: bool },
}

impl<T> Sink<T> {
    pub(crate) const fn of_handler(handle: Handle, may_hold: bool) -> Self {
        Self::new(handle, End::ByHandler { may_hold })
    }

    pub(crate) const fn of_caller(handle: Handle, is_finished: bool) -> Self {
        Self::new(handle, if is_finished { End::Ended } else { End::BySink })
    }

    /// That of a call that may be made again.
    pub(crate) fn replayed(home: Home, replay: Arc<Replay>) -> Self {
        let mut sink = Self::new(Handle::nothing(home), End::BySink);
        sink.replay = Some(replay);
        sink
    }

    const fn new(handle: Handle, end: End) -> Self {
        Self { remote: None, handle, queued: None, replay: None, end, message: PhantomData }
    }

    /// Ends the requests; responses go on. Dropping the sink does the same, and tells no error. In a handler it only waits
    /// until all is sent.
    ///
    /// # Errors
    /// The call is over.
    pub async fn finish(mut self) -> Result<(), Status> {
        poll_fn(|context| self.poll_finish(context)).await
    }

    pub(crate) fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        ready!(self.poll_queued(context))?;
        if let Some(replay) = self.replay.take() {
            match replay.end(None) {
                Ok(Some((handle, _))) => self.handle = handle,
                ended => {
                    self.end = End::Ended;
                    return Poll::Ready(ended.map(drop));
                }
            }
        }
        if self.end == End::BySink {
            if let Some((link, call)) = self.handle.local() {
                self.end = End::Ended;
                return Poll::Ready(link.finish(call, None));
            }
            self.end = End::Finishing;
            let remote = self.handle.remote(|link, call, _| Poll::Ready(link.finish(call, None)));
            self.remote = Some(remote);
            ready!(self.poll_queued(context))?;
        }
        if self.end == End::Finishing {
            self.end = End::Ended;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends what was taken before; ready when nothing of it is left.
    fn poll_queued(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        loop {
            if let Some(remote) = &mut self.remote {
                let sent =
                    ready!(Pin::new(remote).poll(context)).unwrap_or_else(|_| Err(Status::worker_stopped()));
                self.remote = None;
                sent?;
            }
            let Some(mut payload) = self.queued.take() else { return Poll::Ready(Ok(())) };
            match self.poll_send_local(&mut payload, context) {
                Poll::Pending => {
                    self.queued = Some(payload);
                    return Poll::Pending;
                }
                Poll::Ready(Some(sent)) => return Poll::Ready(sent),
                Poll::Ready(None) => match &self.replay {
                    None => self.send_remote(payload),
                    Some(replay) => match replay.poll_keep(&mut payload, context) {
                        Poll::Ready(Ok(Kept::Yes)) => return Poll::Ready(Ok(())),
                        Poll::Ready(Err(status)) => return Poll::Ready(Err(status)),
                        Poll::Ready(Ok(Kept::Direct(handle))) => {
                            (self.handle, self.replay, self.queued) = (handle, None, Some(payload));
                        }
                        Poll::Pending => {
                            self.queued = Some(payload);
                            return Poll::Pending;
                        }
                    },
                },
            }
        }
    }

    /// `None`: the calling code runs elsewhere.
    #[inline]
    fn poll_send_local(
        &self,
        payload: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<(), Status>>> {
        let hold = self.end == End::ByHandler { may_hold: true } && Current::is_of(self.handle.key());
        match self.handle.local() {
            Some((link, call)) => link.poll_send(call, payload, hold, context).map(Some),
            None => Poll::Ready(None),
        }
    }

    /// Sends a message from the worker of the call.
    pub(crate) fn poll_message(
        &mut self,
        message: &Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Status>> {
        let sent = ready!(self.poll_send_local(&mut message.clone(), context));
        Poll::Ready(sent.unwrap_or_else(|| Err(Status::closed())))
    }

    /// The hold on the call, whose half goes on.
    pub(crate) fn into_handle(mut self) -> Handle {
        self.end = End::Ended;
        self.handle.take()
    }

    fn send_remote(&mut self, mut payload: Bytes) {
        self.remote = Some(
            self.handle.remote(move |link, call, context| link.poll_send(call, &mut payload, false, context)),
        );
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
        if self.remote.is_some() || self.queued.is_some() {
            poll_fn(|context| self.poll_queued(context)).await?;
        }
        match poll_fn(|context| self.poll_send_local(&mut payload, context)).await {
            Some(sent) => sent,
            None => {
                self.queued = Some(payload);
                poll_fn(|context| self.poll_queued(context)).await
            }
        }
    }
}

impl<T: Message> futures_sink::Sink<T> for Sink<T> {
    type Error = Status;

    fn poll_ready(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.poll_queued(context)
    }

    fn start_send(mut self: Pin<&mut Self>, message: T) -> Result<(), Status> {
        self.queued = Some(message.encode()?);
        Ok(())
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.poll_queued(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        self.poll_finish(context)
    }
}

impl<T> Drop for Sink<T> {
    fn drop(&mut self) {
        if let Some(replay) = self.replay.take() {
            match replay.end(self.queued.take()) {
                Ok(Some((handle, last))) => (self.handle, self.queued) = (handle, last),
                // Each attempt ends with what was kept; or the call has failed, which the responses tell.
                _ => self.end = End::Ended,
            }
        }
        match self.end {
            End::Ended | End::ByHandler { .. } => {}
            End::BySink if self.queued.is_some() || self.remote.is_some() => {
                // What was taken is sent first, by a task that holds the call.
                let (remote, queued) = (self.remote.take(), self.queued.take());
                let handle = self.handle.take();
                let mut rest = Sink::<Bytes>::new(handle, End::Ended);
                (rest.remote, rest.queued) = (remote, queued);
                self.handle.run_there(move || {
                    let mut rest = rest;
                    rest.end = End::BySink;
                    drop(spawn_local(rest.finish()));
                });
            }
            // An error says that the call is over.
            End::BySink | End::Finishing => {
                self.handle.run(|link, call| drop(link.finish(call, None)));
            }
        }
    }
}

impl<T> fmt::Debug for Sink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("is_finished", &(self.end == End::Ended)).finish_non_exhaustive()
    }
}
