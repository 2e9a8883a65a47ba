//! Descriptors of the user's own, on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::io::{ErrorKind, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{io_kind, pattern, poll_once, run, some_ticks};
use corewire_runtime::{FdWatch, spawn_local};

fn nonblocking(descriptor: impl AsFd) {
    let flags = rustix::fs::fcntl_getfl(&descriptor).unwrap();
    rustix::fs::fcntl_setfl(&descriptor, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
}

fn pipe() -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    nonblocking(&reader);
    nonblocking(&writer);
    (reader, writer)
}

#[test]
fn a_descriptor_is_readable_once_something_is_there_and_as_long_as_it_is() {
    run(async {
        let (mut reader, mut writer) = pipe();
        let watch = FdWatch::new(&reader).unwrap();
        for _ in 0..3 {
            assert!(poll_once(watch.readable()).await.is_none());
            some_ticks(2).await;
            let mut waits = pin!(watch.readable());
            assert!(poll_once(&mut waits).await.is_none());
            writer.write_all(b"ab").unwrap();
            waits.await.unwrap();
            // Not an edge: who asks again is told again.
            watch.readable().await.unwrap();
            assert_eq!(reader.read(&mut [0]).unwrap(), 1);
            watch.readable().await.unwrap();
            assert_eq!(reader.read(&mut [0]).unwrap(), 1);
        }
        drop(writer);
        watch.readable().await.unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end");
    });
}

#[test]
fn bytes_pass_a_full_pipe_by_calls_that_are_made_when_it_is_ready() {
    run(async {
        let (mut reader, mut writer) = pipe();
        let sent = pattern(1_000_000);
        let copy = sent.clone();
        let writing = spawn_local(async move {
            let watch = FdWatch::new(&writer).unwrap();
            let mut rest = &copy[..];
            while !rest.is_empty() {
                rest = &rest[watch.write_with(|| writer.write(rest)).await.unwrap()..];
            }
        });
        let watch = FdWatch::new(&reader).unwrap();
        let (mut got, mut buffer) = (Vec::new(), [0; 5_000]);
        loop {
            match watch.read_with(|| reader.read(&mut buffer)).await.unwrap() {
                0 => break,
                read => got.extend_from_slice(&buffer[..read]),
            }
        }
        writing.await.unwrap();
        assert!(got == sent);
    });
}

#[test]
fn a_writer_learns_that_nobody_reads_and_other_errors_are_the_calls_own() {
    run(async {
        let (reader, mut writer) = pipe();
        let watch = FdWatch::new(&writer).unwrap();
        watch.writable().await.unwrap();
        while writer.write(&[0; 4_096]).is_ok() {}
        let mut waits = pin!(watch.writable());
        assert!(poll_once(&mut waits).await.is_none());
        some_ticks(2).await;
        assert!(poll_once(&mut waits).await.is_none());
        drop(reader);
        waits.await.unwrap();
        let written = watch.write_with(|| writer.write(b"x")).await;
        assert_eq!(io_kind(written), Some(ErrorKind::BrokenPipe));
    });
}

#[test]
fn several_tasks_wait_for_both_directions_of_one_descriptor() {
    run(async {
        let (mut one, other) = std::os::unix::net::UnixStream::pair().unwrap();
        other.set_nonblocking(true).unwrap();
        one.set_nonblocking(true).unwrap();
        let mut filled = 0;
        while let Ok(written) = (&other).write(&[7; 4_096]) {
            filled += written;
        }
        let watch = std::rc::Rc::new(FdWatch::new(&other).unwrap());
        let tasks: Vec<_> = (0..6)
            .map(|number| {
                let watch = watch.clone();
                spawn_local(async move {
                    if number % 2 == 0 { watch.readable().await } else { watch.writable().await }
                })
            })
            .collect();
        some_ticks(2).await;
        assert!(tasks.iter().all(|task| !task.is_finished()));
        one.write_all(b"x").unwrap();
        let mut drained = 0;
        while drained < filled {
            drained += one.read(&mut [0; 4_096]).unwrap();
        }
        for task in tasks {
            task.await.unwrap().unwrap();
        }
    });
}

#[derive(Default)]
struct Wakes(AtomicUsize);

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_wait_that_was_dropped_leaves_no_waker() {
    run(async {
        let (reader, mut writer) = pipe();
        let watch = FdWatch::new(&reader).unwrap();
        let (dropped, waits) = (Arc::new(Wakes::default()), Arc::new(Wakes::default()));
        let poll = |wakes: &Arc<Wakes>,
                    future: std::pin::Pin<&mut dyn Future<Output = std::io::Result<()>>>| {
            future.poll(&mut Context::from_waker(&Waker::from(wakes.clone()))).is_pending()
        };
        for _ in 0..100 {
            assert!(poll(&dropped, pin!(watch.readable())));
        }
        let mut last = pin!(watch.readable());
        assert!(poll(&waits, last.as_mut()));
        writer.write_all(b"x").unwrap();
        last.await.unwrap();
        assert_eq!(dropped.0.load(Ordering::Relaxed), 0);
        assert_eq!(Arc::strong_count(&dropped), 1);
    });
}

#[test]
fn the_descriptor_stays_the_callers_and_its_number_may_be_used_again() {
    run(async {
        for _ in 0..50 {
            let (mut reader, mut writer) = pipe();
            let watch = FdWatch::new(&reader).unwrap();
            assert!(poll_once(watch.readable()).await.is_none());
            // Closed while a wait for it is on its way to the kernel, or there.
            drop(watch);
            writer.write_all(b"x").unwrap();
            assert_eq!(reader.read(&mut [0; 8]).unwrap(), 1, "still open");
            let (reader, mut writer) = pipe();
            let watch = FdWatch::new(&reader).unwrap();
            let mut waits = pin!(watch.readable());
            assert!(poll_once(&mut waits).await.is_none());
            some_ticks(1).await;
            assert!(poll_once(&mut waits).await.is_none(), "told of another descriptor");
            writer.write_all(b"x").unwrap();
            waits.await.unwrap();
        }
    });
}

#[test]
fn what_is_always_ready_is_refused() {
    run(async {
        for path in ["Cargo.toml", "src"] {
            let error = FdWatch::new(std::fs::File::open(path).unwrap()).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidInput);
            assert!(error.to_string().contains("always ready"), "{error}");
        }
    });
}

#[test]
fn a_worker_that_sleeps_is_woken_by_a_descriptor() {
    run(async {
        let (reader, mut writer) = pipe();
        let watch = FdWatch::new(&reader).unwrap();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(30));
            writer.write_all(b"x").unwrap();
            writer
        });
        watch.readable().await.unwrap();
        drop(thread.join());
    });
}
