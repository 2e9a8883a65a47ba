//! Sends every datagram back: `cargo run -p corewire --example udp_echo_server [URI]`, by default `udp://127.0.0.1:8080`.
//!
//! `udp_echo_client` is the other end. Ctrl-C ends it.

use corewire::{Frame, NetServer, ServerError, Session};

fn main() -> Result<(), ServerError> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "udp://127.0.0.1:8080".to_owned());
    println!("UDP server listening on {uri}");
    let report = NetServer::bind(uri)
        // Each peer is a session: it begins with its first datagram, and ends when it has been silent for long.
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                let peer = session.peer_addr().map_or_else(String::new, |peer| peer.to_string());
                println!("received from {peer}: {}", String::from_utf8_lossy(frame.payload()));
                // Without a codec a frame is a datagram. It leaves at the end of this turn of the loop, straight from
                // the memory that it was received into.
                if let Err(error) = session.send(frame.payload()) {
                    eprintln!("{peer}: {error}");
                }
            }
        })
        .run()?;
    println!("{report}");
    Ok(())
}
