//! No descriptor is left behind, and running out of them does not end a server. A program of its own: it counts the
//! descriptors of the whole process.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{Read, Write};
use std::net::TcpStream as StdStream;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{PATIENCE, options, pattern, poll_once, silent_address, sockets, some_ticks};
use corewire_runtime::driver::net::{ListenOptions, listen_tcp};
use corewire_runtime::{
    AfterAccept, Connection, Listener, Protocol, Runtime, TcpListener, TcpStream, UnixListener, UnixStream,
    sleep, spawn_local, timeout,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Set in the child processes that may open only few files: the name of a test.
const FEW_FILES: &str = "COREWIRE_TEST_FEW_FILES";

const FEW_FILES_TESTS: [(&str, fn()); 2] = [
    ("a server survives a shortage of descriptors", a_server_survives_a_shortage_of_descriptors),
    ("who waits is refused when descriptors stay short", who_waits_is_refused_when_descriptors_stay_short),
];

fn main() {
    if !cfg!(target_os = "linux") {
        println!("not run: open descriptors are counted by way of /proc");
        return;
    }
    if let Some(test) = std::env::var_os(FEW_FILES) {
        let (_, test) = FEW_FILES_TESTS.iter().find(|(name, _)| *name == test).unwrap();
        return test();
    }
    // Whatever a first worker opens once for the process is there before the count.
    corewire_runtime::run(async {}).unwrap();
    leaves_nothing("streams in every state, at the end of run", || {
        corewire_runtime::run(streams_in_every_state(false)).unwrap();
    });
    leaves_nothing("streams in every state, dropped by hand", || {
        corewire_runtime::run(streams_in_every_state(true)).unwrap();
    });
    leaves_nothing("a runtime that is dropped", || {
        let runtime = Runtime::builder().workers(2).build().unwrap();
        for worker in 0..2 {
            let begun = runtime.handle().spawn_on(worker, || streams_in_every_state(false));
            begun.unwrap().join().unwrap();
        }
    });
    leaves_nothing("a runtime that cannot be built", || {
        Runtime::builder().workers(3).cpus([0, 0, 100_000]).build().unwrap_err();
    });
    for (name, _) in FEW_FILES_TESTS {
        let child = Command::new(std::env::current_exe().unwrap()).env(FEW_FILES, name).status().unwrap();
        assert!(child.success(), "{name}: {child}");
        println!("test {name} ... ok");
    }
}

fn leaves_nothing(what: &str, test: impl FnOnce()) {
    let before = open_descriptors();
    test();
    assert_eq!(open_descriptors(), before, "descriptors are left after: {what}");
    println!("test nothing is left after: {what} ... ok");
}

fn open_descriptors() -> usize {
    // One of them is the directory that is being read.
    std::fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Tasks keep the streams, unless they are to be dropped.
async fn streams_in_every_state(by_hand: bool) {
    let before = open_descriptors();
    let mut kept: Vec<Box<dyn std::any::Any>> = Vec::new();
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = listener.local_addr().unwrap();

    // Open, with bytes that nobody reads, with a send that is blocked, half-closed, reset.
    let (idle, unread, mut blocked, mut half) = (sockets(), sockets(), sockets(), sockets());
    kept.push(Box::new((TcpStream::from_socket(idle.0).unwrap(), idle.1)));
    unread.1.set_nonblocking(true).unwrap();
    let _ = (&unread.1).write(&pattern(10 << 20));
    kept.push(Box::new((TcpStream::from_socket(unread.0).unwrap(), unread.1)));
    let mut stream = TcpStream::from_socket(blocked.0).unwrap();
    let _ = timeout(Duration::from_millis(5), stream.write_all(&pattern(20 << 20))).await;
    // So that the other end is not what keeps it open.
    let _ = blocked.1.read(&mut [0]);
    kept.push(Box::new(stream));
    drop(blocked.1);
    let mut stream = TcpStream::from_socket(half.0).unwrap();
    stream.shutdown().await.unwrap();
    let _ = half.1.read(&mut [0]);
    kept.push(Box::new((stream, half.1)));
    TcpStream::from_socket(sockets().0).unwrap().abort();

    // Connects: refused, unanswered and given up, unanswered and kept.
    let refused = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    TcpStream::connect(refused).await.unwrap_err();
    let (silent, silence) = silent_address();
    assert!(poll_once(TcpStream::connect(silent)).await.is_none());
    let under_way = spawn_local(TcpStream::connect(silent));
    kept.push(Box::new(silence));

    // Accepted and not taken; in the backlog; over Unix sockets.
    let _waiting: Vec<_> = (0..5).map(|_| StdStream::connect(address).unwrap()).collect();
    some_ticks(2).await;
    listener.accept().await.unwrap();
    let name = format!("@corewire-descriptors-{:?}", std::thread::current().id());
    let unix = UnixListener::bind(&name).unwrap();
    kept.push(Box::new(UnixStream::connect(&name).await.unwrap()));
    kept.push(Box::new((unix, listener)));
    if by_hand {
        drop(kept);
        under_way.abort();
        drop(_waiting);
        let until = Instant::now() + PATIENCE;
        while open_descriptors() > before {
            assert!(Instant::now() < until, "{} descriptors stay open", open_descriptors() - before);
            sleep(Duration::from_millis(1)).await;
        }
        return;
    }
    drop(under_way);
    drop(spawn_local(async move {
        let _kept = kept;
        std::future::pending::<()>().await;
    }));
}

fn a_server_survives_a_shortage_of_descriptors() {
    let Shortage { runtime, address, mut clients, limit } = Shortage::begin();
    assert!(runtime.handle().stats().accepted < 6);
    assert!(answers(&mut clients[0]), "a connection that stands goes on");
    setrlimit(Resource::Nofile, limit).unwrap();
    // Without any help: the listener tries again by itself.
    assert!(clients.iter_mut().all(answers), "those that waited are served");
    assert!(answers(&mut connect(address)));
    assert_eq!(runtime.handle().stats().panics, 0);
}

fn who_waits_is_refused_when_descriptors_stay_short() {
    let began = Instant::now();
    let Shortage { runtime, address, mut clients, limit } = Shortage::begin();
    // Those who came last wait; they have sent nothing, so their end is no reset.
    for client in &mut clients[4..] {
        assert_eq!(client.read(&mut [0]).unwrap(), 0, "it is told that it is not served");
    }
    assert!(began.elapsed() > Duration::from_secs(1), "the shortage has lasted: {:?}", began.elapsed());
    assert!(answers(&mut clients[0]), "a connection that stands goes on");
    setrlimit(Resource::Nofile, limit).unwrap();
    assert!(answers(&mut connect(address)), "the listener goes on");
    let until = Instant::now() + PATIENCE;
    // Published once a tick, after the answer has left.
    while runtime.handle().stats().accepted + runtime.handle().stats().refused < 7 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = runtime.handle().stats();
    assert!(stats.refused >= 2 && stats.accepted + stats.refused == 7, "{stats:?}");
    assert_eq!(stats.panics, 0);
}

/// A server of one worker with more clients than descriptors. The first client is served, and an accept has failed.
struct Shortage {
    runtime: Runtime,
    address: std::net::SocketAddr,
    clients: Vec<StdStream>,
    /// Ends it.
    limit: Rlimit,
}

impl Shortage {
    fn begin() -> Self {
        let runtime = Runtime::builder().workers(1).build().unwrap();
        let socket = listen_tcp("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        // They wait in the backlog before the limit falls; there are descriptors for two of them on the server's side.
        let mut clients: Vec<_> = (0..6).map(|_| connect(address)).collect();
        let limit = getrlimit(Resource::Nofile);
        let few = open_descriptors() as u64 + 2;
        setrlimit(Resource::Nofile, Rlimit { current: Some(few), maximum: limit.maximum }).unwrap();
        let serving = runtime.handle().spawn_on(0, move || async move {
            let _listener = Listener::start(socket, |socket| {
                Connection::open(socket, options(|_| {}), Echo).unwrap();
                AfterAccept::Continue
            })
            .unwrap();
            std::future::pending::<()>().await;
        });
        drop(serving.unwrap());
        assert!(answers(&mut clients[0]));
        let until = Instant::now() + PATIENCE;
        while runtime.handle().stats().accept_failures == 0 {
            assert!(Instant::now() < until, "no accept has failed");
            std::thread::sleep(Duration::from_millis(1));
        }
        Self { runtime, address, clients, limit }
    }
}

struct Echo;

impl Protocol for Echo {
    fn on_received(&mut self, connection: &Connection, data: bytes::Bytes) {
        connection.send_bytes(data).unwrap();
    }
}

fn connect(address: std::net::SocketAddr) -> StdStream {
    let stream = StdStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn answers(stream: &mut StdStream) -> bool {
    let mut reply = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut reply).unwrap();
    &reply == b"hello"
}
