//! Packets that nobody answers: one `send` call each, or each batch of them.

use std::rc::Rc;

use corewire::client::ClientSendError;
use corewire::{Bytes, CloseReason, Frame, Handler, NetClient, SendError, Session, spawn_local};

use super::worker_state::WorkerState;

/// Starts the task that sends until the phase or the budget ends.
pub(crate) fn start(state: Rc<WorkerState>, client: NetClient, session: Session, index: usize) {
    state.traffic().in_flight.add(1);
    drop(spawn_local(async move {
        if let Err(error) = pour(&state, &client, index).await {
            state.shared.error(|| format!("connection {index}: {error}"));
        }
        if let Err(error) = flushed(&session).await {
            state.shared.error(|| format!("connection {index}: {error}"));
        }
        state.traffic().in_flight.subtract(1);
        state.shared.finished();
    }));
}

async fn pour(state: &WorkerState, client: &NetClient, index: usize) -> Result<(), ClientSendError> {
    let (size, batch) = (state.args.size, state.args.batch as u64);
    let block = Bytes::from(state.pattern.borrow_mut().message(0).repeat(state.args.batch));
    let mut budget = state.budget(index).unwrap_or(u64::MAX);
    let traffic = state.traffic();
    while state.may_send() && budget > 0 {
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
    state: Rc<WorkerState>,
    index: usize,
}

impl Listener {
    pub(crate) fn new(state: Rc<WorkerState>, index: usize) -> Self {
        Self { state, index }
    }
}

impl Handler for Listener {
    fn on_open(&mut self, session: &Session) {
        self.state.opened(self.index, session.clone());
    }

    fn on_frame(&mut self, _: &Session, frame: Frame<'_>) {
        let (index, bytes) = (self.index, frame.payload().len());
        self.state.shared.error(|| format!("connection {index}: {bytes} bytes came that nobody waits for"));
    }

    fn on_close(&mut self, _: &Session, reason: &CloseReason) {
        self.state.closed(self.index, reason);
    }
}
