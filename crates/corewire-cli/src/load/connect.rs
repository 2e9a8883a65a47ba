//! Connecting the connections of one worker.

use std::cell::RefCell;
use std::rc::Rc;

use corewire::client::ClientBuilder;
use corewire::{Codec, LengthFieldCodec, NetUri, RawCodec, StandardCodec, spawn_local};

use super::echo::{Echoed, Lane};
use super::one_way::Listener;
use super::rpc;
use super::station::Station;
use crate::args::LoadKind;
use crate::failure::Failure;

/// How many connections of a worker are being made at a time.
const AT_A_TIME: usize = 16;

/// Starts to connect; each connection is counted when it is ready, the first failure is noted and ends the rest.
pub(crate) fn connect(station: &Rc<Station>, uri: &NetUri, mine: impl Iterator<Item = usize> + 'static) {
    let mine = Rc::new(RefCell::new(mine));
    for _ in 0..AT_A_TIME {
        let (station, uri, mine) = (Rc::clone(station), uri.clone(), Rc::clone(&mine));
        drop(spawn_local(async move {
            loop {
                let Some(index) = mine.borrow_mut().next() else { return };
                if let Err(error) = connect_one(&station, &uri, index).await {
                    return station.shared.fault(|| error.to_string());
                }
            }
        }));
    }
}

async fn connect_one(station: &Station, uri: &NetUri, index: usize) -> Result<(), Failure> {
    let client = uri.client().no_reconnect();
    let client = match station.args.kind {
        LoadKind::Echo => {
            let made = client.codec(|| RawCodec).handler(move || {
                let station = Station::here();
                let lane = Rc::new(Lane::new(Rc::clone(&station), index));
                station.add_lane(index, Rc::clone(&lane));
                Echoed(lane)
            });
            made.connect().await
        }
        LoadKind::Receive | LoadKind::Udp | LoadKind::UdpSend => framed(client, || RawCodec, index).await,
        LoadKind::Standard => framed(client, StandardCodec::default, index).await,
        LoadKind::LengthField => framed(client, LengthFieldCodec::default, index).await,
        LoadKind::Rpc | LoadKind::Stream => {
            let channel = rpc::connect(&station.args).await?;
            station.reached(index, channel);
            return Ok(());
        }
    }
    .map_err(|error| Failure::Library(error.to_string()))?;
    station.connected(index, client);
    Ok(())
}

async fn framed<C: Codec>(
    client: ClientBuilder,
    codec: impl Fn() -> C + Send + 'static,
    index: usize,
) -> Result<corewire::NetClient, corewire::ConnectError> {
    client.codec(codec).handler(move || Listener::new(Station::here(), index)).connect().await
}
