//! A call with one request and one response.

use std::fmt;
use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_proto::rpc::{Code, MethodPath, TraceContext};
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::discovered::FlightId;
use super::repeat;
use super::start::{Begun, Plan, Wait};
use super::{Channel, tell};
use crate::current::Current;
use crate::link::with_link;
use crate::message::Message;
use crate::metadata::Metadata;
use crate::status::Status;

/// The future of [`Channel::unary`]. `Unpin`, so that many can be kept in a `Vec` and polled in any order.
///
/// Dropping it gives the call up; in version 2 the server is told, and stops.
#[must_use = "a call begins when it is first polled"]
pub struct Unary<'a, Resp = Bytes> {
    channel: &'a Channel,
    plan: Option<Plan<'a>>,
    state: State,
    /// Boxed, since only interceptors and those who ask for metadata want to know.
    noted: Option<Box<Noted>>,
    response: PhantomData<fn() -> Resp>,
}

/// What is known of a call beside its result.
#[derive(Default)]
struct Noted {
    /// Set if interceptors are to be told of the end.
    began: Option<Instant>,
    /// What the server sent beside the response.
    metadata: Metadata,
}

enum State {
    New(Wait),
    InFlight(Begun),
    /// Made by a task of the channel's worker.
    Away(oneshot::Receiver<Result<Answer, Status>>),
    Finished,
}

/// A response, and what the server sent beside it.
pub(super) struct Answer {
    pub(super) payload: Bytes,
    pub(super) metadata: Metadata,
}

/// A call that no server began is begun again this often at the most.
const BEGINS_MAX: usize = 5;

impl<'a, Resp> Unary<'a, Resp> {
    #[inline]
    pub(super) const fn new(channel: &'a Channel, plan: Plan<'a>) -> Self {
        let state = State::New(Wait::NEW);
        Self { channel, plan: Some(plan), state, noted: None, response: PhantomData }
    }

    /// Waits this long instead of the channel's timeout, the wait for a connection included; in version 2 the server is
    /// told.
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

