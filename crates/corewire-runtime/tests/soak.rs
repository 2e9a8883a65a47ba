//! Many connections at once, each doing something else, from seeds: what was sent arrives, and every end is told once.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::RefCell;
use std::net::TcpListener as StdListener;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use common::{Record, Recorder, options, pattern, run};
use corewire_runtime::driver::Socket;
use corewire_runtime::driver::net::{ListenOptions, StreamOptions, listen_tcp};
use corewire_runtime::{
    AfterAccept, CloseReason, Connection, Listener, Runtime, SendError, TcpStream, sleep, yield_now,
};
use corewire_testkit::rng::Rng;

/// One end of a connection, and what it has sent.
struct End {
    connection: Connection,
    record: Record,
    sent: usize,
    aborted: bool,
}

impl End {
    fn new(socket: Socket, rng: &mut Rng) -> Self {
        let record = Record::default();
        let handler = Recorder { stays_open: true, ..Recorder::new(&record) };
        let options = options(|options| {
            options.high_water = 1 + rng.index(300_000);
            options.low_water = rng.index(options.high_water);
            // Both ends would wait for the other to read.
            options.pause_receive_on_backlog = false;
            options.idle_timeout = Some(Duration::from_secs(60));
        });
        Self {
            connection: Connection::open(socket, options, handler).unwrap(),
            record,
            sent: 0,
            aborted: false,
        }
    }

    fn act(&mut self, rng: &mut Rng, source: &Bytes) {
        let most = if rng.index(8) == 0 { 200_000 } else { 2_000 };
        let size = rng.index(most);
        let piece = source.slice(self.sent..self.sent + size);
        let outcome = match rng.index(12) {
            0 => {
                self.connection.pause_receive();
                return;
            }
            1 => {
                self.connection.resume_receive();
                return;
            }
            2 if rng.index(60) == 0 => {
                self.aborted = true;
                self.connection.abort(CloseReason::Local);
                return;
            }
            3..6 => self.connection.send_bytes(piece),
            _ => self.connection.send(&piece),
        };
        match outcome {
            Ok(()) => self.sent += size,
            Err(error) => assert_eq!(error, SendError::Closed),
        }
    }
}

fn two_sockets(listener: &StdListener) -> (Socket, Socket) {
    let one = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let other = listener.accept().unwrap().0;
    (Socket::from_fd(one.into()).unwrap(), Socket::from_fd(other.into()).unwrap())
}

#[test]
fn connections_that_do_this_and_that_deliver_what_was_sent() {
    run(async {
        let source = Bytes::from(pattern(12 << 20));
        let listener = StdListener::bind("127.0.0.1:0").unwrap();
        for seed in 0..4 {
            let rng = &mut Rng::new(seed);
            let mut pairs: Vec<[End; 2]> = (0..15)
                .map(|_| {
                    let (one, other) = two_sockets(&listener);
                    [End::new(one, rng), End::new(other, rng)]
                })
                .collect();
            for _ in 0..60 {
                for pair in &mut pairs {
                    pair.iter_mut().for_each(|end| end.act(rng, &source));
                }
                if rng.index(2) == 0 {
                    yield_now().await;
                }
            }
            for end in pairs.iter().flatten() {
                end.connection.resume_receive();
                end.connection.shutdown_write();
            }
            for pair in &pairs {
                let cut = pair.iter().any(|end| end.aborted);
                for (end, peer) in [(&pair[0], &pair[1]), (&pair[1], &pair[0])] {
                    if !cut {
                        end.record.wait_for("read closed").await;
                        assert_eq!(end.record.received().len(), peer.sent, "seed {seed}");
                    }
                    let got = end.record.received();
                    assert!(source[..peer.sent].starts_with(&got), "seed {seed}: not what was sent");
                }
            }
            for end in pairs.iter().flatten() {
                end.connection.close();
                end.record.wait_for("closed").await;
            }
            sleep(Duration::from_millis(2)).await;
            for end in pairs.iter().flatten() {
                let log = end.record.log();
                assert_eq!(
                    (end.record.count("open"), end.record.count("closed")),
                    (1, 1),
                    "seed {seed}: {log:?}"
                );
                assert!(end.record.count("read closed") <= 1, "seed {seed}: {log:?}");
                assert!(log.last().unwrap().starts_with("closed"), "seed {seed}: {log:?}");
            }
        }
    });
}

