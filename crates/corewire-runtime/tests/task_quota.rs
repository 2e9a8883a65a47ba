//! A task that always finds something ready lets others have their turn.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as StdStream};
use std::rc::Rc;
use std::time::Duration;

use common::{pattern, run, sockets, some_ticks};
use corewire_runtime::udp::UdpSocket;
use corewire_runtime::{JoinHandle, TcpListener, TcpStream, sleep, spawn_local, yield_now};
use futures_lite::AsyncReadExt;

/// What a task is given in one poll.
const QUOTA: usize = 128;

/// Counts what one task takes between two turns of another.
#[derive(Clone, Default)]
struct Taken {
    count: Rc<Cell<usize>>,
    most: Rc<Cell<usize>>,
}

impl Taken {
    fn one(&self) {
        self.count.set(self.count.get() + 1);
    }

    /// The other task: it has a turn whenever tasks have.
    fn watch(&self) -> JoinHandle<()> {
        let this = self.clone();
        spawn_local(async move {
            loop {
                this.most.set(this.most.get().max(this.count.take()));
                yield_now().await;
            }
        })
    }

    fn assert_fair(&self) {
        let most = self.most.get().max(self.count.get());
        assert!((QUOTA / 2..=QUOTA).contains(&most), "{most} were taken in one turn");
    }
}

/// A stream that bytes have arrived on.
async fn filled(bytes: &[u8]) -> (TcpStream, StdStream) {
    let (socket, mut peer) = sockets();
    let stream = TcpStream::from_socket(socket).unwrap();
    peer.write_all(bytes).unwrap();
    some_ticks(5).await;
    (stream, peer)
}

#[test]
fn reads_of_a_stream_end_a_turn() {
    run(async {
        let bytes = pattern(5000);
        let (mut stream, _peer) = filled(&bytes).await;
        let taken = Taken::default();
        let watch = taken.watch();
        let reader = spawn_local({
            let taken = taken.clone();
            async move {
                let mut got = Vec::new();
                let mut byte = [0];
                for at in 0..5000 {
                    match at % 3 {
                        0 => stream.read_exact(&mut byte).await.unwrap(),
                        1 => assert_eq!(stream.read(&mut byte).await.unwrap(), 1),
                        _ => assert_eq!(AsyncReadExt::read(&mut stream, &mut byte).await.unwrap(), 1),
                    }
                    taken.one();
                    got.push(byte[0]);
                }
                got
            }
        });
        assert!(reader.await.unwrap() == bytes, "each byte comes once, in order");
        watch.abort();
        taken.assert_fair();
    });
}

#[test]
fn accepted_connections_end_a_turn() {
    run(async {
        const PEERS: usize = 300;
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let peers: Vec<_> = (0..PEERS).map(|_| StdStream::connect(address).unwrap()).collect();
        some_ticks(20).await;
        let taken = Taken::default();
        let watch = taken.watch();
        let acceptor = spawn_local({
            let taken = taken.clone();
            async move {
                for _ in 0..PEERS {
                    drop(listener.accept().await.unwrap());
                    taken.one();
                }
            }
        });
        acceptor.await.unwrap();
        watch.abort();
        taken.assert_fair();
        drop(peers);
    });
}

#[test]
fn times_that_are_over_end_a_turn() {
    run(async {
        let taken = Taken::default();
        let watch = taken.watch();
        let sleeper = spawn_local({
            let taken = taken.clone();
            async move {
                for _ in 0..1000 {
                    sleep(Duration::ZERO).await;
                    taken.one();
                }
            }
        });
        sleeper.await.unwrap();
        watch.abort();
        taken.assert_fair();
    });
}

/// A task that sends itself what it receives: it never has to wait.
#[test]
fn datagrams_without_end_keep_nobody_waiting() {
    run(async {
        const ENDLESS: usize = 1_000_000;
        let socket = UdpSocket::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address: SocketAddr = socket.local_addr().unwrap();
        // Another connection, a timer, and another task.
        let (accepted, mut peer) = sockets();
        peer.set_nonblocking(true).unwrap();
        let mut echo = TcpStream::from_socket(accepted).unwrap();
        let fired = Rc::new(Cell::new(false));
        drop(spawn_local(async move {
            let mut byte = [0];
            echo.read_exact(&mut byte).await.unwrap();
            echo.write_all(&byte).await.unwrap();
        }));
        drop(spawn_local({
            let fired = fired.clone();
            async move {
                sleep(Duration::from_millis(1)).await;
                fired.set(true);
            }
        }));
        let taken = Taken::default();
        let watch = taken.watch();
        let greedy = spawn_local({
            let taken = taken.clone();
            async move {
                peer.write_all(b"x").unwrap();
                let mut answered = false;
                for _ in 0..ENDLESS {
                    if answered && fired.get() {
                        return true;
                    }
                    socket.send_to(b"hello", address).await.unwrap();
                    taken.one();
                    assert_eq!(socket.recv(&mut [0; 16]).await.unwrap().len, 5);
                    taken.one();
                    answered |= peer.read(&mut [0]).is_ok();
                }
                false
            }
        });
        assert!(greedy.await.unwrap(), "others had no turn");
        watch.abort();
        taken.assert_fair();
    });
}
