//! Raw packets that are sent again when they come back, push style.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corewire::{CloseReason, Frame, Handler, Session};

use super::flow::Flow;
use super::worker_state::WorkerState;
use crate::system::monotonic_ns;

/// One connection's messages.
#[derive(Debug)]
pub(crate) struct EchoConnection {
    state: Rc<WorkerState>,
    flow: RefCell<Flow>,
    index: usize,
    finished: Cell<bool>,
}

impl EchoConnection {
    pub(crate) fn new(state: Rc<WorkerState>, index: usize) -> Self {
        let flow = Flow::new(state.args.depth, state.args.size, state.budget(index));
        Self { state, flow: RefCell::new(flow), index, finished: Cell::new(false) }
    }

    /// Fills the pipeline.
    pub(crate) fn start(&self, session: &Session) {
        self.send(session, u64::MAX);
        self.note_finished();
    }

    /// One `send` call for each message.
    #[inline]
    fn send(&self, session: &Session, most: u64) {
        let indices = self.flow.borrow_mut().take(most, monotonic_ns);
        let mut pattern = self.state.pattern.borrow_mut();
        let traffic = self.state.traffic();
        let count = indices.end - indices.start;
        traffic.in_flight.add(count);
        traffic.sent_bytes.add(count * self.state.args.size as u64);
        for index in indices {
            if let Err(error) = session.send(pattern.message(index)) {
                return self.state.shared.error(|| format!("connection {}: {error}", self.index));
            }
        }
    }

    #[inline]
    fn arrived(&self, session: &Session, data: &[u8]) {
        let traffic = self.state.traffic();
        traffic.recv_bytes.add(data.len() as u64);
        let arrived = self.flow.borrow_mut().arrived(data, &self.state.pattern.borrow(), monotonic_ns);
        if let Some(message) = arrived.wrong {
            let index = self.index;
            self.state
                .shared
                .error(|| format!("connection {index}: message {message} did not come back as it was sent"));
        }
        traffic.messages.add(arrived.whole);
        traffic.in_flight.subtract(arrived.whole);
        if let Some(nanoseconds) = arrived.latency_ns {
            self.state.record(nanoseconds);
        }
        if arrived.whole > 0 && self.state.may_send() {
            self.send(session, arrived.whole);
            self.note_finished();
        }
    }

    fn note_finished(&self) {
        if self.flow.borrow().is_finished() && !self.finished.replace(true) {
            self.state.shared.finished();
        }
    }
}

/// The handler of an echoing client.
pub(crate) struct Echoed(pub(crate) Rc<EchoConnection>);

impl Handler for Echoed {
    fn on_open(&mut self, session: &Session) {
        self.0.state.opened(self.0.index, session.clone());
    }

    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self.0.arrived(session, frame.payload());
    }

    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        self.0.state.closed(self.0.index, reason);
    }
}
