//! A hold on a call, from any thread.

use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_discovery::Flight;
use corewire_proto::rpc::Code;
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use crate::link::{Home, Link, with_link};
use crate::status::Status;

/// Holds a slot of a link. Acts at once on the link's worker, by way of its mailbox elsewhere.
pub(crate) struct Handle {
    home: Home,
    link: usize,
    slot_index: usize,
    /// Of a call by a channel that balances: in flight for as long as this is held.
    pub(crate) flight: Option<Flight>,
    /// The channel that made the call, which is open for as long as this is held.
    pub(crate) channel: Option<Arc<dyn Any + Send + Sync>>,
}

/// What comes back from the link's worker.
pub(crate) type Remote<T> = oneshot::Receiver<T>;

impl Handle {
    /// One of the holders that the slot counts.
    pub(crate) fn new(link: &Link, slot_index: usize) -> Self {
        Self { home: link.home.clone(), link: link.id, slot_index, flight: None, channel: None }
    }

    /// Acts on the link's worker; `None` if the calling code runs elsewhere (or the link is gone).
    #[inline]
    pub(crate) fn local<R>(&self, act: impl FnOnce(&Rc<Link>, usize) -> R) -> Option<R> {
        if !Link::is_here(&self.home) {
            return None;
        }
        with_link(self.link, |link| act(link, self.slot_index))
    }

    pub(crate) fn is_local(&self) -> bool {
        Link::is_here(&self.home)
    }

    pub(crate) const fn home(&self) -> &Home {
        &self.home
    }

    /// Moves the hold out, and leaves one on nothing.
    pub(crate) fn take(&mut self) -> Self {
        let nothing = Self {
            home: self.home.clone(),
            link: usize::MAX,
            slot_index: usize::MAX,
            flight: None,
            channel: None,
        };
        std::mem::replace(self, nothing)
    }

    pub(crate) const fn key(&self) -> (usize, usize) {
        (self.link, self.slot_index)
    }

    /// Acts on the link's worker, whenever that comes to it.
    pub(crate) fn run(&self, act: impl FnOnce(&Rc<Link>, usize) + Send + 'static) {
        if Link::is_here(&self.home) {
            with_link(self.link, |link| act(link, self.slot_index));
            return;
        }
        let (link, slot_index) = (self.link, self.slot_index);
        // A worker that has stopped has ended its calls.
        let _ = self.home.run(move || {
            with_link(link, |link| act(link, slot_index));
        });
    }

    /// Polls on the link's worker until it is ready or the receiver is dropped, in a task there. Drop that before the handle:
    /// once the slot is given back, its index may be that of another call.
    pub(crate) fn remote<T: Send + 'static>(
        &self,
        mut poll: impl FnMut(&Rc<Link>, usize, &mut Context<'_>) -> Poll<T> + Send + 'static,
    ) -> Remote<T> {
        let (mut sender, receiver) = oneshot::channel();
        let (link, slot_index) = (self.link, self.slot_index);
        let _ = self.home.run(move || {
            drop(spawn_local(async move {
                let polled = std::future::poll_fn(|context| {
                    if sender.poll_canceled(context).is_ready() {
                        return Poll::Ready(None);
                    }
                    // A link that is gone drops the sender, which says so.
                    with_link(link, |link| poll(link, slot_index, context).map(Some))
                        .unwrap_or(Poll::Ready(None))
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
        self.run(move |link, slot_index| {
            link.with(|state| {
                let Some(slot) = state.slots.get_mut(slot_index).filter(|slot| slot.is_live) else { return };
                let key = slot.key;
                // A call of which both halves have ended is over: there is nothing to cancel, and nobody to tell.
                if state.machine.cancel(key, code, reason, &mut state.out).is_ok() {
                    slot.is_lost(Status::new(code, reason));
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
        self.local(|link, slot_index| link.poll_next(slot_index, context))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.run(|link, slot_index| link.release_slot(slot_index, Code::CANCELLED));
    }
}
