//! Packets that nobody answers: one `send` call each, or each batch of them.

use std::rc::Rc;

use corewire::client::ClientSendError;
use corewire::{Bytes, CloseReason, Frame, Handler, NetClient, SendError, Session, spawn_local};

use super::station::Station;

/// Starts the task that sends until the phase or the budget ends.
pub(crate) fn start(station: Rc<Station>, client: NetClient, session: Session, index: usize) {
    station.traffic().in_flight.add(1);
    drop(spawn_local(async move {
        if let Err(error) = pour(&station, &client, index).await {
            station.shared.fault(|| format!("connection {index}: {error}"));
        }
        if let Err(error) = flushed(&session).await {
            station.shared.fault(|| format!("connection {index}: {error}"));
        }
        station.traffic().in_flight.subtract(1);
        station.shared.finished();
    }));
}

async fn pour(station: &Station, client: &NetClient, index: usize) -> Result<(), ClientSendError> {
    let (size, batch) = (station.args.size, station.args.batch as u64);
    let block = Bytes::from(station.pattern.borrow_mut().message(0).repeat(station.args.batch));
    let mut budget = station.budget(index).unwrap_or(u64::MAX);
    let traffic = station.traffic();
    while station.may_send() && budget > 0 {
        let packets = batch.min(budget);
        let bytes = packets as usize * size;
        if batch == 1 {
            client.send(&block[..bytes]).await?;
        } else {
            // Many packets in one piece of memory: shared with the library instead of copied.
            client.send_bytes(block.slice(..bytes)).await?;
        }
        traffic.sent_bytes.add(bytes as u64);
        budget -= packets;
    }
    Ok(())
}

async fn flushed(session: &Session) -> Result<(), SendError> {
    session.flushed().await
}

/// The handler of a client whose server is a sink.
pub(crate) struct Listener {
    station: Rc<Station>,
    index: usize,
}

impl Listener {
    pub(crate) fn new(station: Rc<Station>, index: usize) -> Self {
        Self { station, index }
    }
}

impl Handler for Listener {
    fn on_open(&mut self, session: &Session) {
        self.station.opened(self.index, session.clone());
    }

    fn on_frame(&mut self, _: &Session, frame: Frame<'_>) {
        let (index, bytes) = (self.index, frame.payload().len());
        self.station.shared.fault(|| format!("connection {index}: {bytes} bytes came that nobody waits for"));
    }

    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        self.station.closed(self.index, reason);
    }
}
