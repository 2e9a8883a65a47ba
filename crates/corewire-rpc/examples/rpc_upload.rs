//! A file upload over a client stream, with progress: `cargo run --example rpc_upload -- FILE`.

use std::error::Error;
use std::io::Read;

use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Status, Streaming};

/// Bytes of one part.
const PART: usize = 64 * 1024;

async fn put(mut parts: Streaming, context: Context) -> Result<Bytes, Status> {
    let name = context.metadata().get_str("name").unwrap_or("unnamed").to_owned();
    let (mut len, mut sum) = (0_u64, 0_u64);
    while let Some(part) = parts.next().await {
        let part = part?;
        len += part.len() as u64;
        sum = part.iter().fold(sum, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
    }
    Ok(Bytes::from(format!("{name}: {len} bytes, checksum {sum:016x}")))
}

fn main() -> Result<(), Box<dyn Error>> {
    let file = std::env::args().nth(1).ok_or("say which file")?;
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(Service::new("Files").client_stream("put", put))
        .workers(1)
        .start()?;
    let channel = Channel::to(server.uri()).build()?;

    let mut source = std::fs::File::open(&file)?;
    let whole = source.metadata()?.len();
    let answer = corewire::block_on(async {
        let opening = channel.client_stream::<Bytes, Bytes>("Files/put").metadata("name", file.clone());
        let (mut sink, reply) = opening.await?;
        let (mut sent, mut part) = (0, vec![0; PART]);
        loop {
            let len = source.read(&mut part)?;
            if len == 0 {
                break;
            }
            // Waits while the server does not keep up.
            sink.send(Bytes::copy_from_slice(&part[..len])).await?;
            sent += len as u64;
            eprint!("\r{:3} %", sent * 100 / whole.max(1));
        }
        eprintln!();
        sink.finish().await?;
        Ok::<_, Box<dyn Error>>(reply.await?)
    })?;
    println!("{}", String::from_utf8_lossy(&answer));
    Ok(())
}
