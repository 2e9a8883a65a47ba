//! A call on its way: begun on the channel's worker, wherever its future is polled.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use corewire_proto::rpc::{Code, MethodPath};
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::call::Shape;
use super::discovered::FlightId;
use super::repeat;
use super::request::Request;
use super::start::{Begun, Wait};
use super::{Channel, on_end};
use crate::current::Current;
use crate::link::{Link, with_link};
use crate::metadata::Metadata;
use crate::status::Status;

/// A call to be begun, or in flight. Moves between threads; only the channel's worker polls it. Dropping it in flight
/// cancels the call.
#[doc(hidden)]
pub struct Attempt {
    pub(super) channel: Channel,
    pub(super) request: Request,
    pub(super) phase: Phase,
    /// Boxed, since only interceptors and those who ask for metadata want to know.
    pub(super) noted: Option<Box<Noted>>,
}

pub(super) enum Phase {
    New(Wait),
    InFlight(Begun),
    Over,
}

/// What is known of a call beside its result.
#[derive(Default)]
pub(super) struct Noted {
    /// Set if interceptors are to be told of the end.
    pub(super) began: Option<Instant>,
    /// What the server sent beside the response.
    pub(super) metadata: Metadata,
}

impl Attempt {
    #[inline]
    pub(super) const fn new(channel: Channel, request: Request) -> Self {
        Self { channel, request, phase: Phase::New(Wait::NEW), noted: None }
    }

    /// It can be polled here and now; other attempts are made by a task of the channel's worker.
    #[inline]
    pub(super) fn runs_here(&self) -> bool {
        self.channel.is_local() && !self.is_repeated()
    }

    /// It may be made several times, which a task does.
    #[inline]
    pub(super) fn is_repeated(&self) -> bool {
        self.channel.repeats() && matches!(self.phase, Phase::New(_)) && self.request.is_repeatable()
    }

    /// Begins the call once there is a connection that takes it. On the channel's worker.
    #[inline]
    pub(super) fn poll_begin(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<(std::rc::Rc<Link>, Begun), Status>> {
        let Phase::New(wait) = &mut self.phase else { return Poll::Ready(Err(Status::over())) };
        let begun = ready!(self.request.poll_begin(&self.channel, wait, context));
        self.phase = Phase::Over;
        Poll::Ready(begun)
    }

    /// Has a task of the channel's worker make the call and send what it comes to. A call in flight goes on there: it is
    /// neither cancelled nor made again.
    #[cold]
    pub(super) fn send_away<S: Shape>(self) -> Result<oneshot::Receiver<Result<S::Sent, Status>>, Status> {
        let is_new = matches!(self.phase, Phase::New(_));
        let worker = self.channel.worker().clone();
        let (mut sender, receiver) = oneshot::channel();
        let current = Current::get().elsewhere();
        let sent = worker.run(move || {
            drop(spawn_local(async move {
                let mut call = pin!(repeat::run::<S>(self));
                let result = poll_fn(|context| {
                    let _entered = current.enter();
                    match call.as_mut().poll(context) {
                        Poll::Ready(result) => Poll::Ready(Some(result)),
                        // Nobody waits any more: the call is dropped, and so cancelled.
                        Poll::Pending => sender.poll_canceled(context).map(|()| None),
                    }
                });
                if let Some(result) = result.await {
                    // Dropped in the last moment.
                    let _ = sender.send(result);
                }
            }));
        });
        sent.map(|()| receiver).map_err(|_| {
            let stopped = Status::worker_stopped();
            if is_new { stopped.unprocessed() } else { stopped }
        })
    }

    pub(super) fn path(&self) -> Option<&MethodPath> {
        self.request.path.get().ok()
    }

    /// Tells interceptors of the end.
    #[cold]
    pub(super) fn tell_end(&self, code: Code) {
        if let (Some(noted), Some(path)) = (&self.noted, self.path())
            && let Some(began) = noted.began
        {
            let took = corewire_driver::clock::now().duration_since(began);
            on_end(self.channel.interceptors(), path, &noted.metadata, code, took);
        }
    }

    /// Cancels what was begun.
    #[cold]
    fn release(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::New(mut wait) => wait.release(&self.channel),
            Phase::InFlight(Begun { link, call, flight, .. }) => {
                if flight != FlightId::NONE {
                    self.channel.on_outcome(flight, None);
                }
                self.channel.run_there(move || {
                    with_link(link as usize, |link| link.release_slot(call, Code::CANCELLED));
                });
            }
            Phase::Over => {}
        }
    }
}

impl Drop for Attempt {
    #[inline]
    fn drop(&mut self) {
        if !matches!(self.phase, Phase::Over) {
            self.release();
        }
    }
}

impl fmt::Debug for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("path", &self.path()).finish_non_exhaustive()
    }
}