    /// Gives what the server sends beside the response too: headers and trailers are one here. That of a failure is in its
    /// [`Status::metadata`].
    ///
    /// ```
    /// use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
    ///
    /// let service = Service::new("Cache").unary("get", |_: Bytes, call: Context| async move {
    ///     call.add_header("age-s", "12")?;
    ///     Ok(Bytes::from("value"))
    /// });
    /// let server = RpcServer::bind("tcp://127.0.0.1:0").service(service).workers(1).start()?;
    ///
    /// let channel = Channel::to(server.uri()).build()?;
    /// let (value, metadata) = corewire::wait(channel.unary("Cache/get", "key").with_metadata())?;
    /// assert_eq!((&value[..], metadata.get_str("age-s")), (&b"value"[..], Some("12")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_metadata(mut self) -> WithMetadata<'a, Resp> {
        self.noted.get_or_insert_default();
        WithMetadata(self)
    }

    /// The call may be made more than once: it is retried and hedged as the channel is told to.
    pub fn idempotent(mut self) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().is_idempotent = true;
        }
        self
    }

    /// Has a channel whose balancer goes by keys send all calls with this key to the same endpoint, as long as it is
    /// there; see [`ConsistentHash`](corewire_discovery::ConsistentHash).
    pub fn balance_by(mut self, key: u64) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().key = Some(key);
        }
        self
    }

    /// Fails at once when no connection stands and none can be made, whatever the channel's setting.
    pub fn fail_fast(self) -> Self {
        self.readiness(true)
    }

    /// Waits for a connection, whatever the channel's setting.
    pub fn wait_for_ready(self) -> Self {
        self.readiness(false)
    }

    fn readiness(mut self, is_fail_fast: bool) -> Self {
        if let Some(plan) = &mut self.plan {
            plan.options().is_fail_fast = Some(is_fail_fast);
        }
        self
    }

    /// The call as a task of the channel's worker makes it.
    #[cold]
    fn send_away(&mut self) -> Result<oneshot::Receiver<Result<Answer, Status>>, Status> {
        let plan = self.plan.take().ok_or_else(Status::closed)?.into_owned();
        let channel = self.channel.clone();
        let (mut sender, receiver) = oneshot::channel();
        let current = Current::get().elsewhere();
        let began = self.channel.worker().run(move || {
            drop(spawn_local(async move {
                let mut call = std::pin::pin!(repeat::call(&channel, plan));
                let result = poll_fn(|context| {
                    let _entered = current.enter();
                    match call.as_mut().poll(context) {
                        Poll::Ready(result) => Poll::Ready(Some(result)),
                        // Nobody waits any more: the call is dropped, and so given up.
                        Poll::Pending => sender.poll_canceled(context).map(|()| None),
                    }
                });
                if let Some(result) = result.await {
                    // Given up in the last moment.
                    let _ = sender.send(result);
                }
            }));
        });
        began.map(|()| receiver).map_err(|_| Status::closed())
    }

    #[inline]
    fn poll_payload(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        if !matches!(self.state, State::Away(_) | State::Finished)
            && (!self.channel.is_here() || self.is_repeated())
        {
            self.release();
            self.state = match self.send_away() {
                Ok(receiver) => State::Away(receiver),
                Err(status) => return Poll::Ready(Err(status)),
            };
        }
        match &mut self.state {
            State::Away(receiver) => {
                let answer =
                    ready!(Pin::new(receiver).poll(context)).unwrap_or_else(|_| Err(Status::closed()))?;
                if let Some(noted) = &mut self.noted {
                    noted.metadata = answer.metadata;
                }
                Poll::Ready(Ok(answer.payload))
            }
            State::Finished => Poll::Ready(Err(Status::closed())),
            _ => self.poll_local(context),
        }
    }

    #[inline]
    fn poll_local(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        for _ in 0..BEGINS_MAX {
            if let State::New(wait) = &mut self.state {
                let Some(plan) = &mut self.plan else { return Poll::Ready(Err(Status::closed())) };
                if self.channel.is_watched() {
                    self.noted.get_or_insert_default().began.get_or_insert_with(corewire_driver::clock::now);
                }
                let (_, begun) = ready!(plan.poll_here(self.channel, wait, context))?;
                self.state = State::InFlight(begun);
                return Poll::Pending;
            }
            let State::InFlight(Begun { link, place, flight }) = self.state else { break };
            let polled = with_link(link as usize, |link| {
                if let Some(noted) = &mut self.noted {
                    noted.metadata = link.metadata(place as usize).1;
                }
                link.poll_reply(place as usize, context)
            });
            let result = ready!(polled.unwrap_or_else(|| Poll::Ready(Err(Status::closed()))));
            if flight != FlightId::NONE {
                self.channel.landed(flight, Some(&result));
            }
            match result {
                // No server has begun it: it may go to another.
                Err(status) if status.is_not_begun() => self.state = State::New(Wait::NEW),
                result => return Poll::Ready(result),
            }
        }
        Poll::Ready(Err(Status::unavailable("no server begins the call").not_begun()))
    }

    /// The call may be made several times, which a task does.
    #[inline]
    fn is_repeated(&self) -> bool {
        self.channel.repeats()
            && matches!(self.state, State::New(_))
            && self
                .plan
                .as_ref()
                .is_some_and(|plan| plan.options.as_ref().is_some_and(|options| options.is_idempotent))
    }

    /// Gives up what was begun here.
    fn release(&mut self) {
        match std::mem::replace(&mut self.state, State::Finished) {
            State::New(mut wait) => wait.give_up(self.channel),
            State::InFlight(Begun { link, place, flight }) => {
                if flight != FlightId::NONE {
                    self.channel.landed(flight, None);
                }
                self.channel.run_there(move || {
                    with_link(link as usize, |link| link.release_slot(place as usize, Code::CANCELLED));
                });
            }
            State::Away(_) | State::Finished => {}
        }
    }

    pub(super) fn path(&self) -> Option<&MethodPath> {
        self.plan.as_ref()?.path.get().ok()
    }

    #[cold]
    fn tell(&self, result: &Result<Bytes, Status>) {
        if let (Some(noted), Some(path)) = (&self.noted, self.path())
            && let Some(began) = noted.began
        {
            let code = result.as_ref().map_or_else(Status::code, |_| Code::OK);
            tell(
                &self.channel.shared.interceptors,
                path,
                &noted.metadata,
                code,
                corewire_driver::clock::now().duration_since(began),
            );
        }
    }
}

impl<Resp> Unary<'_, Resp> {
    #[inline]
    fn poll_whole(&mut self, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
        let result = ready!(self.poll_payload(context));
        // What is left holds nothing: the slot went with the result.
        self.state = State::Finished;
        if self.noted.is_some() {
            self.tell(&result);
        }
        Poll::Ready(result)
    }
}

impl<Resp: Message> Future for Unary<'_, Resp> {
    type Output = Result<Resp, Status>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_whole(context).map(|result| result.and_then(Resp::decode))
    }
}

/// The future of [`Unary::with_metadata`].
#[derive(Debug)]
#[must_use = "a call begins when it is first polled"]
pub struct WithMetadata<'a, Resp = Bytes>(Unary<'a, Resp>);

impl WithMetadata<'_, Bytes> {
    pub(super) fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<Result<Answer, Status>> {
        let payload = ready!(self.0.poll_whole(context))?;
        Poll::Ready(Ok(Answer { payload, metadata: self.take() }))
    }
}

impl<Resp> WithMetadata<'_, Resp> {
    fn take(&mut self) -> Metadata {
        self.0.noted.take().map_or(Metadata::EMPTY, |noted| noted.metadata)
    }
}

impl<Resp: Message> Future for WithMetadata<'_, Resp> {
    type Output = Result<(Resp, Metadata), Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.0.poll_whole(context)).and_then(Resp::decode)?;
        Poll::Ready(Ok((response, self.take())))
    }
}

impl<Resp> Drop for Unary<'_, Resp> {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.state, State::Finished) {
            self.release();
        }
    }
}

impl<Resp> fmt::Debug for Unary<'_, Resp> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Unary").field("path", &self.path()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_stays_small() {
        assert!(size_of::<Unary<'_>>() <= 120, "{} bytes", size_of::<Unary<'_>>());
    }
}
