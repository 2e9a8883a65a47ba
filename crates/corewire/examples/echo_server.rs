//! Sends every frame back: `cargo run -p corewire --example echo_server [URI]`.
//!
//! Ctrl-C ends it in order: what is under way is finished, and what had to be cut is reported.

use corewire::{Frame, NetServer, ServerError, Session, StandardCodec};

fn main() -> Result<(), ServerError> {
    let uri = std::env::args().nth(1).unwrap_or_else(|| "tcp://127.0.0.1:7777".to_owned());
    println!("echo of SRMP frames on {uri}; Ctrl-C ends it");
    let report = NetServer::bind(uri)
        // Made for each connection, as is the handler: neither is ever shared or locked.
        .codec(StandardCodec::default)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                // The payload lies in the receive buffer; the reply is copied to the send queue, and leaves with all
                // others of this turn of the loop in one system call.
                if let Err(error) = session.reply(&frame, frame.payload()) {
                    eprintln!("session {}: {error}", session.id());
                }
            }
        })
        .run()?;
    println!("{report}");
    Ok(())
}
