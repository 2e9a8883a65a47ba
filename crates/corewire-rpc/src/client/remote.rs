//! Calls whose futures are polled elsewhere, or that are made several times: a task of the channel's worker makes them.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::attempt::{Attempt, Phase};
use super::repeat;
use super::shape::Shape;
use crate::current::Current;
use crate::replay::Replay;
use crate::status::Status;

/// What the call comes to.
pub(super) type Receiver<S> = oneshot::Receiver<Result<<S as Shape>::Sent, Status>>;

/// Has a task of the channel's worker make the call. One in flight goes on there: it is neither cancelled nor made again.
#[cold]
pub(super) fn make<S: Shape>(attempt: Attempt) -> Result<Receiver<S>, Status> {
    let is_new = matches!(attempt.phase, Phase::New(_));
    let (mut sender, receiver) = oneshot::channel();
    let spawned = spawn(attempt, |attempt| async move {
        let mut call = pin!(repeat::run::<S>(attempt));
        let result = poll_fn(|context| match call.as_mut().poll(context) {
            Poll::Ready(result) => Poll::Ready(Some(result)),
            // Nobody waits any more: the call is dropped, and so cancelled.
            Poll::Pending => sender.poll_canceled(context).map(|()| None),
        });
        if let Some(result) = result.await {
            // Dropped in the last moment.
            let _ = sender.send(result);
        }
    });
    spawned.map(|()| receiver).map_err(|stopped| if is_new { stopped.unprocessed() } else { stopped })
}

/// Has a task of the channel's worker make a call whose requests come one by one, as often as it may be; the ends of it.
#[cold]
pub(super) fn make_replayed<S: Shape>(attempt: Attempt) -> Result<S::Sent, Status> {
    let retry = attempt.request.options.as_ref().and_then(|options| options.retry);
    let replay = attempt.channel.replay(retry);
    let Some(sent) = S::replayed(attempt.channel.worker().id(), &replay) else {
        return Err(Status::over());
    };
    let guard = FailOnDrop(replay);
    spawn(attempt, |attempt| async move {
        let made = repeat::relay(attempt, &guard.0).await;
        // Whoever has its end by now is told by that.
        guard.0.fail(&made.err().unwrap_or_else(|| Status::cancelled("the call is over")));
    })?;
    Ok(sent)
}

/// A worker that stops in the middle tells nothing else.
struct FailOnDrop(Arc<Replay>);

impl Drop for FailOnDrop {
    fn drop(&mut self) {
        self.0.fail(&Status::worker_stopped());
    }
}

/// Runs a task on the channel's worker that makes the call, as one of the handler that makes it here.
fn spawn<F: Future<Output = ()> + 'static>(
    attempt: Attempt,
    make: impl FnOnce(Attempt) -> F + Send + 'static,
) -> Result<(), Status> {
    let worker = attempt.channel.worker().clone();
    let current = attempt.request.inherits().then(Current::elsewhere);
    let spawned = worker.run(move || {
        let current = current.map_or_else(Current::default, Current::from);
        drop(spawn_local(async move {
            let mut making = pin!(make(attempt));
            poll_fn(|context| {
                let _entered = current.enter();
                making.as_mut().poll(context)
            })
            .await;
        }));
    });
    spawned.map_err(|_| Status::worker_stopped())
}
