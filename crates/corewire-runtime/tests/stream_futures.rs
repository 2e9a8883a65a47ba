//! Futures of streams, dropped anywhere; the traits of futures-io and tokio; connections that go wrong.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpListener as StdListener};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use common::{io_kind, off_worker, pattern, run, silent_address, sockets};
use corewire_runtime::{
    ReadHalf, TcpListener, TcpStream, UnixListener, UnixStream, WriteHalf, sleep, spawn_local, timeout,
    yield_now,
};
use corewire_testkit::rng::Rng;
use futures_lite::{AsyncReadExt, AsyncWriteExt};

async fn pair() -> (TcpStream, TcpStream) {
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (ours, listener.accept().await.unwrap().0)
}

/// Polls a future up to `polls` times, letting the loop turn in between, then drops it.
async fn limited<F: Future>(polls: usize, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    for left in (0..polls).rev() {
        let polled = std::future::poll_fn(|context| {
            Poll::Ready(match future.as_mut().poll(context) {
                Poll::Ready(output) => Some(output),
                Poll::Pending => None,
            })
        })
        .await;
        if polled.is_some() || left == 0 {
            return polled;
        }
        yield_now().await;
    }
    None
}

/// Writes `sent` by futures that are dropped after a random number of polls.
async fn write_in_pieces(mut write: WriteHalf, sent: Rc<Vec<u8>>, mut rng: Rng) {
    let mut at = 0;
    while at < sent.len() {
        let step = 1 + if rng.index(10) == 0 { rng.index(300_000) } else { rng.index(3_000) };
        let piece = &sent[at..(at + step).min(sent.len())];
        let polls = rng.index(3);
        // Each has taken what it says, or nothing when it was dropped.
        at += match rng.index(4) {
            0 => limited(polls, write.write(piece)).await.map_or(0, |written| written.unwrap()),
            1 => {
                let cut = rng.index(piece.len() + 1);
                let slices = [IoSlice::new(&piece[..cut]), IoSlice::new(&[]), IoSlice::new(&piece[cut..])];
                limited(polls, write.write_vectored(&slices)).await.map_or(0, |written| written.unwrap())
            }
            2 => {
                let bytes = Bytes::copy_from_slice(piece);
                limited(polls, write.send_bytes(bytes)).await.map_or(0, |sent| {
                    sent.unwrap();
                    piece.len()
                })
            }
            _ => {
                let _ = limited(polls, write.flush()).await.transpose().unwrap();
                0
            }
        };
    }
    // A shutdown that is dropped has begun.
    let _ = limited(rng.index(3), write.shutdown()).await.transpose().unwrap();
}

/// Reads to the end in the same way.
async fn read_in_pieces(mut read: ReadHalf, mut rng: Rng) -> Vec<u8> {
    let (mut got, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        let polls = rng.index(3);
        if rng.index(2) == 0 {
            match limited(polls, read.recv()).await {
                Some(chunk) => match chunk.unwrap() {
                    Some(chunk) => got.extend_from_slice(&chunk),
                    None => return got,
                },
                None => yield_now().await,
            }
        } else {
            let most = if rng.index(5) == 0 { buffer.len() } else { 500 };
            let len = 1 + rng.index(most);
            match limited(polls, read.read(&mut buffer[..len])).await {
                Some(read) => match read.unwrap() {
                    0 => return got,
                    read => got.extend_from_slice(&buffer[..read]),
                },
                None => yield_now().await,
            }
        }
    }
}

#[test]
fn futures_dropped_at_any_point_lose_no_byte() {
    run(async {
        for seed in 0..8 {
            let (ours, theirs) = pair().await;
            let (their_read, their_write) = theirs.into_split();
            let (our_read, our_write) = ours.into_split();
            let (one, other) = (Rc::new(pattern(1_500_000)), Rc::new(pattern(700_001)));
            let rng = |part: u64| Rng::new(seed * 10 + part);
            let writers = [
                spawn_local(write_in_pieces(our_write, one.clone(), rng(1))),
                spawn_local(write_in_pieces(their_write, other.clone(), rng(2))),
            ];
            let there = spawn_local(read_in_pieces(their_read, rng(3)));
            assert!(read_in_pieces(our_read, rng(4)).await == *other, "seed {seed}");
            assert!(there.await.unwrap() == *one, "seed {seed}");
            for writer in writers {
                writer.await.unwrap();
            }
        }
    });
}

