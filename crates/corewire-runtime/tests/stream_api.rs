//! Buffered, vectored and peeking reads, and sockets of the standard library; on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{IoSliceMut, Write};
use std::net::Shutdown;
use std::pin::Pin;

use common::{io_kind, off_worker, pattern, poll_once, run, sockets, some_ticks};
use corewire_runtime::udp::UdpSocket;
use corewire_runtime::{TcpListener, TcpStream, UnixListener, UnixStream, lookup_host, spawn_local};
use futures_lite::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};

fn stream() -> (TcpStream, std::net::TcpStream) {
    let (socket, peer) = sockets();
    (TcpStream::from_socket(socket).unwrap(), peer)
}

#[test]
fn lines_are_read_without_a_buffer_beside_the_streams_own() {
    run(async {
        let (mut stream, mut peer) = stream();
        let text: String = (0..2_000).map(|at| format!("line {at}\n")).collect();
        let sent = text.clone();
        let sender = std::thread::spawn(move || peer.write_all(sent.as_bytes()).unwrap());
        let (mut got, mut line) = (String::new(), String::new());
        while AsyncBufReadExt::read_line(&mut stream, &mut line).await.unwrap() > 0 {
            got.push_str(&line);
            line.clear();
        }
        assert_eq!(got, text);
        sender.join().unwrap();
    });
}

#[test]
fn what_fill_buf_gave_and_was_not_consumed_is_read_next_by_any_other_read() {
    async fn one_more(stream: &mut TcpStream, by: &str) -> u8 {
        let mut byte = [0];
        match by {
            "read" => assert_eq!(stream.read(&mut byte).await.unwrap(), 1),
            "read_exact" => stream.read_exact(&mut byte).await.unwrap(),
            "peek" => {
                assert_eq!(stream.peek(&mut byte).await.unwrap(), 1);
                assert_eq!(stream.read(&mut byte).await.unwrap(), 1);
            }
            "read_vectored" => {
                assert_eq!(stream.read_vectored(&mut [IoSliceMut::new(&mut byte)]).await.unwrap(), 1);
            }
            _ => assert_eq!(AsyncReadExt::read(stream, &mut byte).await.unwrap(), 1),
        }
        byte[0]
    }
    run(async {
        let (mut stream, mut peer) = stream();
        let sent = pattern(100);
        peer.write_all(&sent).unwrap();
        let mut next = 0;
        for by in ["read", "read_exact", "peek", "read_vectored", "the trait"].repeat(4) {
            // Looked at, and one of it consumed.
            assert_eq!(stream.fill_buf().await.unwrap()[0], sent[next]);
            AsyncBufReadExt::consume(&mut stream, 1);
            // More than there is cannot be consumed.
            assert!(
                poll_once(std::future::poll_fn(|context| {
                    Pin::new(&mut stream)
                        .poll_fill_buf(context)
                        .map(|filled| assert!(!filled.unwrap().is_empty()))
                }))
                .await
                .is_some()
            );
            assert_eq!(one_more(&mut stream, by).await, sent[next + 1], "{by}");
            next += 2;
        }
        assert!(!stream.fill_buf().await.unwrap().is_empty());
        let rest = stream.recv().await.unwrap().unwrap();
        assert_eq!(rest, sent[next..]);
        peer.shutdown(Shutdown::Write).unwrap();
        assert!(stream.fill_buf().await.unwrap().is_empty(), "the end");
        assert!(stream.fill_buf().await.unwrap().is_empty(), "and again");
    });
}

#[test]
fn a_fill_buf_and_a_peek_that_were_dropped_lose_nothing_and_wake_nobody() {
    run(async {
        let (mut stream, mut peer) = stream();
        for _ in 0..3 {
            assert!(poll_once(stream.fill_buf()).await.is_none());
            assert!(poll_once(stream.peek(&mut [0; 4])).await.is_none());
        }
        peer.write_all(b"abcd").unwrap();
        some_ticks(2).await;
        let mut got = [0; 4];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"abcd");
    });
}

#[test]
fn a_peek_sees_all_that_has_arrived_and_takes_none_of_it() {
    run(async {
        let (mut stream, mut peer) = stream();
        peer.write_all(b"abc").unwrap();
        let mut seen = [0; 8];
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 3);
        peer.write_all(b"defgh").unwrap();
        while stream.peek(&mut seen).await.unwrap() < 8 {
            some_ticks(1).await;
        }
        assert_eq!(&seen, b"abcdefgh");
        assert_eq!(stream.peek(&mut seen[..2]).await.unwrap(), 2);
        // Behind what was lent out too.
        assert!(stream.fill_buf().await.unwrap().starts_with(b"a"));
        AsyncBufReadExt::consume(&mut stream, 1);
        let mut seen = [0; 16];
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 7);
        assert_eq!(&seen[..7], b"bcdefgh");
        let mut got = [0; 7];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(&got, b"bcdefgh");
        drop(peer);
        assert_eq!(stream.peek(&mut seen).await.unwrap(), 0);
    });
}

