//! Requests that are kept until the server answers, so that a call whose requests come one by one can be made again.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use corewire_proto::rpc::Code;

use crate::handle::Handle;
use crate::status::Status;

const DROPPED: &str = "the caller dropped the responses";

/// What the two ends that a caller has, and the task that makes the attempts, share.
#[doc(hidden)]
pub struct Replay {
    state: Mutex<State>,
    /// Bytes that one call may keep.
    limit: usize,
    /// What all calls of the channel keep, and what they may keep.
    all: Arc<AtomicUsize>,
    all_limit: usize,
}

#[derive(Default)]
struct State {
    requests: Vec<Bytes>,
    kept: usize,
    /// There are no more requests.
    has_ended: bool,
    /// Another request is one too many to be kept: the attempt that is in flight is the last.
    is_full: bool,
    /// The caller has dropped the responses.
    is_cancelled: bool,
    sink: Given<Handle>,
    responses: Given<Responses>,
    sender: Option<Waker>,
    receiver: Option<Waker>,
    maker: Option<Waker>,
}

/// The responses of the attempt that counts: its handle, and what was taken from it already.
pub(crate) type Responses = (Handle, Option<Option<Result<Bytes, Status>>>);

/// An end of the attempt that counts.
#[derive(Default)]
enum Given<T> {
    /// Not known yet.
    #[default]
    No,
    Yes(T),
    Taken,
    Failed(Status),
}

impl<T> Given<T> {
    fn fail(&mut self, status: &Status) {
        if matches!(self, Self::No) {
            *self = Self::Failed(status.clone());
        }
    }
}

/// What an attempt is to send next.
pub(crate) enum Next {
    Request(Bytes),
    End,
    /// Nothing, for now.
    Nothing,
}

/// What a request comes to.
pub(crate) enum Kept {
    /// It is sent by each attempt.
    Yes,
    /// It is to be sent by this.
    Direct(Handle),
}

impl Replay {
    /// `all`: what the calls of the channel keep together.
    pub(crate) fn new(limit: usize, all: Arc<AtomicUsize>, all_limit: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), limit, all, all_limit })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request, as long as there is room; then waits for the end of the attempt that it is to be sent by.
    pub(crate) fn poll_keep(
        &self,
        request: &mut Bytes,
        context: &mut Context<'_>,
    ) -> Poll<Result<Kept, Status>> {
        let state = &mut *self.lock();
        match std::mem::replace(&mut state.sink, Given::Taken) {
            Given::Yes(sink) => return Poll::Ready(Ok(Kept::Direct(sink))),
            Given::Failed(status) => {
                state.sink = Given::Failed(status.clone());
                return Poll::Ready(Err(status));
            }
            other => state.sink = other,
        }
        if !state.is_full && self.has_room(state, request.len()) {
            state.requests.push(std::mem::take(request));
            wake(&mut state.maker);
            return Poll::Ready(Ok(Kept::Yes));
        }
        state.is_full = true;
        state.sender = Some(context.waker().clone());
        wake(&mut state.maker);
        Poll::Pending
    }

    /// Counts the bytes, if there is room for them.
    fn has_room(&self, state: &mut State, bytes: usize) -> bool {
        if state.kept + bytes > self.limit {
            return false;
        }
        if self.all.fetch_add(bytes, Ordering::Relaxed) + bytes > self.all_limit {
            self.all.fetch_sub(bytes, Ordering::Relaxed);
            return false;
        }
        state.kept += bytes;
        true
    }

    /// Ends the requests, behind `last` if there is one. With the end of the attempt that counts its owner does that.
    pub(crate) fn end(&self, last: Option<Bytes>) -> Result<Option<(Handle, Option<Bytes>)>, Status> {
        let state = &mut *self.lock();
        match std::mem::replace(&mut state.sink, Given::Taken) {
            Given::Yes(sink) => return Ok(Some((sink, last))),
            Given::Failed(status) => return Err(status),
            other => state.sink = other,
        }
        // One that had no room yet counts no more.
        state.is_full |= last.is_some();
        state.requests.extend(last);
        state.has_ended = true;
        wake(&mut state.maker);
        Ok(None)
    }

    /// Nobody waits for the responses any more.
    pub(crate) fn cancel(&self) {
        let given = {
            let state = &mut *self.lock();
            state.is_cancelled = true;
            wake(&mut state.maker);
            std::mem::replace(&mut state.responses, Given::Taken)
        };
        if let Given::Yes((handle, _)) = given {
            handle.cancel(Code::CANCELLED, DROPPED);
        }
    }

    /// The responses of the attempt that counts.
    pub(crate) fn poll_responses(&self, context: &mut Context<'_>) -> Poll<Result<Responses, Status>> {
        let state = &mut *self.lock();
        match std::mem::replace(&mut state.responses, Given::Taken) {
            Given::Yes(responses) => Poll::Ready(Ok(responses)),
            Given::Failed(status) => Poll::Ready(Err(status)),
            other => {
                state.responses = other;
                state.receiver = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }

    /// What comes behind the first `sent` requests.
    pub(crate) fn next(&self, sent: usize) -> Next {
        let state = self.lock();
        match state.requests.get(sent) {
            Some(request) => Next::Request(request.clone()),
            None if state.has_ended => Next::End,
            None => Next::Nothing,
        }
    }

    /// Has the task woken by what the caller does; whether it is to go on.
    pub(crate) fn goes_on(&self, context: &mut Context<'_>) -> bool {
        let state = &mut *self.lock();
        state.maker = Some(context.waker().clone());
        !state.is_cancelled
    }

    /// No more can be kept, so that the call can be made no more often.
    pub(crate) fn is_full(&self) -> bool {
        self.lock().is_full
    }

    /// The responses of the attempt that counts.
    pub(crate) fn give_responses(&self, responses: Responses) {
        let late = {
            let state = &mut *self.lock();
            if state.is_cancelled {
                Some(responses)
            } else {
                state.responses = Given::Yes(responses);
                wake(&mut state.receiver);
                None
            }
        };
        if let Some((handle, _)) = late {
            handle.cancel(Code::CANCELLED, DROPPED);
        }
    }

    /// The requests of the attempt that counts, unless there are more than those `sent`; `None`: whatever there is.
    pub(crate) fn give_sink(&self, sent: Option<usize>, sink: impl FnOnce() -> Option<Handle>) -> bool {
        let state = &mut *self.lock();
        if sent.is_some_and(|sent| state.requests.len() > sent || state.has_ended) {
            return false;
        }
        state.sink = sink().map_or(Given::Taken, Given::Yes);
        self.forget(state);
        wake(&mut state.sender);
        true
    }

    /// The call has failed.
    pub(crate) fn fail(&self, status: &Status) {
        let state = &mut *self.lock();
        state.responses.fail(status);
        state.sink.fail(status);
        self.forget(state);
        wake(&mut state.receiver);
        wake(&mut state.sender);
    }

    fn forget(&self, state: &mut State) {
        state.requests = Vec::new();
        self.all.fetch_sub(std::mem::take(&mut state.kept), Ordering::Relaxed);
    }
}

impl Drop for Replay {
    fn drop(&mut self) {
        let kept = std::mem::take(&mut self.lock().kept);
        self.all.fetch_sub(kept, Ordering::Relaxed);
    }
}

fn wake(waker: &mut Option<Waker>) {
    waker.take().into_iter().for_each(Waker::wake);
}

impl fmt::Debug for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Replay").field("limit", &self.limit).finish_non_exhaustive()
    }
}
