//! What several tests need.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used)]

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_rpc::{
    Bytes, Channel, Context, RpcServer, ServerGauges, Service, Sink, Status, Streaming, Version,
};

pub const VERSIONS: [Version; 2] = [Version::V1, Version::V2];

/// Echoes in all four modes under one name.
pub fn echo_service(name: &str) -> Service {
    Service::new(name)
        .unary("echo", |request: Bytes, _: Context| async move { Ok(request) })
        .client_stream("echo", |mut requests: Streaming, _: Context| async move {
            let mut all = Vec::new();
            while let Some(request) = requests.next().await {
                all.extend_from_slice(&request?);
            }
            Ok(Bytes::from(all))
        })
        .server_stream("echo", |request: Bytes, mut replies: Sink, _: Context| async move {
            for byte in request.chunks(1) {
                replies.send(Bytes::copy_from_slice(byte)).await?;
            }
            Ok(())
        })
        .bidi("echo", echo_all)
}

pub async fn echo_all(mut requests: Streaming, mut replies: Sink, _: Context) -> Result<(), Status> {
    while let Some(request) = requests.next().await {
        replies.send(request?).await?;
    }
    Ok(())
}

pub fn server(change: impl FnOnce(RpcServer) -> RpcServer) -> ServerHandle {
    gauged(change).0
}

/// A server and what tells what it holds.
pub fn gauged(change: impl FnOnce(RpcServer) -> RpcServer) -> (ServerHandle, ServerGauges) {
    let server = RpcServer::bind("tcp://127.0.0.1:0")
        .service(echo_service("EchoService"))
        .stream_route("StreamBenchService", "echo", echo_all)
        .workers(1);
    let server = change(server);
    let gauges = server.gauges();
    (server.start().unwrap(), gauges)
}

/// A call in every mode and a stream, with a message of `long` bytes in two of them.
pub async fn every_mode(channel: &Channel, long: usize) -> Result<(), Status> {
    assert_eq!(channel.unary("EchoService/echo", "Hello").await?, "Hello");
    let long: Bytes = (0..long).map(|at| (at % 251) as u8).collect();
    assert_eq!(channel.unary("EchoService/echo", long.clone()).await?, long);

    let (mut sink, reply) =
        channel.client_stream::<Bytes, Bytes>("EchoService/echo").first("a".into()).await?;
    sink.send("b".into()).await?;
    sink.send("c".into()).await?;
    sink.finish().await?;
    assert_eq!(reply.await?, "abc");

    let mut parts = channel.server_stream::<Bytes, Bytes>("EchoService/echo", "xyz".into()).await?;
    let mut all = Vec::new();
    while let Some(part) = parts.next().await {
        all.push(part?);
    }
    assert_eq!(all, ["x", "y", "z"]);

    let (mut sink, mut replies) = channel.bidi::<Bytes, Bytes>("EchoService/echo").first("0".into()).await?;
    assert_eq!(replies.next().await.transpose()?.as_deref(), Some(&b"0"[..]));
    for i in 1..20 {
        sink.send(Bytes::from(i.to_string())).await?;
        assert_eq!(replies.next().await.transpose()?, Some(Bytes::from(i.to_string())));
    }
    sink.finish().await?;
    assert!(replies.next().await.is_none());

    let (mut sink, mut replies) = channel.stream("StreamBenchService/echo").await?;
    sink.send(long.clone()).await?;
    assert_eq!(replies.next().await.transpose()?, Some(long));
    sink.finish().await?;
    assert!(replies.next().await.is_none());
    Ok(())
}

/// Waits until the server holds nothing but this many connections.
#[track_caller]
pub fn settles(gauges: &ServerGauges, connections: usize) {
    let mut now = block_on(gauges.read());
    for _ in 0..2_000 {
        if now.is_idle() && now.connections == connections {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
        now = block_on(gauges.read());
    }
    panic!("not idle with {connections} connections within 10 s: {now:?}");
}

/// Counts the handlers that run.
#[derive(Clone, Default)]
pub struct Running {
    now: Arc<AtomicUsize>,
    begun: Arc<AtomicUsize>,
}

pub struct Runs(Running);

impl Running {
    pub fn begin(&self) -> Runs {
        self.now.fetch_add(1, Ordering::SeqCst);
        self.begun.fetch_add(1, Ordering::SeqCst);
        Runs(self.clone())
    }

    /// Handlers that ever began.
    pub fn begun(&self) -> usize {
        self.begun.load(Ordering::SeqCst)
    }

    pub fn now(&self) -> usize {
        self.now.load(Ordering::SeqCst)
    }
}

impl Drop for Runs {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Handlers that never end and read nothing.
pub fn stuck(running: &Running) -> Service {
    let (unary, bidi) = (running.clone(), running.clone());
    Service::new("Stuck")
        .unary("unary", move |_: Bytes, _: Context| {
            let runs = unary.begin();
            async move {
                let _runs = runs;
                std::future::pending::<Result<Bytes, Status>>().await
            }
        })
        .bidi("bidi", move |requests: Streaming, replies: Sink, _: Context| {
            let runs = bidi.begin();
            async move {
                let _held = (runs, requests, replies);
                std::future::pending::<Result<(), Status>>().await
            }
        })
}

pub fn channel(server: &ServerHandle, version: Version) -> Channel {
    Channel::to(server.uri()).protocol(version).build().unwrap()
}

/// A peer of raw bytes.
pub struct Raw(pub TcpStream);

impl Raw {
    pub fn connect(server: &ServerHandle) -> Self {
        let stream = TcpStream::connect(server.local_addrs()[0]).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        Self(stream)
    }

    pub fn send(&mut self, text: &str) {
        self.0.write_all(&hex(text)).unwrap();
    }

    /// Reads as many bytes as are expected, and expects these.
    pub fn expect(&mut self, text: &str) {
        let expected = hex(text);
        let mut read = vec![0; expected.len()];
        self.0.read_exact(&mut read).unwrap();
        assert_eq!(dump(&read), dump(&expected));
    }

    /// The server closes without a further byte (or resets).
    pub fn expect_end(&mut self) {
        let mut rest = Vec::new();
        match self.0.read_to_end(&mut rest) {
            Ok(_) => assert_eq!(dump(&rest), ""),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}"),
        }
    }

    /// The server closes, whatever it says before.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut rest = Vec::new();
        if let Err(error) = self.0.read_to_end(&mut rest) {
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
        }
        rest
    }
}

pub fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
    let value = |digit: u8| (digit as char).to_digit(16).unwrap() as u8;
    digits.chunks(2).map(|pair| value(pair[0]) << 4 | value(pair[1])).collect()
}

pub fn dump(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Waits until something is so, for at most 10 s.
pub fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("not within 10 s: {what}");
}
