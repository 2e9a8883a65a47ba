//! Calls whose futures are polled elsewhere, or that are made several times: a task of the channel's worker makes them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::attempt::{Attempt, Phase};
use super::repeat;
use super::shape::Shape;
use crate::current::Current;
use crate::status::Status;

/// What the call comes to.
pub(super) type Receiver<S> = oneshot::Receiver<Result<<S as Shape>::Sent, Status>>;

/// Has a task of the channel's worker make the call. One in flight goes on there: it is neither cancelled nor made again.
#[cold]
pub(super) fn make<S: Shape>(attempt: Attempt) -> Result<Receiver<S>, Status> {
    let is_new = matches!(attempt.phase, Phase::New(_));
    let worker = attempt.channel.worker().clone();
    let (mut sender, receiver) = oneshot::channel();
    let current = attempt.request.inherits().then(Current::elsewhere);
    let sent = worker.run(move || {
        let current = current.map_or_else(Current::default, Current::from);
        drop(spawn_local(async move {
            let mut call = pin!(repeat::run::<S>(attempt));
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
