//! Calls an echo server: `cargo run -p corewire --example echo_client [URI]`. Without a URI it brings its own server.

use std::error::Error;

use corewire::{Frame, NetServer, NetUri, ServerHandle, Session, StandardCodec, run};

fn main() -> Result<(), Box<dyn Error>> {
    // Kept until the end: dropping the handle stops the server.
    let mut own_server = None;
    let uri = match std::env::args().nth(1) {
        Some(uri) => uri,
        None => own_server.insert(serve()?).uri().to_owned(),
    };
    let uri = NetUri::parse(&uri)?;
    // This thread becomes a worker, so that the client's calls take the direct path: no locks, no other threads.
    run(async move {
        let client = uri.client().codec(StandardCodec::default).connect().await?;
        let reply = client.request(b"hello").await?;
        println!("{uri} answers {:?}", String::from_utf8_lossy(&reply));

        // Many calls at once on one connection; each future finds its own reply.
        let texts: Vec<String> = (1..=5).map(|number| format!("call {number}")).collect();
        let calls: Vec<_> = texts.iter().map(|text| client.request(text.as_bytes())).collect();
        for call in calls {
            println!("{uri} answers {:?}", String::from_utf8_lossy(&call.await?));
        }
        Ok(())
    })?
}

fn serve() -> Result<ServerHandle, corewire::ServerError> {
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                if let Err(error) = session.reply(&frame, frame.payload()) {
                    eprintln!("session {}: {error}", session.id());
                }
            }
        })
        .workers(1)
        .start()
}
