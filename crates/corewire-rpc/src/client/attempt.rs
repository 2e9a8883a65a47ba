//! A call on its way: begun on the channel's worker, wherever its future is polled.

use std::fmt;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use corewire_driver::ThreadBound;
use corewire_proto::rpc::{CallKey, Code, MethodPath};

use super::channel::Channel;
use super::discovered::FlightId;
use super::interceptor;
use super::request::Request;
use super::start::{Begun, Wait};
use crate::link::Link;
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
    InFlight(InFlight),
    Over,
}

/// A call in flight: where it was begun.
pub(super) struct InFlight {
    pub(super) link: ThreadBound<Rc<Link>>,
    pub(super) call: CallKey,
    pub(super) flight: FlightId,
    pub(super) deadline_ms: u64,
}

impl From<Begun> for InFlight {
    #[inline]
    fn from(Begun { link, call, flight, deadline_ms }: Begun) -> Self {
        Self { link: ThreadBound::new(link), call, flight, deadline_ms }
    }
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
        self.request.is_repeatable()
            && matches!(self.phase, Phase::New(_))
            && (self.channel.repeats() || self.request.repeats())
    }

    /// Begins the call once there is a connection that takes it. On the channel's worker.
    #[inline]
    pub(super) fn poll_begin(&mut self, context: &mut Context<'_>) -> Poll<Result<Begun, Status>> {
        let Phase::New(wait) = &mut self.phase else { return Poll::Ready(Err(Status::over())) };
        let begun = ready!(self.request.poll_begin(&self.channel, wait, context));
        self.phase = Phase::Over;
        Poll::Ready(begun)
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
            interceptor::on_end(self.channel.interceptors(), path, &noted.metadata, code, took);
        }
    }

    /// Cancels what was begun.
    #[cold]
    fn release(&mut self) {
        match std::mem::replace(&mut self.phase, Phase::Over) {
            Phase::New(mut wait) => wait.release(&self.channel),
            Phase::InFlight(InFlight { link, call, flight, .. }) => {
                if flight != FlightId::NONE {
                    self.channel.on_outcome(flight, None);
                }
                self.channel.run_there(move || {
                    if let Some(link) = link.get() {
                        link.release_slot(call, Code::CANCELLED);
                    }
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
