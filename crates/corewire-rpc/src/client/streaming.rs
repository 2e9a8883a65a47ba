//! Calls in which one side or both send any number of messages.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::TraceContext;
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::Channel;
use super::discovered::FlightId;
use super::start::{Begun, Plan, Wait};
use crate::current::Current;
use crate::handle::Handle;
use crate::link::Link;
use crate::message::Message;
use crate::metadata::Metadata;
use crate::status::Status;
use crate::stream::{Sink, Streaming};

/// What a call gives to its caller once it has begun.
pub trait Shape: 'static {
    /// The ends of its streams.
    type Ends: Send + 'static;

    /// Slots of the call that are held.
    #[doc(hidden)]
    const HOLDERS: u8;

    #[doc(hidden)]
    fn ends(make: &mut dyn FnMut() -> RawHandle, is_finished: bool) -> Self::Ends;
}

/// A hold on a call, for [`Shape`].
#[doc(hidden)]
pub struct RawHandle(Handle);

impl fmt::Debug for RawHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RawHandle")
    }
}

/// Any number of requests, one response.
#[derive(Debug)]
pub struct ClientStreaming<Req, Resp>(PhantomData<fn(Req) -> Resp>);

/// One request, any number of responses.
#[derive(Debug)]
pub struct ServerStreaming<Resp>(PhantomData<fn() -> Resp>);

/// Any number of both.
#[derive(Debug)]
pub struct BothStreaming<Req, Resp>(PhantomData<fn(Req) -> Resp>);

impl<Req: 'static, Resp: 'static> Shape for ClientStreaming<Req, Resp> {
    type Ends = (Sink<Req>, Reply<Resp>);
    const HOLDERS: u8 = 2;

    fn ends(make: &mut dyn FnMut() -> RawHandle, is_finished: bool) -> Self::Ends {
        (Sink::of_caller(make().0, is_finished), Reply(Streaming::new(make().0, true)))
    }
}

impl<Resp: 'static> Shape for ServerStreaming<Resp> {
    type Ends = Streaming<Resp>;
    const HOLDERS: u8 = 1;

    fn ends(make: &mut dyn FnMut() -> RawHandle, _: bool) -> Self::Ends {
        Streaming::new(make().0, true)
    }
}

impl<Req: 'static, Resp: 'static> Shape for BothStreaming<Req, Resp> {
    type Ends = (Sink<Req>, Streaming<Resp>);
    const HOLDERS: u8 = 2;

    fn ends(make: &mut dyn FnMut() -> RawHandle, is_finished: bool) -> Self::Ends {
        (Sink::of_caller(make().0, is_finished), Streaming::new(make().0, true))
    }
}

/// The one response of a client-stream call. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct Reply<Resp = Bytes>(Streaming<Resp>);

impl<Resp: Message> Reply<Resp> {
    /// Gives what the server sends beside the response too. That of a failure is in its [`Status::metadata`].
    ///
    /// # Errors
    /// As awaiting it.
    pub async fn with_metadata(mut self) -> Result<(Resp, Metadata), Status> {
        let response = poll_fn(|context| self.0.poll_only(context)).await?;
        let metadata = self.0.trailer().await;
        Ok((response, metadata))
    }
}

impl<Resp: Message> Future for Reply<Resp> {
    type Output = Result<Resp, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_only(context)
    }
}

/// The beginning of a call with streams; await it for their ends. Without a timeout of its own it lives until both
/// halves have ended.
#[must_use = "a call begins when it is first polled"]
pub struct Opening<'a, S: Shape> {
    channel: &'a Channel,
    plan: Option<Plan<'a>>,
    state: State<S>,
    shape: PhantomData<fn() -> S>,
}

enum State<S: Shape> {
    Here(Wait),
    /// Begun by a task of the channel's worker.
    Away(oneshot::Receiver<Result<S::Ends, Status>>),
}

/// Makes the handles of a call. The last one is that of the responses: the call is in flight as long as it is held.
fn handles<'a>(
    channel: &'a Channel,
    link: &'a Rc<Link>,
    begun: Begun,
    holders: u8,
) -> impl FnMut() -> RawHandle + 'a {
    let mut left = holders;
    move || {
        left = left.saturating_sub(1);
        let mut handle = Handle::new(link, begun.place as usize);
        if left == 0 && begun.flight != FlightId::NONE {
            handle.flight = channel.take_flight(begun.flight);
        }
        RawHandle(handle)
    }
}

impl<'a, S: Shape> Opening<'a, S> {
    pub(super) fn new(channel: &'a Channel, mut plan: Plan<'a>) -> Self {
        plan.holders = S::HOLDERS;
        Self { channel, plan: Some(plan), state: State::Here(Wait::NEW), shape: PhantomData }
    }

