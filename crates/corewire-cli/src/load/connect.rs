//! Connecting the connections of one worker.

use std::cell::RefCell;
use std::rc::Rc;

use corewire::client::ClientBuilder;
use corewire::{Codec, LengthFieldCodec, NetUri, RawCodec, StandardCodec, spawn_local};

use super::echo::{EchoConnection, Echoed};
use super::one_way::Listener;
use super::rpc;
use super::worker_state::WorkerState;
use crate::args::LoadKind;
use crate::failure::Failure;

/// How many connections of a worker are being made at a time.
const AT_A_TIME: usize = 16;

/// Starts to connect; each connection is counted when it is ready, the first failure is noted and ends the rest.
pub(crate) fn connect(state: &Rc<WorkerState>, uri: &NetUri, mine: impl Iterator<Item = usize> + 'static) {
    let mine = Rc::new(RefCell::new(mine));
    for _ in 0..AT_A_TIME {
        let (state, uri, mine) = (Rc::clone(state), uri.clone(), Rc::clone(&mine));
        drop(spawn_local(async move {
            loop {
                let Some(index) = mine.borrow_mut().next() else { return };
                if let Err(error) = connect_one(&state, &uri, index).await {
                    return state.shared.error(|| error.to_string());
                }
            }
        }));
    }
}

async fn connect_one(state: &WorkerState, uri: &NetUri, index: usize) -> Result<(), Failure> {
    let client = uri.client().no_reconnect();
    let client = match state.args.kind {
        LoadKind::Echo => {
            let made = client.codec(|| RawCodec).handler(move || {
                let state = WorkerState::here();
                let connection = Rc::new(EchoConnection::new(Rc::clone(&state), index));
                state.add_connection(index, Rc::clone(&connection));
                Echoed(connection)
            });
            made.connect().await
        }
        LoadKind::Receive | LoadKind::Udp | LoadKind::UdpSend => framed(client, || RawCodec, index).await,
        LoadKind::Srmp => framed(client, StandardCodec::default, index).await,
        LoadKind::LengthField => framed(client, LengthFieldCodec::default, index).await,
        LoadKind::Rpc | LoadKind::Stream => {
            let channel = rpc::connect(&state.args).await?;
            state.reached(index, channel);
            return Ok(());
        }
    }
    .map_err(|error| Failure::Library(error.to_string()))?;
    state.connected(index, client);
    Ok(())
}

async fn framed<C: Codec>(
    client: ClientBuilder,
    codec: impl Fn() -> C + Send + 'static,
    index: usize,
) -> Result<corewire::NetClient, corewire::ConnectError> {
    client.codec(codec).handler(move || Listener::new(WorkerState::here(), index)).connect().await
}
