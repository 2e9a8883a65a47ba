//! Raw packets that are sent again when they come back.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use corewire_runtime::{CloseReason, Connection, Protocol};

use super::flow::Flow;
use super::station::{Starter, Station};
use crate::system::monotonic_ns;

/// Connects this worker's connections.
pub(crate) fn connect(station: Rc<Station>, mine: impl Iterator<Item = usize>) {
    for index in mine {
        let lane = Rc::new(Lane {
            flow: RefCell::new(Flow::new(station.args.window, station.args.size, station.budget(index))),
            index,
            finished: Cell::new(false),
            station: Rc::clone(&station),
        });
        match super::station::open(&station.args.target, Handler(Rc::clone(&lane))) {
            Ok(connection) => station.add(Starter::Echo(lane, connection)),
            Err(failure) => return station.shared.fault(|| failure.to_string()),
        }
        station.shared.connected();
    }
}

/// One connection's messages.
#[derive(Debug)]
pub(crate) struct Lane {
    station: Rc<Station>,
    flow: RefCell<Flow>,
    index: usize,
    finished: Cell<bool>,
}

impl Lane {
    /// Sends the first window.
    pub(crate) fn start(&self, connection: &Connection) {
        self.send(connection, u64::MAX);
        self.note_finished();
    }

    /// One `send` call for each message.
    #[inline]
    fn send(&self, connection: &Connection, most: u64) {
        let indices = self.flow.borrow_mut().take(most, monotonic_ns);
        let mut pattern = self.station.pattern.borrow_mut();
        let traffic = self.station.traffic();
        let count = indices.end - indices.start;
        traffic.in_flight.add(count);
        traffic.sent_bytes.add(count * self.station.args.size as u64);
        for index in indices {
            if let Err(error) = connection.send(pattern.message(index)) {
                return self.station.shared.fault(|| format!("connection {}: {error}", self.index));
            }
        }
    }

    #[inline]
    fn arrived(&self, connection: &Connection, data: &[u8]) {
        let traffic = self.station.traffic();
        traffic.recv_bytes.add(data.len() as u64);
        let arrived = self.flow.borrow_mut().arrived(data, &self.station.pattern.borrow(), monotonic_ns);
        if let Some(index) = arrived.wrong {
            let connection = self.index;
            self.station.shared.fault(|| {
                format!("connection {connection}: message {index} did not come back as it was sent")
            });
        }
        traffic.messages.add(arrived.whole);
        traffic.in_flight.subtract(arrived.whole);
        if let Some(nanoseconds) = arrived.latency_ns {
            self.station.record(nanoseconds);
        }
        if arrived.whole > 0 && self.station.may_send() {
            self.send(connection, arrived.whole);
            self.note_finished();
        }
    }

    fn note_finished(&self) {
        if self.flow.borrow().is_finished() && !self.finished.replace(true) {
            self.station.shared.finished();
        }
    }
}

struct Handler(Rc<Lane>);

impl Protocol for Handler {
    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        self.0.arrived(connection, &data);
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        if !matches!(reason, CloseReason::Local | CloseReason::Shutdown) {
            self.0.station.shared.fault(|| format!("connection {} ended: {reason}", self.0.index));
        }
    }
}