#[test]
fn a_listener_pauses_on_request_and_its_connections_may_live_on_another_worker() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let handle = runtime.handle().clone();
    let task = runtime.handle().spawn_on(0, move || async move {
        let socket = listen_tcp("127.0.0.1:0".parse().unwrap(), &ListenOptions::default()).unwrap();
        let address = socket.local_addr().unwrap().as_socket().unwrap();
        let count = Rc::new(RefCell::new(Record::default()));
        let accepted = count.clone();
        let listener = Listener::start(socket, move |socket| {
            StreamOptions::default().apply(&socket).unwrap();
            accepted.borrow().note("accepted");
            let opened = handle.run_on(1, move || {
                struct Echo;
                impl corewire_runtime::Protocol for Echo {
                    fn on_received(&mut self, connection: &Connection, data: Bytes) {
                        connection.send_bytes(data).unwrap();
                    }
                }
                Connection::open(socket, options(|_| {}), Echo).unwrap();
            });
            opened.unwrap();
            AfterAccept::Pause
        })
        .unwrap();
        let mut streams = Vec::new();
        for _ in 0..8 {
            streams.push(TcpStream::connect(address).await.unwrap());
        }
        let mut served = 0;
        for stream in &mut streams {
            stream.write_all(b"hello").await.unwrap();
            let mut reply = [0; 5];
            let mut reading = std::pin::pin!(stream.read_exact(&mut reply));
            // Each resume lets one in, and on io_uring whichever had been accepted with it.
            while corewire_runtime::timeout(Duration::from_millis(2), reading.as_mut()).await.is_err() {
                listener.resume();
            }
            served += 1;
            assert!(count.borrow().count("accepted") >= served);
        }
        let left = count.borrow().count("accepted");
        assert_eq!(left, 8);
    });
    task.unwrap().join().unwrap();
    assert_eq!(runtime.handle().stats().panics, 0);
}

#[test]
fn a_runtime_with_the_smallest_driver_settings_serves_everybody() {
    let mut config = corewire_runtime::driver::DriverConfig::default();
    config.events_per_turn = 1;
    config.ring_buffers = 2;
    config.ring_buffer_size = 64;
    config.completion_entries = 1;
    let runtime = Runtime::builder().workers(1).driver_config(config).build().unwrap();
    let task = runtime.handle().spawn_on(0, || async {
        let mut listener = corewire_runtime::TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(corewire_runtime::spawn_local(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                drop(corewire_runtime::spawn_local(async move {
                    while let Ok(Some(chunk)) = stream.recv().await {
                        stream.write_all(&chunk).await.unwrap();
                    }
                }));
            }
        }));
        let clients: Vec<_> = (0..30)
            .map(|client| {
                corewire_runtime::spawn_local(async move {
                    let mut stream = TcpStream::connect(address).await.unwrap();
                    for len in [1, 100, 5000] {
                        let sent = pattern(len + client);
                        stream.write_all(&sent).await.unwrap();
                        let mut got = vec![0; sent.len()];
                        stream.read_exact(&mut got).await.unwrap();
                        assert!(got == sent);
                    }
                })
            })
            .collect();
        for client in clients {
            client.await.unwrap();
        }
    });
    let (done, is_done) = std::sync::mpsc::channel();
    let task = task.unwrap();
    std::thread::spawn(move || done.send(task.join()));
    is_done.recv_timeout(common::PATIENCE).expect("somebody is not served").unwrap();
}
