//! What the tests share.

use std::future::Future;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::pin::pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Poll, Wake};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use corewire::client::Framing;
use corewire::{
    ClientBuilder, Frame, Handler, NetClient, NetServer, NetUri, ServerHandle, Session, StandardCodec,
};

/// How long anything may take before the test counts as hung.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Waits for a future on this thread; one that hangs fails the test.
#[track_caller]
pub(crate) fn wait<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(thread::current())).into();
    let mut future = pin!(future);
    let until = Instant::now() + PATIENCE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        let left = until.saturating_duration_since(Instant::now());
        assert!(left > Duration::ZERO, "hung: nothing came of it within {PATIENCE:?}");
        thread::park_timeout(left);
    }
}

/// Polls once, without anybody to wake.
pub(crate) fn poll_once<F: Future + Unpin>(future: &mut F) -> Poll<F::Output> {
    std::pin::Pin::new(future).poll(&mut Context::from_waker(std::task::Waker::noop()))
}

/// Events from handlers, in the order in which they happened.
pub(crate) struct Events<T>(Receiver<T>);

pub(crate) fn events<T>() -> (Sender<T>, Events<T>) {
    let (sender, receiver) = channel();
    (sender, Events(receiver))
}

impl<T> Events<T> {
    #[track_caller]
    pub(crate) fn next(&self) -> T {
        self.0.recv_timeout(PATIENCE).expect("the event should have happened")
    }

    pub(crate) fn take(&self, count: usize) -> Vec<T> {
        (0..count).map(|_| self.next()).collect()
    }

    /// What has happened until now.
    pub(crate) fn so_far(&self) -> Vec<T> {
        self.0.try_iter().collect()
    }
}

pub(crate) fn echo() -> impl FnMut(&Session, Frame<'_>) {
    |session: &Session, frame: Frame<'_>| {
        if frame.head().expects_reply() {
            session.reply(&frame, frame.payload()).unwrap();
        }
    }
}

/// A server on a free port of the loopback address.
pub(crate) fn local() -> NetServer {
    NetServer::bind("tcp://127.0.0.1:0").workers(1)
}

/// An echo of SRMP frames on one worker.
pub(crate) fn standard_echo() -> ServerHandle {
    standard(echo)
}

pub(crate) fn standard<H: Handler>(handler: impl Fn() -> H + Send + Sync + 'static) -> ServerHandle {
    NetServer::bind("tcp://127.0.0.1:0")
        .codec(StandardCodec::default)
        .handler(handler)
        .workers(1)
        .start()
        .unwrap()
}

pub(crate) fn client_of(uri: &str) -> ClientBuilder<Framing<fn() -> StandardCodec>> {
    fn codec() -> StandardCodec {
        StandardCodec::default()
    }
    NetUri::parse(uri).unwrap().client().codec(codec)
}

pub(crate) fn connect(server: &ServerHandle) -> NetClient {
    client_of(server.uri()).connect_blocking().unwrap()
}

/// An address of the server that this machine reaches.
pub(crate) fn address_of(server: &ServerHandle) -> SocketAddr {
    let mut address = server.local_addrs()[0];
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    address
}

/// A peer that knows nothing of frames.
pub(crate) fn raw(server: &ServerHandle) -> TcpStream {
    raw_to(address_of(server))
}

pub(crate) fn raw_to(address: SocketAddr) -> TcpStream {
    patient(TcpStream::connect(address).unwrap())
}

pub(crate) fn patient(stream: TcpStream) -> TcpStream {
    stream.set_nodelay(true).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads exactly as much as is expected, and compares.
#[track_caller]
pub(crate) fn expect(stream: &mut TcpStream, expected: &[u8]) {
    let mut got = vec![0; expected.len()];
    stream.read_exact(&mut got).unwrap();
    assert!(got == expected, "{:?}… in place of {:?}…", head(&got), head(expected));
}

fn head(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(40)]
}

/// Reads to the end, be it in order or a reset; gives what came.
pub(crate) fn read_to_end(stream: &mut TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut block = vec![0; 64 * 1024];
    loop {
        match stream.read(&mut block) {
            Ok(0) => return all,
            Ok(len) => all.extend_from_slice(&block[..len]),
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => return all,
            Err(error) => panic!("{error}"),
        }
    }
}

/// Ends a connection with a reset in place of an orderly end.
pub(crate) fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
}

/// An SRMP frame.
pub(crate) fn srmp(flag: u8, sequence: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![flag, sequence];
    frame.extend((payload.len() as u16).to_le_bytes());
    frame.extend(payload);
    frame
}

/// Reads one short SRMP frame: flag, sequence, payload.
pub(crate) fn read_srmp(stream: &mut TcpStream) -> (u8, u8, Vec<u8>) {
    let mut header = [0; 4];
    stream.read_exact(&mut header).unwrap();
    let mut payload = vec![0; usize::from(u16::from_le_bytes([header[2], header[3]]))];
    stream.read_exact(&mut payload).unwrap();
    (header[0], header[1], payload)
}

/// A server by hand, for exact bytes: accepts connections one after the other.
pub(crate) struct RawServer {
    pub(crate) listener: std::net::TcpListener,
    pub(crate) uri: String,
}

impl RawServer {
    pub(crate) fn new() -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("tcp://{}", listener.local_addr().unwrap());
        Self { listener, uri }
    }

    pub(crate) fn accept(&self) -> TcpStream {
        patient(self.listener.accept().unwrap().0)
    }
}

/// That the server still serves: an SRMP echo on a new connection.
#[track_caller]
pub(crate) fn assert_serves(server: &ServerHandle) {
    let mut peer = raw(server);
    peer.write_all(&srmp(1, 9, b"alive?")).unwrap();
    expect(&mut peer, &srmp(0x81, 9, b"alive?"));
}
