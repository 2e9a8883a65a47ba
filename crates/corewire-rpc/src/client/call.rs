//! The future of a call, the same for all modes, and what can be said of a call before it begins.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::TraceContext;

use super::attempt::Attempt;
use super::channel::Channel;
use super::options::CallOptions;
use super::policy::{Hedge, Retry};
use super::remote;
use super::request::Request;
use super::shape::Shape;
use crate::status::Status;

/// A call: made by [`Channel::unary`] and its siblings, begun when it is first polled.
///
/// It owns what it needs, so it can be given to a `spawn` of any executor, and is `Unpin`, so that many can be kept in a
/// `Vec` and polled in any order. Polled on its channel's worker it takes the direct path; elsewhere a task of that worker
/// makes the call. It may move from one to the other, also in flight. Dropping it cancels the call; in version 2 the
/// server is told, and stops.
///
/// ```
/// use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service};
///
/// # let runtime = tokio::runtime::Builder::new_current_thread().build()?;
/// # runtime.block_on(async {
/// let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
/// let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).workers(1).start()?;
/// let channel = Channel::to(server.uri()).build()?;
///
/// let call = tokio::spawn(channel.unary("Echo/echo", "Hello"));
/// assert_eq!(call.await??, "Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a call begins when it is first polled"]
pub struct CallFuture<S: Shape> {
    state: State<S>,
}

/// A call with streams.
pub type StreamingCall<S> = CallFuture<S>;

enum State<S: Shape> {
    Local(Attempt),
    /// Made by a task of the channel's worker.
    Remote(remote::Receiver<S>),
    Finished,
}

impl<S: Shape> CallFuture<S> {
    #[inline]
    pub(super) fn new(channel: &Channel, mut request: Request) -> Self {
        request.holders = S::HOLDERS;
        Self { state: State::Local(Attempt::new(channel.clone(), request)) }
    }

    /// The call, as long as it has not begun elsewhere.
    pub(super) fn attempt(&mut self) -> Option<&mut Attempt> {
        match &mut self.state {
            State::Local(attempt) => Some(attempt),
            _ => None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Request)) -> Self {
        if let Some(attempt) = self.attempt() {
            change(&mut attempt.request);
        }
        self
    }

    /// All options at once, instead of those set so far.
    pub fn options(self, options: CallOptions) -> Self {
        self.with(|request| {
            request.timeout = options.timeout;
            request.options = Some(Box::new(options));
        })
    }

    /// The time of the whole call: the wait for a connection, retries and what lies between them included. In version 2
    /// the server is told. Default: that of the channel for unary calls; for calls with streams no limit once they have
    /// begun.
    pub fn timeout(self, timeout: Duration) -> Self {
        self.with(|request| request.timeout = Some(timeout))
    }

    /// Adds metadata (version 2). A name has 1 to 255 characters of `a-z 0-9 - _ .`
    pub fn metadata(self, name: impl Into<String>, value: impl Into<Bytes>) -> Self {
        self.with(|request| request.options().add_metadata(name, value))
    }

    /// Sends the caller's W3C trace context (version 2).
    pub fn trace(self, trace: TraceContext) -> Self {
        self.with(|request| request.options().head.trace = Some(trace))
    }

    /// Sends the caller's W3C `tracestate` with the trace (version 2).
    pub fn trace_state(self, state: impl Into<String>) -> Self {
        self.with(|request| request.options().head.trace_state = state.into())
    }

    /// The call may be made more than once: it is retried and hedged as the channel, or this call, is told to.
    pub fn idempotent(self) -> Self {
        self.with(|request| request.options().is_idempotent = true)
    }

    /// A call that a handler makes is not bounded by the deadline of that handler's call, and does not carry its trace on. It
    /// inherits both otherwise, also by way of a channel on another worker.
    pub fn detached(self) -> Self {
        self.with(|request| request.options().is_detached = true)
    }

    /// Retries the call, if it is [idempotent](Self::idempotent), by this instead of the channel's setting.
    pub fn retry(self, retry: Retry) -> Self {
        self.with(|request| request.options().retry = Some(retry))
    }

    /// Hedges the call, if it is [idempotent](Self::idempotent), by this instead of the channel's setting.
    pub fn hedge(self, hedge: impl Into<Hedge>) -> Self {
        self.with(|request| request.options().hedge = Some(hedge.into()))
    }

    /// Has a channel whose balancer goes by keys send all calls with this key to the same endpoint, as long as it is
    /// there; see [`ConsistentHash`](corewire_discovery::ConsistentHash).
    pub fn balance_by(self, key: u64) -> Self {
        self.with(|request| request.options().key = Some(key))
    }

    /// Fails at once when no connection is established and none can be made, or when as many calls are in flight as the
    /// server takes, whatever the channel's setting.
    pub fn fail_fast(self) -> Self {
        self.with(|request| request.options().is_fail_fast = Some(true))
    }

    /// Waits for a connection, whatever the channel's setting.
    pub fn wait_for_ready(self) -> Self {
        self.with(|request| request.options().is_fail_fast = Some(false))
    }

    /// Begins with this message; with `end` it is the only one.
    pub(super) fn with_first(self, message: Result<Bytes, Status>, end: bool) -> Self {
        self.with(|request| {
            request.end = end;
            request.first(message);
        })
    }

    #[inline]
    pub(super) fn poll_sent(&mut self, context: &mut Context<'_>) -> Poll<Result<S::Sent, Status>> {
        if let State::Local(attempt) = &mut self.state {
            if attempt.runs_here() {
                let sent = ready!(S::poll_local(attempt, context));
                // What is left holds nothing of the call.
                self.state = State::Finished;
                return Poll::Ready(sent);
            }
            if let State::Local(attempt) = std::mem::replace(&mut self.state, State::Finished) {
                if attempt.is_repeated() && !attempt.request.end {
                    return Poll::Ready(remote::make_replayed::<S>(attempt));
                }
                self.state = State::Remote(remote::make::<S>(attempt)?);
            }
        }
        let State::Remote(receiver) = &mut self.state else { return Poll::Ready(Err(Status::over())) };
        // A worker that stops in the middle tells nothing: the call may have been begun.
        let sent = ready!(Pin::new(receiver).poll(context)).unwrap_or_else(|_| Err(Status::worker_stopped()));
        self.state = State::Finished;
        Poll::Ready(sent)
    }
}

impl<S: Shape> Future for CallFuture<S> {
    type Output = Result<S::Output, Status>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_sent(context).map(|sent| sent.and_then(S::finish))
    }
}

impl<S: Shape> fmt::Debug for CallFuture<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match &self.state {
            State::Local(attempt) => attempt.path(),
            _ => None,
        };
        f.debug_struct("CallFuture").field("path", &path).finish_non_exhaustive()
    }
}
