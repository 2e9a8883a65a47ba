//! A client in a tokio program: `cargo run -p corewire --example from_tokio`.
//!
//! The client lives on a worker of Corewire's own; its futures are awaited in tokio's tasks as any others.

use std::error::Error;

use corewire::{CallError, NetServer, NetUri, StandardCodec};

fn main() -> Result<(), Box<dyn Error>> {
    // A server whose sessions are served by tasks, on its own workers.
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .serve(|mut session| async move {
            while let Some(message) = session.next().await {
                let reply = message.payload.to_ascii_uppercase();
                if session.reply(&message, &reply).await.is_err() {
                    break;
                }
            }
        })
        .workers(1)
        .start()?;
    let uri = NetUri::parse(server.uri())?;

    let tokio = tokio::runtime::Builder::new_multi_thread().build()?;
    tokio.block_on(async {
        let client = uri.client().codec(StandardCodec::default).connect().await?;
        let tasks: Vec<_> = ["one", "two", "three"]
            .map(|word| {
                // A clone is the same client: all tasks share the connection.
                let client = client.clone();
                tokio::spawn(async move {
                    let reply = client.request(word.as_bytes()).await?;
                    Ok::<_, CallError>((word, reply))
                })
            })
            .into();
        for task in tasks {
            let (word, reply) = task.await??;
            println!("{word} -> {}", String::from_utf8_lossy(&reply));
        }
        Ok(())
    })
}