#[test]
fn a_dropped_write_all_has_done_a_prefix() {
    run(async {
        let (mut ours, theirs) = pair().await;
        let sent = pattern(20 << 20);
        // More than fits: it is dropped in the middle.
        assert!(timeout(Duration::from_millis(20), ours.write_all(&sent)).await.is_err());
        drop(ours);
        let got = read_in_pieces(theirs.into_split().0, Rng::new(1)).await;
        assert!(!got.is_empty() && got.len() < sent.len() && sent.starts_with(&got));
    });
}

#[test]
fn a_dropped_read_exact_has_taken_nothing_whatever_its_length() {
    run(async {
        // More than a stream holds before its peer is held back, too.
        for len in [5, 1000, 70_000, 3 << 20] {
            let (mut ours, mut theirs) = pair().await;
            let sent = pattern(len);
            let cut = len * 3 / 5;
            let mut buffer = vec![0; len];
            theirs.write_all(&sent[..cut]).await.unwrap();
            let mut polls = 1;
            while limited(polls, ours.read_exact(&mut buffer[..cut])).await.is_none() {
                polls += 1;
                sleep(Duration::ZERO).await;
            }
            assert_eq!(buffer[..cut], sent[..cut]);

            theirs.write_all(&sent[..cut]).await.unwrap();
            for polls in 1..20 {
                assert!(limited(polls, ours.read_exact(&mut buffer)).await.is_none());
            }
            let (read, written) = futures_lite::future::zip(
                timeout(common::PATIENCE, ours.read_exact(&mut buffer)),
                theirs.write_all(&sent[cut..]),
            )
            .await;
            read.unwrap().unwrap();
            written.unwrap();
            assert!(buffer == sent, "{len} bytes");
        }
    });
}

#[test]
fn what_a_failed_read_exact_had_can_still_be_read() {
    run(async {
        let (mut ours, mut theirs) = pair().await;
        theirs.write_all(b"abc").await.unwrap();
        drop(theirs);
        let mut buffer = [0; 5];
        let error = ours.read_exact(&mut buffer).await.unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
        assert_eq!(ours.read(&mut buffer).await.unwrap(), 3);
        assert_eq!(&buffer[..3], b"abc");
        assert_eq!(ours.read(&mut buffer).await.unwrap(), 0);
    });
}

#[test]
fn a_dropped_accept_loses_no_connection() {
    run(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let mut rng = Rng::new(5);
        let connecting = spawn_local(async move {
            let mut streams = Vec::new();
            for _ in 0..60 {
                streams.push(TcpStream::connect(address).await.unwrap());
            }
            streams
        });
        let mut accepted = Vec::new();
        while accepted.len() < 60 {
            match limited(rng.index(3), listener.accept()).await {
                Some(stream) => accepted.push(stream.unwrap().1),
                None => yield_now().await,
            }
        }
        let mut theirs: Vec<_> =
            connecting.await.unwrap().iter().map(|stream| stream.local_addr().unwrap()).collect();
        accepted.sort();
        theirs.sort();
        assert_eq!(accepted, theirs);
    });
}

#[test]
fn a_dropped_connect_is_given_up() {
    run(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        for polls in [0, 1] {
            assert!(limited(polls, TcpStream::connect(address)).await.is_none());
        }
        let mut good = TcpStream::connect(address).await.unwrap();
        good.write_all(b"good").await.unwrap();
        // The kernel may have completed the one that was given up: it has ended then.
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            if let Ok(Some(chunk)) = stream.recv().await {
                assert_eq!(&chunk[..], b"good");
                break;
            }
        }
    });
}

#[test]
fn the_traits_of_futures_io_work() {
    run(async {
        let (mut ours, theirs) = pair().await;
        let (read, mut write) = theirs.into_split();
        let echo = spawn_local(async move {
            futures_lite::io::copy(read, &mut write).await.unwrap();
            AsyncWriteExt::close(&mut write).await.unwrap();
        });
        let sent = pattern(400_000);
        AsyncWriteExt::write_all(&mut ours, &sent).await.unwrap();
        AsyncWriteExt::flush(&mut ours).await.unwrap();
        let mut got = vec![0; sent.len()];
        AsyncReadExt::read_exact(&mut ours, &mut got).await.unwrap();
        assert!(got == sent);
        let slices = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(AsyncWriteExt::write_vectored(&mut ours, &slices).await.unwrap(), 7);
        AsyncWriteExt::close(&mut ours).await.unwrap();
        let mut rest = String::new();
        AsyncReadExt::read_to_string(&mut ours, &mut rest).await.unwrap();
        assert_eq!(rest, "one two");
        echo.await.unwrap();
    });
}

