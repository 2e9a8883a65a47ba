//! A call with one request and one response.

use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use corewire_proto::rpc::Code;

use super::attempt::{Attempt, InFlight, Phase};
use super::call::CallFuture;
use super::discovered::FlightId;
use super::shape::Shape;
use super::start::Wait;
use crate::message::Message;
use crate::metadata::Metadata;
use crate::status::Status;

/// One request, one response.
#[derive(Debug)]
pub struct Unary<Resp = Bytes>(PhantomData<fn() -> Resp>);

/// A call with one request and one response.
pub type UnaryCall<Resp = Bytes> = CallFuture<Unary<Resp>>;

/// A response, and what the server sent beside it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Answer {
    pub(super) payload: Bytes,
    /// If it was asked for.
    pub(super) metadata: Option<Box<Metadata>>,
}

/// A call that no server began is begun this often at the most.
const BEGINS_MAX: usize = 5;

impl<Resp: Message> Shape for Unary<Resp> {
    type Output = Resp;
    type Sent = Answer;
    const HOLDERS: u8 = 1;

    #[inline]
    fn poll_local(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Answer, Status>> {
        let result = ready!(poll_payload(attempt, context));
        attempt.phase = Phase::Over;
        if attempt.noted.is_none() {
            return Poll::Ready(result.map(|payload| Answer { payload, metadata: None }));
        }
        attempt.tell_end(result.as_ref().map_or_else(Status::code, |_| Code::OK));
        let metadata = attempt.noted.take().map(|noted| Box::new(noted.metadata));
        Poll::Ready(result.map(|payload| Answer { payload, metadata }))
    }

    fn poll_response(_: &mut Answer, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    #[inline]
    fn finish(answer: Answer) -> Result<Resp, Status> {
        Resp::decode(answer.payload)
    }
}

#[inline]
fn poll_payload(attempt: &mut Attempt, context: &mut Context<'_>) -> Poll<Result<Bytes, Status>> {
    for _ in 0..BEGINS_MAX {
        let InFlight { link, call, flight, deadline_ms } = match &attempt.phase {
            Phase::InFlight(in_flight) => in_flight,
            Phase::New(_) => {
                if attempt.channel.is_watched() {
                    let noted = attempt.noted.get_or_insert_default();
                    noted.began.get_or_insert_with(corewire_driver::clock::now);
                }
                let begun = ready!(attempt.poll_begin(context))?;
                attempt.phase = Phase::InFlight(begun.into());
                return Poll::Pending;
            }
            Phase::Over => return Poll::Ready(Err(Status::over())),
        };
        let (call, flight, deadline_ms) = (*call, *flight, *deadline_ms);
        let Some(link) = link.get() else { return Poll::Ready(Err(Status::closed())) };
        if let Some(noted) = &mut attempt.noted {
            noted.metadata = link.metadata(call).1;
        }
        let result = ready!(link.poll_reply(call, context));
        if flight != FlightId::NONE {
            attempt.channel.on_outcome(flight, Some(&result));
        }
        match result {
            // No server has begun it: it may go to another, within the same time.
            Err(status) if status.is_unprocessed() => {
                attempt.phase = Phase::New(Wait::until(&attempt.channel, deadline_ms));
            }
            result => return Poll::Ready(result),
        }
    }
    Poll::Ready(Err(Status::unavailable("no server begins the call").unprocessed()))
}

impl<Resp: Message> CallFuture<Unary<Resp>> {
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
    /// let (value, metadata) = corewire::block_on(channel.unary("Cache/get", "key").with_metadata())?;
    /// assert_eq!((&value[..], metadata.get_str("age-s")), (&b"value"[..], Some("12")));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_metadata(mut self) -> WithMetadata<Resp> {
        if let Some(attempt) = self.attempt() {
            attempt.noted.get_or_insert_default();
        }
        WithMetadata(self)
    }
}

/// The future of [`CallFuture::with_metadata`].
#[derive(Debug)]
#[must_use = "a call begins when it is first polled"]
pub struct WithMetadata<Resp: Message = Bytes>(UnaryCall<Resp>);

impl<Resp: Message> Future for WithMetadata<Resp> {
    type Output = Result<(Resp, Metadata), Status>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Answer { payload, metadata } = ready!(self.0.poll_sent(context))?;
        let metadata = metadata.map_or(Metadata::EMPTY, |metadata| *metadata);
        Poll::Ready(Resp::decode(payload).map(|response| (response, metadata)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_stays_small() {
        assert!(size_of::<UnaryCall>() <= 176, "{} bytes", size_of::<UnaryCall>());
    }
}
