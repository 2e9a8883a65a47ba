//! What is made for tokio, in the handlers of an RPC server in tokio's context, and in those of a channel's worker.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use corewire::TokioContext;
use corewire_rpc::{
    CallOptions, Channel, ClientInterceptor, Code, Context, MethodPath, RpcServer, Service, Sink, Status,
    Streaming,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Sends `bytes` to a task of tokio by TCP and back.
async fn by_way_of_tokio(bytes: Bytes) -> std::io::Result<Bytes> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    let echo = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await?;
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await
    });
    let mut stream = tokio::net::TcpStream::connect(address).await?;
    stream.write_all(&bytes).await?;
    stream.shutdown().await?;
    let mut got = Vec::new();
    stream.read_to_end(&mut got).await?;
    echo.await??;
    Ok(got.into())
}

fn service() -> Service {
    Service::new("Tokio")
        .unary("sleep", |request: Bytes, _: Context| async move {
            tokio::time::sleep(Duration::from_millis(1)).await;
            Ok(request)
        })
        .unary("connect", |request: Bytes, _: Context| async move {
            by_way_of_tokio(request).await.map_err(|error| Status::internal(error.to_string()))
        })
        .bidi("talk", |mut said: Streaming, mut answers: Sink, _: Context| async move {
            while let Some(line) = said.next().await {
                let line = line?;
                let answer = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(1)).await;
                    line
                });
                answers.send(answer.await.map_err(|error| Status::internal(error.to_string()))?).await?;
            }
            Ok(())
        })
}

async fn all(channel: &Channel) -> Result<(), Status> {
    assert_eq!(channel.unary("Tokio/sleep", "slept").await?, "slept");
    assert_eq!(channel.unary("Tokio/connect", "connected").await?, "connected");
    let (mut say, mut answers) = channel.bidi::<Bytes, Bytes>("Tokio/talk").await?;
    for line in ["one", "two"] {
        say.send(line.into()).await?;
        assert_eq!(answers.next().await.transpose()?.as_deref(), Some(line.as_bytes()));
    }
    say.finish().await?;
    assert!(answers.next().await.is_none());
    Ok(())
}

#[test]
fn handlers_await_what_is_made_for_tokio() {
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(service())
        .tokio(TokioContext::own())
        .workers(2)
        .start()
        .unwrap();
    let channel = Channel::to(server.uri()).build().unwrap();
    corewire::block_on(all(&channel)).unwrap();
}

#[test]
fn without_the_context_the_call_fails_and_the_server_goes_on() {
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(service()).workers(1).start().unwrap();
    let channel = Channel::to(server.uri()).build().unwrap();
    for _ in 0..2 {
        let status = corewire::block_on(channel.unary("Tokio/sleep", "")).unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::INTERNAL, "the handler panicked"));
    }
}

#[test]
fn what_a_channels_worker_calls_is_in_the_context_of_that_worker() {
    struct Spawns(mpsc::Sender<Vec<u8>>);
    impl ClientInterceptor for Spawns {
        fn on_call(&self, path: &MethodPath, _: &mut CallOptions) -> Result<(), Status> {
            let (sender, path) = (self.0.clone(), path.method().to_owned());
            tokio::spawn(async move { sender.send(path).unwrap() });
            Ok(())
        }
    }
    let runtime =
        corewire::runtime::Runtime::builder().workers(1).tokio(TokioContext::own()).build().unwrap();
    let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).start_on(runtime.handle()).unwrap();
    let (sender, told) = mpsc::channel();
    let channel = Channel::to(server.uri())
        .worker(runtime.handle().worker(0).unwrap())
        .interceptor(Spawns(sender))
        .build()
        .unwrap();
    assert_eq!(corewire::block_on(channel.unary("Echo/echo", "x")).unwrap(), "x");
    assert_eq!(told.recv_timeout(Duration::from_secs(20)).unwrap(), b"echo");
}