    /// The time of the whole call; in version 2 the server is told. Default: no limit once the call has begun.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.timeout = Some(timeout);
        }
        self
    }

    /// Adds metadata (version 2). A name has 1 to 255 characters of `a-z 0-9 - _ .`
    pub fn metadata(mut self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().add_metadata(name, value);
        }
        self
    }

    /// Sends the caller's W3C trace context (version 2).
    pub fn trace(mut self, trace: TraceContext) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().head.trace = Some(trace);
        }
        self
    }

    /// Sends the caller's W3C `tracestate` with the trace (version 2).
    pub fn trace_state(mut self, state: impl Into<String>) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().head.trace_state = state.into();
        }
        self
    }

    /// As [`Unary::balance_by`](super::Unary::balance_by).
    pub fn balance_by(mut self, key: u64) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().key = Some(key);
        }
        self
    }

    fn with_first(mut self, message: Result<Bytes, Status>, end: bool) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.end = end;
            match message {
                Ok(payload) => plan.payload = Some(payload),
                Err(status) => plan.broken = Some(status),
            }
        }
        self
    }

    #[cold]
    fn send_away(&mut self) -> Result<oneshot::Receiver<Result<S::Ends, Status>>, Status> {
        let mut plan = self.plan.take().ok_or_else(Status::closed)?.into_owned();
        let channel = self.channel.clone();
        let (mut sender, receiver) = oneshot::channel();
        let current = Current::get().elsewhere();
        let began = self.channel.worker().run(move || {
            drop(spawn_local(async move {
                let mut wait = Wait::NEW;
                let begun = poll_fn(|context| {
                    let _entered = current.enter();
                    match plan.poll_here(&channel, &mut wait, context) {
                        Poll::Ready(begun) => Poll::Ready(Some(begun)),
                        Poll::Pending => sender.poll_canceled(context).map(|()| None),
                    }
                });
                match begun.await {
                    Some(begun) => {
                        // Given up in the last moment: the ends are dropped, and the call with them.
                        let _ = sender
                            .send(begun.map(|(link, begun)| ends::<S>(&channel, &link, begun, plan.end)));
                    }
                    None => wait.give_up(&channel),
                }
            }));
        });
        began.map(|()| receiver).map_err(|_| Status::closed())
    }

    #[inline]
    fn poll_ends(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Ends, Status>> {
        if let State::Here(wait) = &mut self.state {
            if self.channel.is_here() {
                let Some(plan) = &mut self.plan else { return Poll::Ready(Err(Status::closed())) };
                let (link, begun) = ready!(plan.poll_here(self.channel, wait, context))?;
                return Poll::Ready(Ok(ends::<S>(self.channel, &link, begun, plan.end)));
            }
            wait.give_up(self.channel);
            self.state = State::Away(self.send_away()?);
        }
        let State::Away(receiver) = &mut self.state else { return Poll::Pending };
        Pin::new(receiver).poll(context).map(|ends| ends.unwrap_or_else(|_| Err(Status::closed())))
    }
}

/// The ends of a call's streams, of which each holds its slot.
fn ends<S: Shape>(channel: &Channel, link: &Rc<Link>, begun: Begun, is_finished: bool) -> S::Ends {
    S::ends(&mut handles(channel, link, begun, S::HOLDERS), is_finished)
}

impl<Req: Message, Resp: Message> Opening<'_, ClientStreaming<Req, Resp>> {
    /// Begins with this message. Calls of version 1 need it: there a call begins with its first message, and a frame
    /// without one would be an empty message to the server. Without it such a call fails before it begins.
    pub fn first(self, message: Req) -> Self {
        self.with_first(message.encode(), false)
    }

    /// Begins with this message and ends the requests with it.
    pub fn only(self, message: Req) -> Self {
        self.with_first(message.encode(), true)
    }
}

impl<Req: Message, Resp: Message> Opening<'_, BothStreaming<Req, Resp>> {
    /// Begins with this message. Calls of version 1 need it: there a call begins with its first message, and a frame
    /// without one would be an empty message to the server. Without it such a call fails before it begins. Not for streams of the `STREAM_*` family, which begin
    /// without one.
    pub fn first(self, message: Req) -> Self {
        self.with_first(message.encode(), false)
    }

    /// Begins with this message and ends the requests with it.
    pub fn only(self, message: Req) -> Self {
        self.with_first(message.encode(), true)
    }
}

impl<S: Shape> Future for Opening<'_, S> {
    type Output = Result<S::Ends, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_ends(context)
    }
}

impl<S: Shape> Drop for Opening<'_, S> {
    fn drop(&mut self) {
        if let State::Here(wait) = &mut self.state {
            wait.give_up(self.channel);
        }
    }
}

impl<S: Shape> fmt::Debug for Opening<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Opening").finish_non_exhaustive()
    }
}
