//! A hold on a call, from any thread.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_discovery::Flight;
use corewire_proto::rpc::{CallKey, Code};
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use crate::link::{Home, Link, with_link};
use crate::status::Status;

/// Holds a slot of a link. Acts at once on the link's worker, by way of its mailbox elsewhere.
pub(crate) struct Handle {
    home: Home,
    link: usize,
    call: CallKey,
    /// Of a call by a channel that balances: in flight for as long as this is held.
    pub(crate) flight: Option<Flight>,
    /// The channel that made the call, which is open for as long as this is held.
    pub(crate) channel: Option<Arc<dyn Any + Send + Sync>>,
}

/// What comes back from the link's worker.
pub(crate) type Remote<T> = oneshot::Receiver<T>;

impl Handle {
    /// One of the holders that the slot counts.
    pub(crate) fn new(link: &Link, call: CallKey) -> Self {
        Self { home: link.home.clone(), link: link.id, call, flight: None, channel: None }
    }

    /// Acts on the link's worker; `None` if the calling code runs elsewhere (or the link is gone).
    #[inline]
    pub(crate) fn local<R>(&self, act: impl FnOnce(&Rc<Link>, CallKey) -> R) -> Option<R> {
        if !Link::is_here(&self.home) {
            return None;
        }
        with_link(self.link, |link| act(link, self.call))
    }

    pub(crate) fn is_local(&self) -> bool {
        Link::is_here(&self.home)
    }

    pub(crate) const fn home(&self) -> &Home {
        &self.home
    }

    /// Moves the hold out, and leaves one on nothing.
    pub(crate) fn take(&mut self) -> Self {
        let nothing =
            Self { home: self.home.clone(), link: usize::MAX, call: self.call, flight: None, channel: None };
        std::mem::replace(self, nothing)
    }

    pub(crate) const fn key(&self) -> (usize, CallKey) {
        (self.link, self.call)
    }

    /// Acts on the link's worker, whenever that comes to it.
    pub(crate) fn run(&self, act: impl FnOnce(&Rc<Link>, CallKey) + Send + 'static) {
        if Link::is_here(&self.home) {
            with_link(self.link, |link| act(link, self.call));
            return;
        }
        let (link, call) = (self.link, self.call);
        // A worker that has stopped has ended its calls.
        let _ = self.home.run(move || {
            with_link(link, |link| act(link, call));
        });
    }

    /// Polls on the link's worker until it is ready or the receiver is dropped, in a task there.
    pub(crate) fn remote<T: Send + 'static>(
        &self,
        mut poll: impl FnMut(&Rc<Link>, CallKey, &mut Context<'_>) -> Poll<T> + Send + 'static,
    ) -> Remote<T> {
        let (mut sender, receiver) = oneshot::channel();
        let (link, call) = (self.link, self.call);
        let _ = self.home.run(move || {
            drop(spawn_local(async move {
                let polled = std::future::poll_fn(|context| {
                    if sender.poll_canceled(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    // A link that is gone drops the sender, which says so.
                    with_link(link, |link| poll(link, call, context).map(Some)).unwrap_or(Poll::Ready(None))
                });
                if let Some(result) = polled.await {
                    // Whoever asked may have gone.
                    let _ = sender.send(result);
                }
            }));
        });
        receiver
    }

    /// Cancels the call, if it is not over.
    pub(crate) fn cancel(&self, code: Code, reason: &'static str) {
        self.run(move |link, call| {
            link.with(|state| {
                // A call of which both halves have ended is over: there is nothing to cancel, and nobody to tell.
                if state.machine.cancel(call, code, reason, &mut state.out).is_ok() {
                    state.lose(call, Status::new(code, reason));
                }
            });
            // What it had not taken counts no more.
            link.resume();
        });
    }

    /// The next message of the peer's half, on the link's worker.
    #[inline]
    pub(crate) fn poll_next_local(
        &self,
        context: &mut Context<'_>,
    ) -> Option<Poll<Option<Result<Bytes, Status>>>> {
        self.local(|link, call| link.poll_next(call, context))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.run(|link, call| link.release_slot(call, Code::CANCELLED));
    }
}
