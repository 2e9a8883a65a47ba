//! Frames that are no replies, kept for [`NetClient::recv`](super::NetClient::recv).

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use corewire_runtime::{Charge, MemoryKind, WorkerHandle};

use super::local::with_local;
use crate::frame::{Frame, Message};
use crate::session::Session;

/// An inbox that holds no more than this is not charged: most never do.
const UNCHARGED_MAX: usize = 4 * 1024;

/// Filled on the worker, emptied from any thread.
#[derive(Debug)]
pub(super) struct Inbox {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// With what each holds.
    messages: VecDeque<(Message, usize)>,
    /// What the messages hold.
    bytes: usize,
    /// What the worker has counted of it, or was told to.
    charged: usize,
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

    /// Adds a message; `charge` counts what the inbox holds.
    pub(super) fn push(&self, frame: &Frame<'_>, session: &Session, charge: &mut Option<Charge>) {
        let held = frame.kept_len() + size_of::<Message>();
        let mut state = self.lock();
        state.bytes += held;
        state.messages.push_back((frame.to_message(), held));
        if state.messages.len() >= self.limit && !state.held_back {
            state.held_back = true;
            session.pause_receive();
        }
        if state.bytes > UNCHARGED_MAX {
            charge.get_or_insert_with(|| session.connection().charge(MemoryKind::Inbox, 0));
        }
        state.recharge(charge);
        wake(state);
    }

    /// Messages were taken: counts what is left.
    pub(super) fn recharge(&self, charge: &mut Option<Charge>) {
        self.lock().recharge(charge);
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

    /// A new connection is not held back yet, and what is held is counted as its own.
    pub(super) fn reopened(&self, session: &Session, charge: &mut Option<Charge>) {
        if self.is_held_back() {
            session.pause_receive();
        }
        if charge.is_some() {
            *charge = Some(session.connection().charge(MemoryKind::Inbox, 0));
            self.recharge(charge);
        }
    }

    pub(super) fn poll(
        &self,
        worker: &WorkerHandle,
        key: usize,
        context: &mut Context<'_>,
    ) -> Poll<Option<Message>> {
        let mut state = self.lock();
        let Some((message, held)) = state.messages.pop_front() else {
            if state.ended {
                return Poll::Ready(None);
            }
            if !state.readers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.readers.push(context.waker().clone());
            }
            return Poll::Pending;
        };
        state.bytes -= held;
        let resumes = state.held_back && state.messages.len() <= self.limit / 2;
        state.held_back &= !resumes;
        // Told in steps, since it may take a message to another thread.
        let was_charged = state.charged > 0 && (state.bytes <= state.charged / 2);
        if was_charged {
            state.charged = state.bytes;
        }
        if resumes || was_charged {
            // A worker that has stopped receives nothing any more.
            let _ = worker.run(move || {
                with_local(key, |client| client.map(|client| client.inbox_taken(resumes)));
            });
        }
        Poll::Ready(Some(message))
    }
}

impl State {
    fn recharge(&mut self, charge: &mut Option<Charge>) {
        if let Some(charge) = charge {
            charge.set(self.bytes);
            self.charged = self.bytes;
        }
    }
}

/// Wakes the readers, after the lock is released.
fn wake(mut state: MutexGuard<'_, State>) {
    let readers = std::mem::take(&mut state.readers);
    drop(state);
    readers.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests;