#[test]
fn a_vectored_read_fills_one_buffer_after_the_other() {
    run(async {
        let (mut stream, mut peer) = stream();
        let sent = pattern(100_000);
        let copy = sent.clone();
        let sender = std::thread::spawn(move || {
            peer.write_all(&copy).unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            peer
        });
        let (mut got, mut first, mut second, mut third) = (Vec::new(), [0; 7], [0; 0], [0; 1000]);
        loop {
            let buffers = &mut [&mut first[..], &mut second[..], &mut third[..]].map(IoSliceMut::new);
            let read = stream.read_vectored(buffers).await.unwrap();
            if read == 0 {
                break;
            }
            let both = [&first[..], &third[..]].concat();
            got.extend_from_slice(&both[..read]);
        }
        assert!(got == sent);
        drop(sender.join());
        assert_eq!(stream.read_vectored(&mut []).await.unwrap(), 0);
    });
}

#[test]
fn a_vectored_write_of_any_pieces_arrives_in_order() {
    run(async {
        let (mut stream, mut peer) = stream();
        let sent = pattern(1_500_000);
        let expected = sent.clone();
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            std::io::Read::read_to_end(&mut peer, &mut got).unwrap();
            got == expected
        });
        let mut rest = &sent[..];
        for count in (1..8).cycle() {
            let len = (count * count * 9_001).min(rest.len());
            let slices: Vec<_> =
                rest[..len].chunks(len.div_ceil(count).max(1)).map(std::io::IoSlice::new).collect();
            rest = &rest[stream.write_vectored(&slices).await.unwrap()..];
            if rest.is_empty() {
                break;
            }
        }
        stream.shutdown().await.unwrap();
        assert!(off_worker(move || reader.join().unwrap()).await);
    });
}

#[test]
fn sockets_of_the_standard_library_become_streams_listeners_and_datagram_sockets() {
    run(async {
        let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = std.local_addr().unwrap();
        let mut listener = TcpListener::from_std(std).unwrap();
        let peer = std::net::TcpStream::connect(address).unwrap();
        let (mut accepted, from) = listener.accept().await.unwrap();
        assert_eq!(from, peer.local_addr().unwrap());
        let mut stream = TcpStream::from_std(peer).unwrap();
        stream.write_all(b"tcp").await.unwrap();
        assert_eq!(accepted.recv().await.unwrap().unwrap(), "tcp");

        let (one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        let (mut one, mut other) = (UnixStream::from_std(one).unwrap(), UnixStream::from_std(other).unwrap());
        AsyncWriteExt::write_all(&mut one, b"unix").await.unwrap();
        assert_eq!(other.recv().await.unwrap().unwrap(), "unix");

        let path = std::env::temp_dir().join(format!("corewire-from-std-{}", std::process::id()));
        let mut listener =
            UnixListener::from_std(std::os::unix::net::UnixListener::bind(&path).unwrap()).unwrap();
        let connecting = spawn_local(UnixStream::connect(path.clone()));
        drop(listener.accept().await.unwrap());
        drop(connecting.await.unwrap().unwrap());
        std::fs::remove_file(path).unwrap();

        let socket = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0").unwrap()).unwrap();
        let address = socket.local_addr().unwrap();
        socket.send_to(b"udp", address).await.unwrap();
        let mut buffer = [0; 8];
        assert_eq!(socket.recv_from(&mut buffer).await.unwrap().len, 3);
    });
}

#[test]
fn names_are_looked_up_without_stopping_the_worker() {
    run(async {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        for literal in ["127.0.0.1", "::1", "[::1]"] {
            let addresses = lookup_host(literal, port).await.unwrap();
            assert_eq!(
                addresses,
                [(literal.trim_matches(['[', ']']).parse::<std::net::IpAddr>().unwrap(), port).into()]
            );
        }
        assert!(
            lookup_host("localhost", port).await.unwrap().iter().all(|address| address.ip().is_loopback())
        );
        let stream = TcpStream::connect_host("localhost", port).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap().port(), port);
        assert!(lookup_host("no such name", 1).await.is_err());
        drop(listener);
        let refused = TcpStream::connect_host("127.0.0.1", port).await;
        assert_eq!(io_kind(refused), Some(std::io::ErrorKind::ConnectionRefused));
    });
}

#[test]
fn look_ups_that_hang_keep_blocking_work_from_nothing() {
    let limits =
        corewire_runtime::blocking::BlockingLimits { max_threads: 1, queue_max: 1, ..Default::default() };
    let runtime = corewire_runtime::Runtime::builder().workers(1).lookups(limits).build().unwrap();
    let test = runtime.handle().spawn_on(0, || async {
        let (release, hangs) = std::sync::mpsc::channel::<()>();
        let hanging = spawn_local(corewire_runtime::lookup(move || hangs.recv().is_err()));
        some_ticks(1).await;
        let waiting = spawn_local(lookup_host("localhost", 1));
        some_ticks(1).await;
        // A third one is too much, and blocking work goes on.
        let error = lookup_host("localhost", 1).await.unwrap_err().to_string();
        assert!(error.contains("1 jobs run and 1 wait"), "{error}");
        assert_eq!(off_worker(|| 42).await, 42);
        drop(release);
        assert!(hanging.await.unwrap().unwrap());
        waiting.await.unwrap().unwrap();
    });
    test.unwrap().join().unwrap();
}
