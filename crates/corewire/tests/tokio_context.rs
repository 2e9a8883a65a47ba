//! What is made for tokio, in handlers and session tasks of a server in tokio's context.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::time::Duration;

use corewire::{Frame, NetClient, NetServer, NetUri, ServerHandle, Session, StandardCodec, TokioContext};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn client(server: &ServerHandle) -> NetClient {
    let client = NetUri::parse(server.uri()).unwrap().client().codec(StandardCodec::default);
    client.connect_blocking().unwrap()
}

/// Sends `bytes` to a task of tokio by TCP and back.
async fn by_way_of_tokio(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    tokio::time::sleep(Duration::from_millis(1)).await;
    stream.write_all(bytes).await?;
    stream.shutdown().await?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await?;
    echo.await??;
    Ok(got)
}

#[test]
fn a_sessions_task_awaits_what_is_made_for_tokio() {
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .serve(|mut session| async move {
            while let Some(message) = session.next().await {
                let reply = by_way_of_tokio(&message.payload).await.unwrap();
                session.reply(&message, &reply).await.unwrap();
            }
        })
        .tokio(TokioContext::own())
        .workers(2)
        .start()
        .unwrap();
    for _ in 0..4 {
        let client = client(&server);
        for text in ["one", "two"] {
            assert_eq!(corewire::block_on(client.request(text.as_bytes())).unwrap(), text);
        }
    }
}

#[test]
fn a_handler_spawns_on_a_runtime_of_tokio_that_exists() {
    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(|| {
            |session: &Session, frame: Frame<'_>| {
                let (session, payload) = (session.clone(), frame.to_bytes());
                drop(corewire::spawn_local(async move {
                    let twice = tokio::spawn(async move {
                        tokio::time::sleep(Duration::from_millis(1)).await;
                        payload.repeat(2)
                    });
                    session.send(&twice.await.unwrap()).unwrap();
                }));
            }
        })
        .tokio(tokio.handle().clone())
        .workers(1)
        .start()
        .unwrap();
    let client = NetUri::parse(server.uri()).unwrap().client().codec(StandardCodec::default).inbox(8);
    let client = client.connect_blocking().unwrap();
    corewire::block_on(async {
        client.send(b"ab").await.unwrap();
        assert_eq!(client.recv().await.unwrap().payload, "abab");
    });
}

#[test]
fn a_clients_handler_is_in_the_context_of_its_worker() {
    let server = NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(|| |session: &Session, frame: Frame<'_>| session.send(frame.payload()).unwrap())
        .workers(1)
        .start()
        .unwrap();
    let runtime =
        corewire::runtime::Runtime::builder().workers(1).tokio(TokioContext::own()).build().unwrap();
    let (sender, received) = std::sync::mpsc::channel();
    let client = NetUri::parse(server.uri())
        .unwrap()
        .client()
        .codec(StandardCodec::default)
        .handler(move || {
            let sender = sender.clone();
            move |_: &Session, frame: Frame<'_>| {
                let (sender, payload) = (sender.clone(), frame.to_bytes());
                tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    sender.send(payload).unwrap();
                });
            }
        })
        .worker(runtime.handle().worker(0).unwrap())
        .connect_blocking()
        .unwrap();
    corewire::block_on(client.send(b"pushed")).unwrap();
    assert_eq!(received.recv_timeout(Duration::from_secs(20)).unwrap(), "pushed");
}
