//! Packets that nobody answers: one `send` call each, or each batch of them.

use std::rc::Rc;

use bytes::Bytes;
use corewire_runtime::{CloseReason, Connection, Protocol, spawn_local};

use super::station::{Starter, Station};

/// Connects this worker's connections.
pub(crate) fn connect(station: Rc<Station>, mine: impl Iterator<Item = usize>) {
    for index in mine {
        match super::station::open(&station.args.target, Handler(Rc::clone(&station), index)) {
            Ok(connection) => station.add(Starter::OneWay(connection, station.budget(index))),
            Err(failure) => return station.shared.fault(|| failure.to_string()),
        }
        station.shared.connected();
    }
}

/// Starts the task that sends until the phase or the budget ends.
pub(crate) fn start(station: Rc<Station>, connection: Connection, budget: Option<u64>) {
    station.traffic().in_flight.add(1);
    drop(spawn_local(async move {
        if let Err(error) = pour(&station, &connection, budget.unwrap_or(u64::MAX)).await {
            station.shared.fault(|| error.to_string());
        }
        station.traffic().in_flight.subtract(1);
        station.shared.finished();
    }));
}

async fn pour(
    station: &Station,
    connection: &Connection,
    mut budget: u64,
) -> Result<(), corewire_runtime::SendError> {
    let (size, batch) = (station.args.size, station.args.batch as u64);
    let block: Vec<u8> = station.pattern.borrow_mut().message(0).repeat(station.args.batch);
    let traffic = station.traffic();
    while station.may_send() && budget > 0 {
        let packets = batch.min(budget);
        let bytes = packets as usize * size;
        std::future::poll_fn(|context| connection.poll_send_ready(context)).await?;
        connection.send(&block[..bytes])?;
        traffic.sent_bytes.add(bytes as u64);
        budget -= packets;
    }
    std::future::poll_fn(|context| connection.poll_flushed(context)).await
}

struct Handler(Rc<Station>, usize);

impl Protocol for Handler {
    fn on_received(&mut self, _: &Connection, data: Bytes) {
        self.0.shared.fault(|| format!("connection {}: {} bytes came back from a sink", self.1, data.len()));
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        if !matches!(reason, CloseReason::Local | CloseReason::Shutdown) {
            self.0.shared.fault(|| format!("connection {} ended: {reason}", self.1));
        }
    }
}
