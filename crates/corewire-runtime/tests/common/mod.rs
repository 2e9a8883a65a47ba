//! What the tests of the runtime share.

#![allow(dead_code, unreachable_pub, clippy::unwrap_used)] // each test file uses a part of it

#[cfg(feature = "tls")]
pub mod tls;

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::net::{SocketAddr, TcpListener as StdListener, TcpStream as StdStream};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use corewire_runtime::driver::Socket;
use corewire_runtime::{CloseReason, Connection, ConnectionOptions, Protocol, timeout};

/// Long enough for a loaded machine; reached only when a test fails.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a worker of its own, for no longer than [`PATIENCE`].
pub fn run<F: Future<Output = ()> + 'static>(test: F) {
    corewire_runtime::run(async { timeout(PATIENCE, test).await.expect("the test hangs") }).unwrap();
}

/// Bytes that tell where they belong: they repeat after a prime number of them.
pub fn pattern(len: usize) -> Vec<u8> {
    const PERIOD: usize = 64_007;
    let once: Vec<u8> = (0..PERIOD.min(len)).map(|at| (at * 31 + at / 251) as u8).collect();
    let mut bytes = once.repeat(len.div_ceil(PERIOD));
    bytes.truncate(len);
    bytes
}

/// A connected socket for the worker, non-blocking, and the blocking socket at its other end.
pub fn sockets() -> (Socket, StdStream) {
    let listener = StdListener::bind("127.0.0.1:0").unwrap();
    let peer = StdStream::connect(listener.local_addr().unwrap()).unwrap();
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    (Socket::from_fd(listener.accept().unwrap().0.into()).unwrap(), peer)
}

/// An address of this machine that answers nothing: its listener's backlog is full. Keep what is returned beside it.
pub fn silent_address() -> (SocketAddr, Vec<socket2::Socket>) {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let mut kept = vec![listener];
    // A backlog of 0 takes one connection, or a few; then a first packet goes unanswered.
    loop {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let full = socket.connect_timeout(&address, Duration::from_millis(100)).is_err();
        kept.push(socket);
        if full {
            return (address.as_socket().unwrap(), kept);
        }
        assert!(kept.len() < 100, "the backlog does not fill");
    }
}

/// What happened to a connection, in short words.
#[derive(Debug, Default)]
struct State {
    log: Vec<String>,
    received: Vec<u8>,
    waiting: Option<Waker>,
}

/// Remembers the calls that a protocol got; the test waits on it for events.
#[derive(Debug, Clone, Default)]
pub struct Record(Rc<RefCell<State>>);

impl Record {
    pub fn note(&self, what: impl Into<String>) {
        let mut state = self.0.borrow_mut();
        state.log.push(what.into());
        state.waiting.take().into_iter().for_each(Waker::wake);
    }

    pub fn log(&self) -> Vec<String> {
        self.0.borrow().log.clone()
    }

    pub fn received(&self) -> Vec<u8> {
        self.0.borrow().received.clone()
    }

    pub fn count(&self, what: &str) -> usize {
        self.0.borrow().log.iter().filter(|entry| entry.starts_with(what)).count()
    }

    /// Waits for an entry that begins so, and gives it whole.
    pub async fn wait_for(&self, what: &str) -> String {
        self.until(|state| state.log.iter().find(|entry| entry.starts_with(what)).cloned()).await
    }

    /// Waits until this many bytes have come.
    pub async fn wait_received(&self, len: usize) {
        self.until(|state| (state.received.len() >= len).then_some(())).await;
    }

    async fn until<T>(&self, found: impl Fn(&State) -> Option<T>) -> T {
        std::future::poll_fn(|context| {
            let mut state = self.0.borrow_mut();
            if let Some(found) = found(&state) {
                return Poll::Ready(found);
            }
            state.waiting = Some(context.waker().clone());
            Poll::Pending
        })
        .await
    }
}

/// What a [`Recorder`] does in a call, besides noting it.
pub type Action = Box<dyn FnMut(&str, &Connection)>;

/// Notes every call, then does what the test wants.
pub struct Recorder {
    pub record: Record,
    pub action: Action,
    /// Leaves the connection open when the peer has finished.
    pub stays_open: bool,
}

impl Recorder {
    pub fn new(record: &Record) -> Self {
        Self::with_action(record, |_, _| {})
    }

    pub fn with_action(record: &Record, action: impl FnMut(&str, &Connection) + 'static) -> Self {
        Self { record: record.clone(), action: Box::new(action), stays_open: false }
    }

    fn call(&mut self, what: &str, connection: &Connection) {
        self.record.note(what);
        (self.action)(what, connection);
    }
}

impl Protocol for Recorder {
    fn on_open(&mut self, connection: &Connection) {
        self.call("open", connection);
    }

    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        self.record.0.borrow_mut().received.extend_from_slice(&data);
        self.call("received", connection);
    }

    fn on_read_closed(&mut self, connection: &Connection) {
        self.call("read closed", connection);
        if !self.stays_open {
            connection.close_with(CloseReason::PeerClosed);
        }
    }

    fn on_drained(&mut self, connection: &Connection) {
        self.call("drained", connection);
    }

    fn on_timer(&mut self, connection: &Connection) {
        self.call("timer", connection);
    }

    fn on_closed(&mut self, connection: &Connection, reason: &CloseReason) {
        self.record.note(format!("closed: {reason}"));
        (self.action)("closed", connection);
    }
}

pub fn options(change: impl FnOnce(&mut ConnectionOptions)) -> Rc<ConnectionOptions> {
    let mut options = ConnectionOptions::default();
    change(&mut options);
    Rc::new(options)
}

/// A connection that is recorded, and its peer.
pub fn recorded(options: Rc<ConnectionOptions>) -> (Connection, Record, StdStream) {
    let record = Record::default();
    let (socket, peer) = sockets();
    let connection = Connection::open(socket, options, Recorder::new(&record)).unwrap();
    (connection, record, peer)
}

/// Runs blocking code on a thread and waits for it without blocking the worker.
pub async fn off_worker<R: Send + 'static>(work: impl FnOnce() -> R + Send + 'static) -> R {
    corewire_runtime::spawn_blocking(work).await.unwrap()
}

/// Polls a future once and drops it.
pub async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        Poll::Ready(match future.as_mut().poll(context) {
            Poll::Ready(output) => Some(output),
            Poll::Pending => None,
        })
    })
    .await
}

/// Turns of the loop, so that what is under way on this machine can arrive.
pub async fn some_ticks(count: usize) {
    for _ in 0..count {
        corewire_runtime::sleep(Duration::from_millis(1)).await;
    }
}

pub fn io_kind<T>(result: io::Result<T>) -> Option<io::ErrorKind> {
    result.err().map(|error| error.kind())
}
