//! Requests and matched replies.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use corewire::client::Call;
use corewire::{Bytes, CallError, NetClient, spawn_local};

use super::open::Open;
use super::worker_state::WorkerState;
use crate::pattern::{Pattern, Probe};
use crate::system::monotonic_ns;

/// The messages that the calls of a worker carry: more than there are in flight on a connection, so that a reply that
/// went to the wrong call is told by its content.
pub(crate) fn messages(depth: usize, payload: usize) -> Rc<[Vec<u8>]> {
    let mut pattern = Pattern::new(payload);
    (0..=depth as u64).map(|index| pattern.message(index).to_vec()).collect()
}

/// Starts the task that calls until the phase or the budget ends.
pub(crate) fn start(state: Rc<WorkerState>, client: NetClient, index: usize, open: Option<Rc<Open>>) {
    drop(spawn_local(async move {
        let messages = Rc::clone(&state.messages);
        let mut caller = Caller::new(&state, &client, &messages, index);
        caller.open = open.as_deref();
        poll_fn(|context| caller.poll(context)).await;
        state.shared.finished();
    }));
}

/// The calls of one connection.
struct Caller<'a> {
    state: &'a WorkerState,
    client: &'a NetClient,
    messages: &'a [Vec<u8>],
    index: usize,
    /// The oldest first: the server answers in order, so that is the one to wait for.
    calls: VecDeque<Call<'a>>,
    sent: u64,
    back: u64,
    budget: u64,
    probe: Probe,
    /// Says when calls are due, where it is not when others are back.
    open: Option<&'a Open>,
}

impl<'a> Caller<'a> {
    fn new(state: &'a WorkerState, client: &'a NetClient, messages: &'a [Vec<u8>], index: usize) -> Self {
        let depth = state.args.depth;
        Self {
            state,
            client,
            messages,
            index,
            calls: VecDeque::with_capacity(depth),
            sent: 0,
            back: 0,
            budget: state.budget(index).unwrap_or(u64::MAX),
            probe: Probe::new(depth),
            open: None,
        }
    }

    /// Keeps the pipeline full for as long as the phase and the budget allow; ready after the last reply.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            let may_come = self.fill(context);
            let Some(oldest) = self.calls.front_mut() else {
                return if may_come { Poll::Pending } else { Poll::Ready(()) };
            };
            let Poll::Ready(reply) = Pin::new(oldest).poll(context) else { return Poll::Pending };
            self.calls.pop_front();
            self.take(reply);
        }
    }

    /// Whether it ended only because no call is due yet.
    fn fill(&mut self, context: &mut Context<'_>) -> bool {
        let traffic = self.state.traffic();
        while self.calls.len() < self.state.args.depth && self.sent < self.budget && self.state.may_send() {
            if let Some(open) = self.open {
                match open.poll_take(self.state, context) {
                    Poll::Ready(Some(_)) => {}
                    due => return due.is_pending(),
                }
            } else {
                self.probe.sending(self.sent, self.sent + 1, monotonic_ns);
            }
            traffic.in_flight.add(1);
            traffic.sent_bytes.add(self.state.args.size as u64);
            let mut call = self.client.request(self.message(self.sent));
            self.sent += 1;
            // A call begins when it is first polled.
            if let Poll::Ready(reply) = Pin::new(&mut call).poll(context) {
                self.state.traffic().in_flight.subtract(1);
                let story = || format!("connection {}: a call ended at once: {reply:?}", self.index);
                self.state.shared.error(story);
                self.budget = self.sent;
            } else {
                self.calls.push_back(call);
            }
        }
        false
    }

    fn take(&mut self, reply: Result<Bytes, CallError>) {
        let (state, index, number) = (self.state, self.index, self.back);
        let traffic = state.traffic();
        traffic.in_flight.subtract(1);
        self.back += 1;
        match reply {
            Ok(reply) => {
                traffic.messages.add(1);
                traffic.recv_bytes.add(state.args.size as u64);
                if *reply != *self.message(number) {
                    state.shared.error(|| format!("connection {index}: call {number} got another reply"));
                }
            }
            Err(error) => {
                state.shared.error(|| format!("connection {index}: call {number} failed: {error}"));
                self.budget = self.sent;
            }
        }
        if let Some(open) = self.open {
            open.record(state, number);
        }
        if let Some(nanoseconds) = self.probe.received(self.back, monotonic_ns) {
            state.record(nanoseconds);
        }
    }

    fn message(&self, number: u64) -> &'a [u8] {
        &self.messages[(number % self.messages.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_in_flight_at_the_same_time_differ() {
        let messages = messages(255, 28);
        assert_eq!(messages.len(), 256);
        for (at, message) in messages.iter().enumerate() {
            assert_eq!(message.len(), 28);
            assert!(!messages[..at].contains(message));
        }
    }
}