#[cfg(feature = "tokio-io")]
#[test]
fn the_traits_of_tokio_work() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    run(async {
        let (mut ours, theirs) = pair().await;
        let (mut read, mut write) = theirs.into_split();
        let echo = spawn_local(async move {
            tokio::io::copy(&mut read, &mut write).await.unwrap();
            AsyncWriteExt::shutdown(&mut write).await.unwrap();
        });
        let sent = pattern(400_000);
        AsyncWriteExt::write_all(&mut ours, &sent).await.unwrap();
        AsyncWriteExt::flush(&mut ours).await.unwrap();
        let mut got = vec![0; sent.len()];
        AsyncReadExt::read_exact(&mut ours, &mut got).await.unwrap();
        assert!(got == sent);
        let slices = [IoSlice::new(b"one "), IoSlice::new(b"two")];
        assert_eq!(AsyncWriteExt::write_vectored(&mut ours, &slices).await.unwrap(), 7);
        AsyncWriteExt::shutdown(&mut ours).await.unwrap();
        let mut rest = String::new();
        AsyncReadExt::read_to_string(&mut ours, &mut rest).await.unwrap();
        assert_eq!(rest, "one two");
        echo.await.unwrap();
    });
}

#[test]
fn a_connect_without_an_answer_ends_in_time() {
    run(async {
        let (address, _kept) = off_worker(silent_address).await;
        let (started, limit) = (Instant::now(), Duration::from_millis(50));
        let connected = TcpStream::connect_timeout(address, limit).await;
        assert_eq!(io_kind(connected), Some(io::ErrorKind::TimedOut));
        assert!(started.elapsed() >= limit && started.elapsed() < common::PATIENCE);
    });
}

#[test]
fn a_connect_to_nobody_is_refused() {
    run(async {
        let address = StdListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        assert_eq!(io_kind(TcpStream::connect(address).await), Some(io::ErrorKind::ConnectionRefused));
        let limit = Duration::from_secs(5);
        let connected = TcpStream::connect_timeout(address, limit).await;
        assert_eq!(io_kind(connected), Some(io::ErrorKind::ConnectionRefused));
        let name = format!("@corewire-nobody-{}", std::process::id());
        assert_eq!(io_kind(UnixStream::connect(&name).await), Some(io::ErrorKind::ConnectionRefused));
        assert_eq!(io_kind(UnixStream::connect("/nonexistent/x").await), Some(io::ErrorKind::NotFound));
    });
}

#[test]
fn an_address_in_use_is_an_error() {
    run(async {
        let listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        assert_eq!(io_kind(TcpListener::bind(address)), Some(io::ErrorKind::AddrInUse));
        let name = format!("@corewire-in-use-{}", std::process::id());
        let _listener = UnixListener::bind(&name).unwrap();
        assert_eq!(io_kind(UnixListener::bind(&name)), Some(io::ErrorKind::AddrInUse));
    });
}

#[test]
fn ipv6_works_and_leaves_the_port_to_ipv4() {
    run(async {
        let Ok(mut six) = TcpListener::bind("[::1]:0".parse().unwrap()) else {
            eprintln!("not run: no IPv6 here");
            return;
        };
        let address = six.local_addr().unwrap();
        let mut ours = TcpStream::connect(address).await.unwrap();
        let (mut theirs, peer) = six.accept().await.unwrap();
        assert_eq!(peer, ours.local_addr().unwrap());
        ours.write_all(b"six").await.unwrap();
        assert_eq!(theirs.recv().await.unwrap().unwrap(), "six");
    });
}

#[test]
fn a_half_closed_stream_still_writes() {
    run(async {
        let (socket, mut peer) = sockets();
        let mut stream = TcpStream::from_socket(socket).unwrap();
        peer.write_all(b"question").unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.recv().await.unwrap().unwrap(), "question");
        assert_eq!(stream.recv().await.unwrap(), None);
        assert_eq!(stream.read(&mut [0; 4]).await.unwrap(), 0);
        stream.write_all(&pattern(500_000)).await.unwrap();
        drop(stream);
        let got = off_worker(move || {
            let mut got = Vec::new();
            peer.read_to_end(&mut got).unwrap();
            got
        })
        .await;
        assert!(got == pattern(500_000));
    });
}

