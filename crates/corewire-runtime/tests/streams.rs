//! Streams, on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::io;
use std::time::Duration;

use corewire_runtime::{
    JoinError, Runtime, TcpListener, TcpStream, UnixListener, UnixStream, sleep_until, spawn_blocking,
    spawn_local, timeout,
};

fn run<F: Future<Output = io::Result<()>> + 'static>(test: F) {
    corewire_runtime::run(test).unwrap().unwrap();
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251) as u8).collect()
}

/// A listener that echoes every connection to its end.
fn echo_server() -> io::Result<std::net::SocketAddr> {
    let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
    let address = listener.local_addr()?;
    drop(spawn_local(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            drop(spawn_local(async move {
                while let Some(chunk) = stream.recv().await? {
                    stream.write_all(&chunk).await?;
                }
                stream.shutdown().await
            }));
        }
    }));
    Ok(address)
}

#[test]
fn what_is_written_comes_back_and_the_end_after_it() {
    run(async {
        let address = echo_server()?;
        for len in [1, 1000, 70_000, 5_000_000] {
            let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
            let sent = pattern(len);
            let copy = sent.clone();
            let writer = spawn_local(async move {
                write.write_all(&copy).await?;
                write.shutdown().await
            });
            let mut got = Vec::new();
            while let Some(chunk) = read.recv().await? {
                got.extend_from_slice(&chunk);
            }
            assert!(got == sent, "{len} bytes");
            writer.await.unwrap()?;
        }
        Ok(())
    });
}

#[test]
fn unix_sockets_work_the_same() {
    run(async {
        let name = format!("@corewire-test-{}", std::process::id());
        let mut listener = UnixListener::bind(&name)?;
        let server = spawn_local(async move {
            let mut stream = listener.accept().await?;
            let mut got = [0; 5];
            stream.read_exact(&mut got).await?;
            stream.write_all(&got).await?;
            io::Result::Ok(())
        });
        let mut stream = UnixStream::connect(&name).await?;
        stream.write_all(b"hello").await?;
        let mut got = [0; 5];
        stream.read_exact(&mut got).await?;
        assert_eq!(&got, b"hello");
        server.await.unwrap()?;
        assert_eq!(stream.recv().await?, None);
        Ok(())
    });
}

#[test]
fn dropped_reads_and_writes_lose_no_byte() {
    run(async {
        let address = echo_server()?;
        let (mut read, mut write) = TcpStream::connect(address).await?.into_split();
        let sent = pattern(300_000);
        let copy = sent.clone();
        let writer = spawn_local(async move {
            let mut rest = &copy[..];
            let mut step = 1;
            while !rest.is_empty() {
                // Given up at once: it has either taken all of the step or nothing.
                let piece = &rest[..step.min(rest.len())];
                if let Some(written) = poll_once(write.write(piece)).await {
                    rest = &rest[written?..];
                }
                step = step % 4999 + 7;
                corewire_runtime::yield_now().await;
            }
            write.shutdown().await
        });
        let mut got = Vec::new();
        let mut buffer = [0; 777];
        loop {
            if let Some(chunk) = poll_once(read.recv()).await {
                match chunk? {
                    Some(chunk) => got.extend_from_slice(&chunk),
                    None => break,
                }
            }
            if let Some(read) = poll_once(read.read(&mut buffer)).await {
                got.extend_from_slice(&buffer[..read?]);
            }
            corewire_runtime::yield_now().await;
        }
        assert!(got == sent);
        writer.await.unwrap()
    });
}

/// Polls a future once and drops it.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        std::task::Poll::Ready(match future.as_mut().poll(context) {
            std::task::Poll::Ready(output) => Some(output),
            std::task::Poll::Pending => None,
        })
    })
    .await
}

#[test]
fn a_writer_waits_for_a_peer_that_does_not_read() {
    run(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        let mut stream = TcpStream::connect(address).await?;
        let (mut peer, _) = listener.accept().await?;
        let block = pattern(100_000);
        let mut written = 0;
        while let Ok(step) = timeout(Duration::from_millis(50), stream.write(&block)).await {
            written += step?;
            assert!(written < 100 << 20, "the writer was never held back");
        }
        let reader = spawn_local(async move {
            let mut got = 0;
            while let Some(chunk) = peer.recv().await? {
                got += chunk.len();
            }
            io::Result::Ok(got)
        });
        stream.shutdown().await?;
        assert_eq!(reader.await.unwrap()?, written);
        Ok(())
    });
}

