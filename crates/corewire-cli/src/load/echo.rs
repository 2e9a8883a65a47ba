//! Raw packets that are sent again when they come back, push style.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use corewire::{CloseReason, Frame, Handler, Session};

use super::flow::Flow;
use super::station::Station;
use crate::system::monotonic_ns;

/// One connection's messages.
#[derive(Debug)]
pub(crate) struct Lane {
    station: Rc<Station>,
    flow: RefCell<Flow>,
    index: usize,
    finished: Cell<bool>,
}

impl Lane {
    pub(crate) fn new(station: Rc<Station>, index: usize) -> Self {
        let flow = Flow::new(station.args.window, station.args.size, station.budget(index));
        Self { station, flow: RefCell::new(flow), index, finished: Cell::new(false) }
    }

    /// Sends the first window.
    pub(crate) fn start(&self, session: &Session) {
        self.send(session, u64::MAX);
        self.note_finished();
    }

    /// One `send` call for each message.
    #[inline]
    fn send(&self, session: &Session, most: u64) {
        let indices = self.flow.borrow_mut().take(most, monotonic_ns);
        let mut pattern = self.station.pattern.borrow_mut();
        let traffic = self.station.traffic();
        let count = indices.end - indices.start;
        traffic.in_flight.add(count);
        traffic.sent_bytes.add(count * self.station.args.size as u64);
        for index in indices {
            if let Err(error) = session.send(pattern.message(index)) {
                return self.station.shared.fault(|| format!("connection {}: {error}", self.index));
            }
        }
    }

    #[inline]
    fn arrived(&self, session: &Session, data: &[u8]) {
        let traffic = self.station.traffic();
        traffic.recv_bytes.add(data.len() as u64);
        let arrived = self.flow.borrow_mut().arrived(data, &self.station.pattern.borrow(), monotonic_ns);
        if let Some(message) = arrived.wrong {
            let index = self.index;
            self.station
                .shared
                .fault(|| format!("connection {index}: message {message} did not come back as it was sent"));
        }
        traffic.messages.add(arrived.whole);
        traffic.in_flight.subtract(arrived.whole);
        if let Some(nanoseconds) = arrived.latency_ns {
            self.station.record(nanoseconds);
        }
        if arrived.whole > 0 && self.station.may_send() {
            self.send(session, arrived.whole);
            self.note_finished();
        }
    }

    fn note_finished(&self) {
        if self.flow.borrow().is_finished() && !self.finished.replace(true) {
            self.station.shared.finished();
        }
    }
}

/// The handler of an echoing client.
pub(crate) struct Echoed(pub(crate) Rc<Lane>);

impl Handler for Echoed {
    fn on_open(&mut self, session: &Session) {
        self.0.station.opened(self.0.index, session.clone());
    }

    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        self.0.arrived(session, frame.payload());
    }

    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        self.0.station.closed(self.0.index, reason);
    }
}
