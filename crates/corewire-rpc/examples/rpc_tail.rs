//! The end of a log, and what is added to it, over a server stream; the client is a tokio program.
//!
//! `cargo run --example rpc_tail -- FILE`, and append to the file.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::time::Duration;

use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Sink, Status};

/// How often the file is looked at.
const PERIOD: Duration = Duration::from_millis(200);

/// Sends the file's lines, and those that come, until the client drops its stream.
async fn tail(name: Bytes, mut lines: Sink, _: Context) -> Result<(), Status> {
    let name =
        String::from_utf8(name.to_vec()).map_err(|_| Status::invalid("the file's name is not text"))?;
    let file = std::fs::File::open(&name).map_err(|error| Status::invalid(format!("{name}: {error}")))?;
    let (mut file, mut line) = (BufReader::new(file), Vec::new());
    loop {
        let read = file.read_until(b'\n', &mut line);
        read.map_err(|error| Status::internal(format!("{name}: {error}")))?;
        if line.ends_with(b"\n") {
            lines.send(Bytes::from(std::mem::take(&mut line))).await?;
        } else {
            corewire::sleep(PERIOD).await;
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("say which file")?;
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(Service::new("Log").server_stream("tail", tail))
        .workers(1)
        .start()?;
    let channel = Channel::to(server.uri()).build()?;
    let mut lines = channel.server_stream::<Bytes, Bytes>("Log/tail", Bytes::from(file)).await?;
    while let Some(line) = lines.next().await {
        print!("{}", String::from_utf8_lossy(&line?));
    }
    Ok(())
}
