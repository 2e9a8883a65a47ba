//! A hold on a call, from any thread.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use corewire_discovery::Flight;
use corewire_driver::ThreadBound;
use corewire_proto::rpc::{CallKey, Code};
use corewire_runtime::{WorkerHandle, spawn_local};
use futures_channel::oneshot;

use crate::link::{Home, Link, with_link};
use crate::status::Status;

/// Holds a slot of a link. Points at the link on its worker; elsewhere it is a name, and acts by way of the mailbox.
pub(crate) struct Handle {
    /// `None`: the hold was moved out.
    link: Option<ThreadBound<Rc<Link>>>,
    home: Home,
    id: usize,
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
    pub(crate) fn new(link: &Rc<Link>, call: CallKey) -> Self {
        let (home, id) = (link.home, link.id);
        Self { link: Some(ThreadBound::new(link.clone())), home, id, call, flight: None, channel: None }
    }

    /// A hold on nothing, until one is given.
    pub(crate) const fn nothing(home: Home) -> Self {
        Self { link: None, home, id: usize::MAX, call: CallKey::NONE, flight: None, channel: None }
    }

    /// The link and its call, on their worker; `None` elsewhere.
    #[inline]
    pub(crate) fn local(&self) -> Option<(&Link, CallKey)> {
        Some((self.link.as_ref()?.get()?, self.call))
    }

    /// Moves the hold out, and leaves one on nothing.
    pub(crate) fn take(&mut self) -> Self {
        let (flight, channel) = (self.flight.take(), self.channel.take());
        Self { link: self.link.take(), home: self.home, id: self.id, call: self.call, flight, channel }
    }

    pub(crate) const fn key(&self) -> (usize, CallKey) {
        (self.id, self.call)
    }

    /// Acts on the link's worker, whenever that comes to it.
    pub(crate) fn run(&self, act: impl FnOnce(&Link, CallKey) + Send + 'static) {
        if let Some((link, call)) = self.local() {
            return act(link, call);
        }
        let (id, call) = (self.id, self.call);
        self.run_there(move || {
            with_link(id, |link| act(link, call));
        });
    }

    /// Runs on the link's worker, later. One that has stopped has ended its calls.
    pub(crate) fn run_there(&self, act: impl FnOnce() + Send + 'static) {
        let _ = WorkerHandle::of(self.home).map(|home| home.run(act));
    }

    /// Polls on the link's worker until it is ready or the receiver is dropped, in a task there.
    pub(crate) fn remote<T: Send + 'static>(
        &self,
        mut poll: impl FnMut(&Link, CallKey, &mut Context<'_>) -> Poll<T> + Send + 'static,
    ) -> Remote<T> {
        let (mut sender, receiver) = oneshot::channel();
        let (id, call) = (self.id, self.call);
        self.run_there(move || {
            drop(spawn_local(async move {
                let polled = std::future::poll_fn(|context| {
                    if sender.poll_canceled(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    // A link that is gone drops the sender, which says so.
                    with_link(id, |link| poll(link, call, context).map(Some)).unwrap_or(Poll::Ready(None))
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
}

impl Drop for Handle {
    fn drop(&mut self) {
        let Some(bound) = self.link.take() else { return };
        if let Some(link) = bound.get() {
            return link.release_slot(self.call, Code::CANCELLED);
        }
        let call = self.call;
        // The pointer goes home with it.
        self.run_there(move || {
            if let Some(link) = bound.get() {
                link.release_slot(call, Code::CANCELLED);
            }
        });
    }
}
