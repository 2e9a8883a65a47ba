//! What is made for tokio, in tasks of workers that are in tokio's context; on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use corewire_runtime::{BuildError, JoinError, Runtime, TokioContext, sleep, spawn_local, timeout};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::oneshot;

/// Long enough for a loaded machine; reached only when a test fails.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a test on a worker in tokio's context.
fn run<F: Future<Output = ()> + 'static>(
    context: impl Into<TokioContext>,
    test: impl FnOnce() -> F + Send + 'static,
) {
    let runtime = Runtime::builder().workers(1).tokio(context).build().unwrap();
    let within = || async { timeout(PATIENCE, test()).await.expect("the test hangs") };
    runtime.handle().spawn_on(0, within).unwrap().join().unwrap();
}

/// Echoes one connection, on tokio's threads.
async fn echo_server() -> std::net::SocketAddr {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut read, mut write) = stream.split();
        tokio::io::copy(&mut read, &mut write).await.unwrap();
    });
    address
}

async fn everything() {
    let began = Instant::now();
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(began.elapsed() >= Duration::from_millis(20));

    assert_eq!(
        tokio::spawn(async { thread::current().id() }).await.map(|id| id == thread::current().id()).ok(),
        Some(false)
    );
    assert_eq!(tokio::task::spawn_blocking(|| 6 * 7).await.unwrap(), 42);

    let mut stream = tokio::net::TcpStream::connect(echo_server().await).await.unwrap();
    let sent: Vec<u8> = (0..300_000_u32).map(|at| at as u8).collect();
    let (mut read, mut write) = stream.split();
    let mut got = Vec::new();
    let (wrote, read) = futures_lite::future::zip(
        async {
            write.write_all(&sent).await?;
            write.shutdown().await
        },
        read.read_to_end(&mut got),
    )
    .await;
    wrote.unwrap();
    assert_eq!((read.unwrap(), got), (sent.len(), sent));
}

#[test]
fn sleeps_sockets_and_spawned_tasks_of_tokio_work_in_a_context_of_our_own() {
    run(TokioContext::own(), everything);
    run(TokioContext::own_with_threads(2), everything);
}

#[test]
fn they_work_in_the_context_of_a_runtime_that_exists() {
    let many = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    run(many.handle().clone(), everything);

    let one = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let handle = one.handle().clone();
    let driving = thread::spawn(move || one.block_on(stopped));
    run(handle, everything);
    drop(stop);
    assert!(driving.join().unwrap().is_err());
}

#[test]
fn each_worker_is_in_the_context_and_the_one_of_run_if_its_thread_is() {
    let runtime = Runtime::builder().workers(3).tokio(TokioContext::own()).build().unwrap();
    let ids: Vec<_> = (0..3)
        .map(|worker| {
            let id = || async { tokio::runtime::Handle::current().id() };
            runtime.handle().spawn_on(worker, id).unwrap().join().unwrap()
        })
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");

    let tokio = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _context = tokio.enter();
    corewire_runtime::run(tokio::time::sleep(Duration::from_millis(1))).unwrap();
}

#[test]
fn a_task_that_sleeps_is_woken_from_a_thread_of_tokio_each_time() {
    run(TokioContext::own(), || async {
        for round in 0..500 {
            let (sender, receiver) = oneshot::channel();
            tokio::spawn(async move {
                if round % 50 == 0 {
                    // Long enough for the worker to sleep.
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
                sender.send(round).unwrap();
            });
            assert_eq!(receiver.await, Ok(round));
        }
    });
}

#[test]
fn other_tasks_go_on_while_one_waits_for_tokio() {
    run(TokioContext::own(), || async {
        let (sender, receiver) = oneshot::channel::<()>();
        let waiting = spawn_local(receiver);
        for _ in 0..10 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(!waiting.is_finished());
        sender.send(()).unwrap();
        waiting.await.unwrap().unwrap();
    });
}

#[test]
fn futures_of_tokio_that_are_given_up_are_dropped_on_their_worker() {
    struct Here(thread::ThreadId);
    impl Drop for Here {
        fn drop(&mut self) {
            assert_eq!(self.0, thread::current().id());
        }
    }
    run(TokioContext::own(), || async {
        let here = || Here(thread::current().id());
        let address = echo_server().await;
        for _ in 0..100 {
            let here = here();
            let sleeps = async move {
                tokio::time::sleep(PATIENCE).await;
                drop(here);
            };
            assert!(timeout(Duration::ZERO, sleeps).await.is_err());
        }
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let here = here();
        let reads = spawn_local(async move {
            let _here = here;
            stream.read_u8().await
        });
        sleep(Duration::from_millis(1)).await;
        reads.abort();
        // Its waker may be woken once more by tokio: nothing comes of that.
        sleep(Duration::from_millis(1)).await;
    });
}

#[test]
fn the_end_of_the_runtime_drops_its_tasks_in_the_context_and_ends_its_own_tokio() {
    struct InContext(mpsc::Sender<bool>);
    impl Drop for InContext {
        fn drop(&mut self) {
            self.0.send(tokio::runtime::Handle::try_current().is_ok()).unwrap();
        }
    }
    let runtime = Runtime::builder().workers(2).tokio(TokioContext::own()).build().unwrap();
    let (in_context, dropped) = mpsc::channel();
    let (in_tokio, tokio_ended) = mpsc::channel::<()>();
    let begun = runtime.handle().spawn_on(1, move || async move {
        let (started, has_started) = oneshot::channel();
        tokio::spawn(async move {
            let _kept = in_tokio;
            started.send(()).unwrap();
            std::future::pending::<()>().await;
        });
        has_started.await.unwrap();
        let socket = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        drop(spawn_local(async move {
            let _in_context = InContext(in_context);
            drop(socket.accept().await);
        }));
        sleep(Duration::from_millis(1)).await;
    });
    begun.unwrap().join().unwrap();
    drop(runtime);
    assert_eq!(dropped.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(tokio_ended.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn a_runtime_with_its_own_tokio_may_be_dropped_in_a_task_of_tokio() {
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio.block_on(async {
        let runtime = Runtime::builder().workers(1).tokio(TokioContext::own()).build().unwrap();
        let task = runtime.handle().spawn(|| tokio::time::sleep(Duration::from_millis(1))).unwrap();
        task.await.unwrap();
        runtime.shutdown(PATIENCE);
    });
}

#[test]
fn a_context_without_threads_is_refused() {
    let error = Runtime::builder().workers(1).tokio(TokioContext::own_with_threads(0)).build().unwrap_err();
    assert!(matches!(error, BuildError::Setting { value: 0, .. }));
    assert_eq!(error.to_string(), "the number of tokio's threads is 0, but must be 1 or more");
}

#[test]
fn a_panic_in_a_future_of_tokio_fails_its_task_alone() {
    run(TokioContext::own(), || async {
        let task = spawn_local(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            panic!("on purpose");
        });
        assert_eq!(task.await, Err::<(), _>(JoinError::Panicked("on purpose".to_owned())));
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
}