#[test]
fn a_shut_down_stream_still_reads_and_refuses_writes() {
    run(async {
        let (socket, mut peer) = sockets();
        let mut stream = TcpStream::from_socket(socket).unwrap();
        stream.write_all(b"last").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(io_kind(stream.write(b"more").await), Some(io::ErrorKind::NotConnected));
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        assert_eq!(got, b"last");
        peer.write_all(b"answer").unwrap();
        drop(peer);
        let mut answer = [0; 6];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        let error = stream.read_exact(&mut answer).await;
        assert_eq!(io_kind(error), Some(io::ErrorKind::UnexpectedEof));
    });
}

#[test]
fn a_peer_that_sends_one_byte_at_a_time_is_read_whole() {
    run(async {
        let (socket, peer) = sockets();
        let mut stream = TcpStream::from_socket(socket).unwrap();
        peer.set_nodelay(true).unwrap();
        let writer = spawn_local(off_worker(move || {
            pattern(3000).chunks(1).for_each(|byte| (&peer).write_all(byte).unwrap());
        }));
        let mut got = vec![0; 3000];
        stream.read_exact(&mut got).await.unwrap();
        assert!(got == pattern(3000));
        assert_eq!(stream.recv().await.unwrap(), None);
        writer.await.unwrap();
    });
}

#[test]
fn a_reader_that_does_not_read_holds_its_peer_back() {
    run(async {
        let (socket, peer) = sockets();
        let mut stream = TcpStream::from_socket(socket).unwrap();
        let sent = pattern(40 << 20);
        let total = sent.len();
        peer.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
        let (peer, sent, at) = off_worker(move || {
            let mut at = 0;
            while let Ok(written) = (&peer).write(&sent[at..]) {
                at += written;
            }
            (peer, sent, at)
        })
        .await;
        assert!(at < total, "the peer was never held back");
        let writer = spawn_local(off_worker(move || {
            peer.set_write_timeout(Some(common::PATIENCE)).unwrap();
            (&peer).write_all(&sent[at..]).unwrap();
        }));
        let mut got = Vec::new();
        while let Some(chunk) = stream.recv().await.unwrap() {
            got.extend_from_slice(&chunk);
        }
        assert!(got == pattern(total));
        writer.await.unwrap();
    });
}

#[test]
fn a_reset_gives_what_came_before_it_and_then_the_error() {
    run(async {
        let (socket, mut peer) = sockets();
        let mut stream = TcpStream::from_socket(socket).unwrap();
        peer.write_all(b"half a mess").unwrap();
        assert_eq!(stream.recv().await.unwrap().unwrap(), "half a mess");
        corewire_runtime::driver::Socket::from_fd(peer.into()).unwrap().set_reset_on_close().unwrap();
        assert_eq!(io_kind(stream.recv().await), Some(io::ErrorKind::ConnectionReset));
        assert_eq!(io_kind(stream.read(&mut [0]).await), Some(io::ErrorKind::ConnectionReset));
        assert_eq!(io_kind(stream.write(b"x").await), Some(io::ErrorKind::ConnectionReset));
        assert_eq!(io_kind(stream.flush().await), Some(io::ErrorKind::ConnectionReset));
    });
}

#[test]
fn an_aborted_stream_resets_its_peer() {
    run(async {
        let (socket, mut peer) = sockets();
        TcpStream::from_socket(socket).unwrap().abort();
        let error = off_worker(move || peer.read(&mut [0])).await;
        assert_eq!(io_kind(error), Some(io::ErrorKind::ConnectionReset));
    });
}

#[test]
fn ten_thousand_connections_come_and_go() {
    let runtime = corewire_runtime::Runtime::builder().workers(1).build().unwrap();
    let task = runtime.handle().spawn_on(0, || async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        drop(spawn_local(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                drop(spawn_local(async move {
                    while let Ok(Some(chunk)) = stream.recv().await {
                        stream.write_all(&chunk).await.unwrap();
                    }
                }));
            }
        }));
        for round in 0..10_000_u32 {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(&round.to_le_bytes()).await.unwrap();
            let mut reply = [0; 4];
            stream.read_exact(&mut reply).await.unwrap();
            assert_eq!(u32::from_le_bytes(reply), round);
            // By reset, or the ports of this machine run out.
            stream.abort();
        }
    });
    task.unwrap().join().unwrap();
    let until = Instant::now() + common::PATIENCE;
    while runtime.handle().stats().closed < 20_000 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(1));
    }
    let stats = runtime.handle().stats();
    assert_eq!((stats.accepted, stats.connected, stats.closed), (10_000, 10_000, 20_000));
    assert_eq!(stats.panics, 0);
}
