//! Calls that may be made more than once: retries within a budget, and hedging.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use bytes::Bytes;
use corewire_driver::{clock, entropy};
use corewire_proto::rpc::{Code, Mode};
use corewire_runtime::{Sleep, sleep_until};

use super::attempt::Attempt;
use super::local::LocalChannel;
use super::schedule::{Failed, Schedule};
use super::shape::Shape;
use super::streaming::BidiStreaming;
use crate::feed::Fed;
use crate::replay::Replay;
use crate::status::Status;

/// Makes a call, on the channel's worker: several times if that is allowed and of use.
pub(super) async fn run<S: Shape>(mut call: Attempt) -> Result<S::Sent, Status> {
    if !call.is_repeated() {
        return poll_fn(|context| S::poll_local(&mut call, context)).await;
    }
    let mut attempts = Attempts::<S>::new(call, None)?;
    poll_fn(|context| attempts.poll(context)).await.map(|(sent, _)| sent)
}

/// Makes a call whose requests come one by one, and gives its ends to those who wait for them.
///
/// # Errors
/// No attempt counts.
pub(super) async fn relay(call: Attempt, replay: &Arc<Replay>) -> Result<(), Status> {
    let mut attempts = Attempts::<BidiStreaming<Bytes, Bytes>>::new(call, Some(replay.clone()))?;
    let counts = poll_fn(|context| {
        if !replay.goes_on(context) {
            return Poll::Ready(None);
        }
        attempts.poll(context).map(Some)
    });
    let Some(((sink, responses), mut fed)) = counts.await.transpose()? else { return Ok(()) };
    drop(attempts);
    replay.give_responses(responses.into_responses());
    let mut sink = Some(sink);
    poll_fn(|context| {
        replay.goes_on(context);
        loop {
            if let Some(sink) = &mut sink {
                ready!(fed.poll(replay, sink, context));
            }
            if fed.give(replay, &mut sink) {
                return Poll::Ready(());
            }
        }
    })
    .await;
    Ok(())
}

/// The attempts of a call.
struct Attempts<S: Shape> {
    /// What each of them asks for.
    call: Attempt,
    schedule: Schedule,
    deadline: Option<Instant>,
    in_flight: Vec<InFlight<S>>,
    /// What the last one failed with.
    failure: Status,
    sleep: Option<Sleep>,
    /// Requests that come one by one.
    replay: Option<Arc<Replay>>,
}

enum InFlight<S: Shape> {
    Begun(Attempt),
    /// The call has begun; the server has not answered.
    Silent(S::Sent, Fed),
    Over,
}

impl<S: Shape> Attempts<S> {
    fn new(mut call: Attempt, replay: Option<Arc<Replay>>) -> Result<Self, Status> {
        let Some(local) = call.channel.local().cloned() else {
            return Err(Status::closed().unprocessed());
        };
        let default = (call.request.mode == Mode::Unary).then_some(local.settings.timeout);
        let timeout = call.request.timeout.or(default);
        let now = clock::now();
        let own = timeout.and_then(|timeout| now.checked_add(timeout));
        let deadline = own.into_iter().chain(call.request.outer_deadline()).min();
        let options = call.request.options();
        let retry = options.retry.or(local.settings.retry);
        let hedge = options.hedge.or(local.settings.hedge);
        // Each attempt goes elsewhere, if there is an elsewhere.
        options.avoided = local.discovered.is_some().then(Arc::default);
        let schedule = Schedule::new(retry, hedge, now, deadline);
        let (in_flight, failure) = (Vec::new(), Status::deadline().unprocessed());
        Ok(Self { call, schedule, deadline, in_flight, failure, sleep: None, replay })
    }

    /// Ready with the attempt that counts, and what it was sent.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(S::Sent, Fed), Status>> {
        loop {
            if let Poll::Ready(result) = self.poll_in_flight(context) {
                return Poll::Ready(result);
            }
            let Some(at) = self.schedule.next() else { return Poll::Pending };
            let now = clock::now();
            if at > now {
                let sleep = self.sleep.insert(sleep_until(at));
                match Pin::new(sleep).poll(context) {
                    Poll::Ready(()) => continue,
                    Poll::Pending => return Poll::Pending,
                }
            }
            if !self.schedule.needs_token() || self.with_channel(LocalChannel::take_token) == Some(true) {
                self.schedule.begin(now);
                self.in_flight.push(InFlight::Begun(self.again(now)));
            } else if self.schedule.deny() == Failed::Call {
                return Poll::Ready(Err(self.failure.clone()));
            }
        }
    }

    /// Ready with the result of the call.
    fn poll_in_flight(&mut self, context: &mut Context<'_>) -> Poll<Result<(S::Sent, Fed), Status>> {
        let mut index = 0;
        let replay = self.replay.clone();
        while let Some(attempt) = self.in_flight.get_mut(index) {
            match attempt.poll(replay.as_deref(), context) {
                Poll::Pending => index += 1,
                Poll::Ready(Ok(sent)) => {
                    self.with_channel(LocalChannel::refill_tokens);
                    return Poll::Ready(Ok(sent));
                }
                Poll::Ready(Err(status)) => {
                    drop(self.in_flight.remove(index));
                    let may_repeat = matches!(status.code(), Code::UNAVAILABLE | Code::CONNECTION_CLOSED);
                    if self.schedule.fail(clock::now(), may_repeat, entropy::f64()) == Failed::Call {
                        return Poll::Ready(Err(status));
                    }
                    self.failure = status;
                }
            }
        }
        Poll::Pending
    }

    /// One more of the same, within the time that is left.
    fn again(&self, now: Instant) -> Attempt {
        let mut request = self.call.request.again();
        let left = self.deadline.map(|deadline| deadline.saturating_duration_since(now));
        request.timeout = left.or(request.timeout);
        let mut again = Attempt::new(self.call.channel.clone(), request);
        if self.call.noted.is_some() {
            again.noted = Some(Box::default());
        }
        again
    }

    fn with_channel<R>(&self, act: impl FnOnce(&LocalChannel) -> R) -> Option<R> {
        self.call.channel.local().map(|channel| act(channel))
    }
}

impl<S: Shape> InFlight<S> {
    /// Ready once the server has begun to answer, or no other attempt can be made.
    fn poll(
        &mut self,
        replay: Option<&Replay>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(S::Sent, Fed), Status>> {
        if let Self::Begun(attempt) = self {
            match S::poll_local(attempt, context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(sent)) => *self = Self::Silent(sent, Fed::default()),
                Poll::Ready(Err(status)) => return Poll::Ready(Err(status)),
            }
        }
        if let Self::Silent(sent, fed) = self {
            if let Some(replay) = replay {
                // It waits for the server to take more; the response may come first.
                let _ = S::poll_feed(sent, replay, fed, context);
            }
            match S::poll_response(sent, context) {
                Poll::Ready(Err(status)) => return Poll::Ready(Err(status)),
                Poll::Pending if !replay.is_some_and(Replay::is_full) => return Poll::Pending,
                _ => {}
            }
        }
        match std::mem::replace(self, Self::Over) {
            Self::Silent(sent, fed) => Poll::Ready(Ok((sent, fed))),
            _ => Poll::Ready(Err(Status::over())),
        }
    }
}
