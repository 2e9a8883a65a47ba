//! Calls in which one side or both send any number of messages.

use std::future::{Future, poll_fn};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_runtime::WorkerId;

use super::attempt::Attempt;
use super::discovered::FlightId;
use super::shape::Shape;
use crate::feed::Fed;
use crate::handle::Handle;
use crate::message::Message;
use crate::metadata::Metadata;
use crate::replay::Replay;
use crate::sink::Sink;
use crate::status::Status;
use crate::stream::Streaming;

/// Any number of requests, one response. The call's future gives both ends once the call has begun.
#[derive(Debug)]
pub struct ClientStreaming<Req, Resp>(PhantomData<fn(Req) -> Resp>);

/// One request, any number of responses. The call's future gives the responses once the call has begun.
#[derive(Debug)]
pub struct ServerStreaming<Resp>(PhantomData<fn() -> Resp>);

/// Any number of both. The call's future gives both ends once the call has begun.
#[derive(Debug)]
pub struct BidiStreaming<Req, Resp>(PhantomData<fn(Req) -> Resp>);

impl<Req: 'static, Resp: 'static> Shape for ClientStreaming<Req, Resp> {
    type Output = (Sink<Req>, ResponseFuture<Resp>);
    type Sent = Self::Output;
    const HOLDERS: u8 = 2;

    fn poll_local(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Self::Sent, Status>> {
        let [sink, response] = ready!(poll_handles(attempt, context))?;
        let sink = Sink::of_caller(sink, attempt.request.end);
        Poll::Ready(Ok((sink, ResponseFuture(Streaming::new(response, true)))))
    }

    fn poll_response(sent: &mut Self::Sent, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        sent.1.0.poll_response(context)
    }

    fn replayed(home: WorkerId, replay: &Arc<Replay>) -> Option<Self::Sent> {
        let response = Streaming::replayed(home, replay.clone());
        Some((Sink::replayed(home, replay.clone()), ResponseFuture(response)))
    }

    fn finish(sent: Self::Sent) -> Result<Self::Output, Status> {
        Ok(sent)
    }
}

impl<Resp: 'static> Shape for ServerStreaming<Resp> {
    type Output = Streaming<Resp>;
    type Sent = Self::Output;
    const HOLDERS: u8 = 1;

    fn poll_local(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Self::Sent, Status>> {
        let [responses] = ready!(poll_handles(attempt, context))?;
        Poll::Ready(Ok(Streaming::new(responses, true)))
    }

    fn poll_response(sent: &mut Self::Sent, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        sent.poll_response(context)
    }

    fn finish(sent: Self::Sent) -> Result<Self::Output, Status> {
        Ok(sent)
    }
}

impl<Req: 'static, Resp: 'static> Shape for BidiStreaming<Req, Resp> {
    type Output = (Sink<Req>, Streaming<Resp>);
    type Sent = Self::Output;
    const HOLDERS: u8 = 2;

    fn poll_local(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Self::Sent, Status>> {
        let [sink, responses] = ready!(poll_handles(attempt, context))?;
        Poll::Ready(Ok((Sink::of_caller(sink, attempt.request.end), Streaming::new(responses, true))))
    }

    fn poll_response(sent: &mut Self::Sent, context: &mut Context<'_>) -> Poll<Result<(), Status>> {
        sent.1.poll_response(context)
    }

    fn replayed(home: WorkerId, replay: &Arc<Replay>) -> Option<Self::Sent> {
        Some((Sink::replayed(home, replay.clone()), Streaming::replayed(home, replay.clone())))
    }

    fn poll_feed(
        sent: &mut Self::Sent,
        replay: &Replay,
        fed: &mut Fed,
        context: &mut Context<'_>,
    ) -> Poll<()> {
        fed.poll(replay, &mut sent.0, context)
    }

    fn finish(sent: Self::Sent) -> Result<Self::Output, Status> {
        Ok(sent)
    }
}

/// The one response of a client-stream call. Dropping it cancels the call.
#[derive(Debug)]
#[must_use = "dropping it cancels the call"]
pub struct ResponseFuture<Resp = Bytes>(Streaming<Resp>);

impl<Resp: Message> ResponseFuture<Resp> {
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

impl<Resp: Message> Future for ResponseFuture<Resp> {
    type Output = Result<Resp, Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll_only(context)
    }
}

/// Begins a call and makes the handles on it.
fn poll_handles<const COUNT: usize>(
    attempt: &mut Attempt,
    context: &mut Context<'_>,
) -> Poll<Result<[Handle; COUNT], Status>> {
    let begun = ready!(attempt.poll_begin(context))?;
    let mut handles = std::array::from_fn(|_| Handle::new(&begun.link, begun.call));
    // The last one is that of the responses: the call is in flight as long as it is held.
    if let Some(last) = handles.last_mut() {
        last.channel = Some(attempt.channel.hold());
        if begun.flight != FlightId::NONE {
            last.flight = attempt.channel.take_flight(begun.flight);
        }
    }
    Poll::Ready(Ok(handles))
}
