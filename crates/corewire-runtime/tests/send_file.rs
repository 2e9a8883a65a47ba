//! Ranges of files, on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::fs::File;
use std::io::{ErrorKind, Read, Seek, Write};
use std::net::TcpStream as StdStream;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{io_kind, off_worker, pattern, poll_once, run, sockets};
use corewire_runtime::{TcpStream, UnixStream, spawn_local};

/// A file that is gone when it is closed.
fn file(bytes: &[u8]) -> File {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("corewire-send-file-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
    let path = std::env::temp_dir().join(name);
    let mut file = File::options().create_new(true).read(true).write(true).open(&path).unwrap();
    std::fs::remove_file(path).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn stream() -> (TcpStream, StdStream) {
    let (socket, peer) = sockets();
    (TcpStream::from_socket(socket).unwrap(), peer)
}

async fn read_to_end(mut peer: StdStream) -> Vec<u8> {
    off_worker(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    })
    .await
}

#[test]
fn ranges_leave_between_what_is_written_before_and_after() {
    run(async {
        let bytes = pattern(5_000_000);
        let mut file = file(&bytes);
        let position = file.stream_position().unwrap();
        let (mut stream, peer) = stream();
        let reading = spawn_local(read_to_end(peer));
        let mut expected = Vec::new();
        for range in [0..10, 10..10, 1_000..1_200_000, 0..5_000_000, 4_999_999..5_000_000] {
            stream.write_all(b"head").await.unwrap();
            stream.send_file(&file, range.clone()).await.unwrap();
            stream.write_all(b"tail").await.unwrap();
            let range = range.start as usize..range.end as usize;
            expected.extend_from_slice(&[b"head", &bytes[range], b"tail"].concat());
        }
        stream.shutdown().await.unwrap();
        assert!(reading.await.unwrap() == expected);
        assert_eq!(file.stream_position().unwrap(), position);
    });
}

#[test]
fn a_peer_that_reads_late_holds_the_sender_back() {
    run(async {
        let bytes = pattern(20_000_000);
        let file = file(&bytes);
        let (mut stream, peer) = stream();
        let sending = spawn_local(async move {
            // The queue is not empty when it begins.
            stream.write_all(&vec![1; 4_000_000]).await.unwrap();
            stream.send_file(&file, 0..20_000_000).await.unwrap();
            stream.shutdown().await
        });
        common::some_ticks(20).await;
        assert!(!sending.is_finished(), "nothing was read yet");
        let got = read_to_end(peer).await;
        sending.await.unwrap().unwrap();
        assert_eq!(got.len(), 24_000_000);
        assert!(got[4_000_000..] == bytes);
    });
}

#[test]
fn one_that_is_dropped_has_sent_a_beginning_and_writing_goes_on_behind_it() {
    run(async {
        let bytes = pattern(20_000_000);
        let file = file(&bytes);
        let (mut stream, peer) = stream();
        {
            let mut sending = std::pin::pin!(stream.send_file(&file, 0..20_000_000));
            for _ in 0..20 {
                assert!(poll_once(&mut sending).await.is_none());
                common::some_ticks(1).await;
            }
        }
        let reading = spawn_local(read_to_end(peer));
        stream.write_all(b"behind it").await.unwrap();
        stream.shutdown().await.unwrap();
        let got = reading.await.unwrap();
        let sent = got.strip_suffix(b"behind it").unwrap();
        assert!(!sent.is_empty() && bytes.starts_with(sent));
    });
}

#[test]
fn a_file_that_ends_before_the_range_is_told_and_the_connection_goes_on() {
    run(async {
        let file = file(b"short");
        let (mut stream, peer) = stream();
        let error = stream.send_file(&file, 1..10).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnexpectedEof);
        assert!(error.to_string().contains("ends at byte 5"), "{error}");
        let directory = File::open(".").unwrap();
        assert!(stream.send_file(&directory, 0..1).await.is_err());
        stream.write_all(b"!").await.unwrap();
        stream.shutdown().await.unwrap();
        assert_eq!(read_to_end(peer).await, b"hort!");
    });
}

#[test]
fn a_lost_connection_ends_it() {
    run(async {
        let file = file(&pattern(20_000_000));
        let (mut stream, mut peer) = stream();
        let sending = spawn_local(async move { stream.send_file(&file, 0..20_000_000).await });
        off_worker(move || {
            peer.read_exact(&mut [0; 1_000]).unwrap();
            // Unread bytes: the close is a reset.
            drop(peer);
        })
        .await;
        let kind = io_kind(sending.await.unwrap());
        use ErrorKind::{BrokenPipe, ConnectionReset, NotConnected};
        assert!(matches!(kind, Some(BrokenPipe | ConnectionReset | NotConnected)), "{kind:?}");
    });
}

#[test]
fn unix_sockets_take_files_too() {
    run(async {
        let (one, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = UnixStream::from_std(one).unwrap();
        let bytes = pattern(1_000_000);
        let file = file(&bytes);
        let reading = std::thread::spawn(move || {
            let mut got = Vec::new();
            other.read_to_end(&mut got).unwrap();
            got
        });
        stream.send_file(&file, 0..1_000_000).await.unwrap();
        stream.shutdown().await.unwrap();
        assert!(off_worker(move || reading.join().unwrap()).await == bytes);
    });
}
