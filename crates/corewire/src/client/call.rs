//! The future of a call.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_runtime::spawn_local;
use futures_channel::oneshot;

use super::NetClient;
use super::error::CallError;
use super::local::{Progress, poll_call, with_local};

/// The future of [`NetClient::request`]. `Unpin`, so that many can be kept in a `Vec` and polled in any order.
#[must_use = "a call begins when it is first polled"]
pub struct Call<'a> {
    client: &'a NetClient,
    payload: &'a [u8],
    timeout: Option<Duration>,
    state: State,
}

#[derive(Debug)]
enum State {
    /// On the client's worker (or not begun).
    Here(Progress),
    /// Begun from another thread: a task of the worker's makes the call.
    Away(oneshot::Receiver<Result<Bytes, CallError>>),
    Finished,
}

impl<'a> Call<'a> {
    #[inline]
    pub(super) const fn new(client: &'a NetClient, payload: &'a [u8]) -> Self {
        Self { client, payload, timeout: None, state: State::Here(Progress::New) }
    }

    /// Waits this long for the reply instead of the client's request timeout.
    pub const fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Hands the call to a task of the client's worker: one that begins here, or one that was begun on the worker and
    /// then carried to another thread.
    fn send_away(
        &mut self,
        progress: Progress,
    ) -> Result<oneshot::Receiver<Result<Bytes, CallError>>, CallError> {
        let (sender, receiver) = oneshot::channel();
        let (client, timeout) = (self.client.clone(), self.timeout);
        let payload = Bytes::copy_from_slice(self.payload);
        let began = self.client.shared.worker.run(move || {
            drop(spawn_local(async move {
                let state = State::Here(progress);
                make_for(Call { client: &client, payload: &payload, timeout, state }, sender).await;
            }));
        });
        began.map(|()| receiver).map_err(|_| CallError::Closed)
    }

    /// Gives the call up.
    fn release(&mut self) {
        let State::Here(progress) = std::mem::replace(&mut self.state, State::Finished) else { return };
        let key = self.client.shared.key;
        if self.client.is_here() {
            return with_local(key, |client| {
                if let Some(client) = client {
                    client.give_up(progress)
                }
            });
        }
        // A worker that has stopped has ended the call.
        let _ = self.client.shared.worker.run(move || {
            with_local(key, |client| client.map(|client| client.give_up(progress)));
        });
    }
}

/// Makes a call for somebody on another thread; gives it up when nobody waits there any more.
async fn make_for(mut call: Call<'_>, mut sender: oneshot::Sender<Result<Bytes, CallError>>) {
    let result = std::future::poll_fn(|context| match sender.poll_canceled(context) {
        // Before anything is sent, if it was given up on its way here.
        Poll::Ready(()) => Poll::Ready(None),
        Poll::Pending => Pin::new(&mut call).poll(context).map(Some),
    })
    .await;
    if let Some(result) = result {
        // Given up in the last moment.
        let _ = sender.send(result);
    }
}

impl Future for Call<'_> {
    type Output = Result<Bytes, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match &mut this.state {
            State::Here(progress) if this.client.is_here() => {
                let key = this.client.shared.key;
                let polled = poll_call(key, progress, this.payload, this.timeout, context);
                if polled.is_ready() {
                    this.state = State::Finished;
                }
                polled
            }
            State::Here(progress) => {
                let progress = std::mem::take(progress);
                match this.send_away(progress) {
                    Ok(receiver) => {
                        this.state = State::Away(receiver);
                        self.poll(context)
                    }
                    Err(error) => {
                        this.state = State::Finished;
                        Poll::Ready(Err(error))
                    }
                }
            }
            State::Away(receiver) => {
                let polled = Pin::new(receiver).poll(context);
                polled.map(|sent| {
                    this.state = State::Finished;
                    // The worker has stopped, and the task with it.
                    sent.unwrap_or(Err(CallError::Closed))
                })
            }
            State::Finished => Poll::Ready(Err(CallError::Closed)),
        }
    }
}

impl Drop for Call<'_> {
    #[inline]
    fn drop(&mut self) {
        if matches!(self.state, State::Here(Progress::Waiting(_) | Progress::InFlight(_))) {
            self.release();
        }
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("state", &self.state).finish_non_exhaustive()
    }
}
