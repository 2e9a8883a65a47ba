//! Frames that are no replies, kept for [`NetClient::recv`](super::NetClient::recv).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use corewire_runtime::WorkerHandle;

use super::local::{LocalClient, with_local};
use crate::frame::Message;
use crate::session::Session;

/// Filled on the worker, emptied from any thread.
#[derive(Debug)]
pub(super) struct Inbox {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    messages: VecDeque<Message>,
    ended: bool,
    held_back: bool,
    readers: Vec<Waker>,
}

impl Inbox {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn push(&self, message: Message, session: &Session) {
        let mut state = self.lock();
        state.messages.push_back(message);
        if state.messages.len() >= self.limit && !state.held_back {
            state.held_back = true;
            session.pause_receive();
        }
        wake(state);
    }

    /// The client is closed: what is left can still be taken.
    pub(super) fn end(&self) {
        let mut state = self.lock();
        state.ended = true;
        wake(state);
    }

    /// Receiving is stopped until half of the messages are taken.
    pub(super) fn is_held_back(&self) -> bool {
        self.lock().held_back
    }

    /// A new connection is not held back yet.
    pub(super) fn reopened(&self, session: &Session) {
        if self.is_held_back() {
            session.pause_receive();
        }
    }

    pub(super) fn poll(
        &self,
        worker: &WorkerHandle,
        key: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Message>> {
        let mut state = self.lock();
        let Some(message) = state.messages.pop_front() else {
            if state.ended {
                return Poll::Ready(None);
            }
            if !state.readers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.readers.push(context.waker().clone());
            }
            return Poll::Pending;
        };
        if state.held_back && state.messages.len() <= self.limit / 2 {
            state.held_back = false;
            // A worker that has stopped receives nothing any more.
            let _ = worker.run(move || {
                with_local(key, |client| client.map(LocalClient::resume_receive));
            });
        }
        Poll::Ready(Some(message))
    }
}

/// Wakes the readers, after the lock is released.
fn wake(mut state: MutexGuard<'_, State>) {
    let readers = std::mem::take(&mut state.readers);
    drop(state);
    readers.into_iter().for_each(Waker::wake);
}