#[test]
fn a_panic_ends_its_task_and_nothing_else() {
    run(async {
        let failed = spawn_local(async { panic!("on purpose") });
        assert_eq!(failed.await, Err::<(), _>(JoinError::Panicked("on purpose".to_owned())));
        assert_eq!(spawn_local(async { 7 }).await, Ok(7));
        Ok(())
    });
}

#[test]
fn blocking_work_gives_its_result_to_the_task() {
    run(async {
        assert_eq!(spawn_blocking(|| 6 * 7).await.unwrap(), 42);
        assert!(
            spawn_blocking(|| panic!("on purpose")).await.unwrap_err().to_string().contains("on purpose")
        );
        Ok(())
    });
}

#[test]
fn sleeping_tasks_wake_in_order_and_never_early() {
    run(async {
        let woken = std::rc::Rc::new(std::cell::RefCell::new(Vec::new()));
        // From one beginning, since a machine may be stopped between the tasks.
        let started = std::time::Instant::now();
        let tasks = [500, 10].map(|ms| {
            let woken = woken.clone();
            spawn_local(async move {
                sleep_until(started + Duration::from_millis(ms)).await;
                assert!(started.elapsed() >= Duration::from_millis(ms), "{ms} ms");
                woken.borrow_mut().push(ms);
            })
        });
        for task in tasks {
            task.await.unwrap();
        }
        assert_eq!(*woken.borrow(), [10, 500]);
        assert!(timeout(Duration::from_millis(5), std::future::pending::<()>()).await.is_err());
        Ok(())
    });
}

#[test]
fn tasks_run_on_the_worker_they_are_sent_to() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    let ids = runtime.handle().worker_ids();
    for (worker, id) in ids.iter().enumerate() {
        let task =
            runtime.handle().spawn_on(worker, || async { corewire_runtime::current_worker() }).unwrap();
        assert_eq!(task.join().unwrap(), Some(*id));
    }
    let error = runtime.handle().spawn_on(9, || async {}).unwrap_err();
    assert_eq!(error.to_string(), "there is no worker 9: this runtime has 2 (0 to 1)");
}

#[test]
fn a_runtime_that_stops_drops_its_tasks() {
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let task = runtime
        .handle()
        .spawn_on(0, move || async move {
            let _kept = sender;
            std::future::pending::<()>().await;
        })
        .unwrap();
    drop(runtime);
    assert!(receiver.recv().is_err(), "the task's state was dropped");
    assert_eq!(task.join(), Err(JoinError::Cancelled));
}

#[test]
fn a_close_while_the_peer_is_still_sending_loses_nothing_that_was_sent_to_it() {
    // Without a lingering close the kernel resets the connection, and the peer loses what it has not read.
    run(async {
        let mut listener = TcpListener::bind("127.0.0.1:0".parse().unwrap())?;
        let address = listener.local_addr()?;
        let peer = std::thread::spawn(move || {
            use std::io::{Read, Write};
            let mut peer = std::net::TcpStream::connect(address).unwrap();
            let mut sender = peer.try_clone().unwrap();
            let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
            let stopped = stop.clone();
            let sending = std::thread::spawn(move || {
                while !stopped.load(std::sync::atomic::Ordering::Relaxed)
                    && sender.write_all(&[7; 1000]).is_ok()
                {}
                let _ = sender.shutdown(std::net::Shutdown::Write);
            });
            let (mut got, mut buffer) = (0, [0; 4096]);
            let end = loop {
                match peer.read(&mut buffer) {
                    Ok(0) => break Ok(got),
                    Ok(read) => got += read,
                    Err(error) => break Err((error, got)),
                }
            };
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            sending.join().unwrap();
            end
        });
        let (mut stream, _) = listener.accept().await?;
        stream.recv().await?;
        stream.write_all(&pattern(1 << 20)).await?;
        drop(stream);
        let got = spawn_blocking(move || peer.join().unwrap()).await.unwrap();
        assert_eq!(got.unwrap(), 1 << 20);
        Ok(())
    });
}
