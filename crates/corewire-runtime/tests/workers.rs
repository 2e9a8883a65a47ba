//! Workers: their tasks, wakers, mailboxes, timers, beginning and end.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Poll, Waker};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use common::{PATIENCE, run};
use corewire_runtime::blocking::{BlockingLimits, SpawnBlockingError};
use corewire_runtime::{
    BlockingError, BuildError, JoinError, Runtime, SpawnError, current_worker, sleep, sleep_until,
    spawn_blocking, spawn_local, timeout, yield_now,
};

/// Says on which thread it was dropped. Not `Send`, as a task's state need not be.
struct DropThread(mpsc::Sender<ThreadId>, #[allow(dead_code)] Rc<()>);

impl DropThread {
    fn new(sender: mpsc::Sender<ThreadId>) -> Self {
        Self(sender, Rc::new(()))
    }
}

impl Drop for DropThread {
    fn drop(&mut self) {
        let _ = self.0.send(thread::current().id());
    }
}

fn one_worker() -> Runtime {
    Runtime::builder().workers(1).build().unwrap()
}

fn thread_of(runtime: &Runtime) -> ThreadId {
    runtime.handle().spawn_on(0, || async { thread::current().id() }).unwrap().join().unwrap()
}

#[test]
fn an_aborted_task_drops_its_state_and_a_detached_one_goes_on() {
    run(async {
        let (sender, receiver) = mpsc::channel();
        let task = spawn_local(async move {
            let _kept = DropThread::new(sender);
            std::future::pending::<()>().await;
        });
        yield_now().await;
        assert!(!task.is_finished());
        task.abort();
        yield_now().await;
        yield_now().await;
        assert_eq!(receiver.try_recv().unwrap(), thread::current().id());

        let (sender, receiver) = mpsc::channel();
        drop(spawn_local(async move {
            sleep(Duration::from_millis(1)).await;
            sender.send(7).unwrap();
        }));
        let sent = timeout(PATIENCE, async {
            loop {
                match receiver.try_recv() {
                    Err(mpsc::TryRecvError::Empty) => sleep(Duration::from_millis(1)).await,
                    sent => return sent,
                }
            }
        });
        assert_eq!(sent.await, Ok(Ok(7)));

        let done = spawn_local(async { "result" });
        yield_now().await;
        yield_now().await;
        assert!(done.is_finished());
        assert_eq!(done.await, Ok("result"));
    });
}

#[test]
fn a_task_woken_by_another_thread_runs_on_its_worker() {
    let runtime = one_worker();
    let home = thread_of(&runtime);
    let shared: Arc<(Mutex<Option<Waker>>, AtomicUsize)> = Arc::default();
    let (seen, in_task) = (shared.clone(), shared.clone());
    let task = runtime
        .handle()
        .spawn_on(0, move || async move {
            let mut threads = Vec::new();
            std::future::poll_fn(|context| {
                threads.push(thread::current().id());
                *in_task.0.lock().unwrap() = Some(context.waker().clone());
                if in_task.1.load(Ordering::Acquire) == 100 { Poll::Ready(()) } else { Poll::Pending }
            })
            .await;
            threads
        })
        .unwrap();
    for _ in 0..100 {
        let waker = loop {
            match seen.0.lock().unwrap().take() {
                Some(waker) => break waker,
                None => thread::yield_now(),
            }
        };
        seen.1.fetch_add(1, Ordering::AcqRel);
        waker.wake();
    }
    let threads = task.join().unwrap();
    assert!(threads.iter().all(|thread| *thread == home));
}

#[test]
fn tasks_alive_at_shutdown_are_dropped_on_their_own_thread() {
    for round in 0..50 {
        let runtime = one_worker();
        let home = thread_of(&runtime);
        let (sender, receiver) = mpsc::channel();
        let (waker_sender, wakers) = mpsc::channel();
        for _ in 0..4 {
            let (sender, waker_sender) = (sender.clone(), waker_sender.clone());
            drop(runtime.handle().spawn_on(0, move || {
                let kept = DropThread::new(sender);
                async move {
                    let _kept = kept;
                    std::future::poll_fn(|context| {
                        let _ = waker_sender.send(context.waker().clone());
                        Poll::<()>::Pending
                    })
                    .await;
                }
            }));
        }
        drop((sender, waker_sender));
        let wakers: Vec<Waker> = wakers.iter().take(4).collect();
        // Others wake them all the while, also in the middle of the end.
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let nuisance = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                wakers.iter().for_each(Waker::wake_by_ref);
            }
            // And after it.
            wakers.into_iter().for_each(Waker::wake);
        });
        drop(runtime);
        stop.store(true, Ordering::Relaxed);
        assert!(nuisance.join().is_ok(), "round {round}: a waker panicked");
        let dropped: Vec<ThreadId> = receiver.iter().collect();
        assert_eq!(dropped, vec![home; 4], "round {round}");
    }
}

#[test]
fn a_waker_that_outlives_its_worker_is_harmless() {
    let keeper: Arc<Mutex<Option<Waker>>> = Arc::default();
    let kept = keeper.clone();
    corewire_runtime::run(async move {
        drop(spawn_local(std::future::poll_fn(move |context| {
            *kept.lock().unwrap() = Some(context.waker().clone());
            Poll::<()>::Pending
        })));
        sleep(Duration::from_millis(1)).await;
    })
    .unwrap();
    let waker = keeper.lock().unwrap().take().unwrap();
    waker.wake_by_ref();
    thread::spawn(move || {
        waker.wake_by_ref();
        drop(waker);
    })
    .join()
    .unwrap();
}

#[test]
fn work_for_one_worker_begins_in_order() {
    let runtime = one_worker();
    let log: Arc<Mutex<Vec<u32>>> = Arc::default();
    let mut last = None;
    for number in 0..500 {
        let log = log.clone();
        if number % 3 == 0 {
            let task = runtime.handle().spawn_on(0, move || {
                log.lock().unwrap().push(number);
                async {}
            });
            last = Some(task.unwrap());
        } else {
            runtime
                .handle()
                .run_on(0, move || {
                    drop(spawn_local(async move { log.lock().unwrap().push(number) }));
                })
                .unwrap();
        }
    }
    runtime.handle().spawn_on(0, yield_now).unwrap().join().unwrap();
    drop(last);
    let log = log.lock().unwrap();
    assert_eq!(log.len(), 500);
    assert!(log.is_sorted());
}

#[test]
fn mail_from_many_threads_wakes_a_sleeping_worker_and_keeps_its_order() {
    let runtime = one_worker();
    const SENDERS: usize = 4;
    const MAILS: usize = 2000;
    let next: Arc<Mutex<[usize; SENDERS]>> = Arc::default();
    let (done, all_done) = mpsc::channel();
    let threads: Vec<_> = (0..SENDERS)
        .map(|sender| {
            let (handle, next, done) = (runtime.handle().clone(), next.clone(), done.clone());
            thread::spawn(move || {
                for number in 0..MAILS {
                    let (next, done) = (next.clone(), done.clone());
                    handle
                        .run_on(0, move || {
                            let mut next = next.lock().unwrap();
                            assert_eq!(next[sender], number);
                            next[sender] += 1;
                            if number % 500 == 0 {
                                // Busy for a while, so that mail piles up.
                                let until = Instant::now() + Duration::from_millis(1);
                                while Instant::now() < until {
                                    std::hint::spin_loop();
                                }
                            }
                            if number + 1 == MAILS {
                                done.send(()).unwrap();
                            }
                        })
                        .unwrap();
                    if number % 100 == 0 {
                        // Idle for a while, so that the worker sleeps.
                        thread::sleep(Duration::from_micros(300));
                    }
                }
            })
        })
        .collect();
    for _ in 0..SENDERS {
        all_done.recv_timeout(PATIENCE).expect("the worker sleeps through its mail");
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!(runtime.handle().stats().panics, 0);
}

#[test]
fn statistics_are_the_sum_over_workers() {
    let runtime = Runtime::builder().workers(2).build().unwrap();
    for worker in 0..2 {
        let task = runtime.handle().spawn_on(worker, || async {
            let (connection, record, mut peer) = common::recorded(common::options(|_| {}));
            std::io::Write::write_all(&mut peer, b"hello").unwrap();
            record.wait_received(5).await;
            connection.send(b"hi").unwrap();
            connection.close();
            record.wait_for("closed").await;
            // Published at the end of a tick.
            sleep(Duration::from_millis(2)).await;
        });
        task.unwrap().join().unwrap();
    }
    let stats = runtime.handle().stats();
    assert_eq!((stats.closed, stats.receives, stats.received_bytes), (2, 2, 10));
    assert_eq!((stats.sends, stats.sent_bytes, stats.panics), (2, 4, 0));
}

#[test]
fn sleeps_are_never_early_and_long_ones_do_not_overflow() {
    run(async {
        for ms in [0, 1, 2, 5, 17] {
            let (started, limit) = (Instant::now(), Duration::from_millis(ms));
            sleep(limit).await;
            assert!(started.elapsed() >= limit, "{ms} ms");
        }
        let started = Instant::now();
        let deadline = started + Duration::from_micros(3_700);
        sleep_until(deadline).await;
        assert!(Instant::now() >= deadline);
        sleep_until(started).await;
        assert!(timeout(Duration::from_millis(2), sleep(Duration::MAX)).await.is_err());
        assert_eq!(timeout(Duration::MAX, async { 7 }).await, Ok(7));
    });
}

#[test]
fn a_sleep_moved_to_another_task_wakes_that_one() {
    run(async {
        let mut moved = Box::pin(sleep(Duration::from_millis(10)));
        assert!(common::poll_once(moved.as_mut()).await.is_none());
        spawn_local(moved).await.unwrap();
    });
}

#[test]
fn a_timeout_drops_what_was_not_done() {
    run(async {
        let (sender, receiver) = mpsc::channel();
        let kept = DropThread::new(sender);
        let error = timeout(Duration::from_millis(3), async move {
            let _kept = kept;
            std::future::pending::<()>().await;
        })
        .await
        .unwrap_err();
        assert_eq!(error.to_string(), "not done within 3ms");
        assert!(receiver.try_recv().is_ok());
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::TimedOut);
    });
}

#[test]
fn a_processor_that_does_not_exist_is_named() {
    for cpu in [1000, 1_000_000] {
        let error = Runtime::builder().workers(2).cpus([0, cpu]).build().unwrap_err();
        assert!(matches!(error, BuildError::Affinity { worker: 1, cpu: which, .. } if which == cpu));
        let text = error.to_string();
        assert!(text.starts_with(&format!("worker 1 cannot be kept on processor {cpu}: ")), "{text}");
    }
}

#[test]
fn no_workers_is_an_error() {
    for builder in [Runtime::builder().workers(0), Runtime::builder().cpus([])] {
        let error = builder.build().unwrap_err();
        assert_eq!(error.to_string(), "the number of workers is 0, but must be 1 or more");
    }
}

#[test]
fn a_full_blocking_pool_is_a_typed_error() {
    let limits = BlockingLimits { max_threads: 1, queue_max: 1, ..BlockingLimits::default() };
    let runtime = Runtime::builder().workers(1).blocking(limits).build().unwrap();
    let task = runtime.handle().spawn_on(0, || async {
        let (release, released) = mpsc::channel::<()>();
        let running = spawn_local(spawn_blocking(move || released.recv().is_ok()));
        let waiting = spawn_local(spawn_blocking(|| 7));
        yield_now().await;
        let error = spawn_blocking(|| ()).await.unwrap_err();
        assert!(
            matches!(
                error,
                BlockingError::NotAccepted(SpawnBlockingError::QueueFull { max_threads: 1, queue_max: 1 })
            ),
            "{error:?}"
        );
        release.send(()).unwrap();
        assert!(running.await.unwrap().unwrap());
        assert_eq!(waiting.await.unwrap().unwrap(), 7);
    });
    task.unwrap().join().unwrap();
    let left = runtime.shutdown(PATIENCE);
    assert_eq!((left.unfinished, left.discarded), (0, 0));
}

#[test]
fn a_stopped_runtime_refuses_work_by_name() {
    let runtime = one_worker();
    let handle = runtime.handle().clone();
    drop(runtime);
    assert_eq!(handle.run_on(0, || ()), Err(SpawnError::Stopped));
    assert_eq!(handle.spawn(|| async {}).unwrap_err(), SpawnError::Stopped);
    assert_eq!(
        handle.spawn_on(1, || async {}).unwrap_err(),
        SpawnError::NoSuchWorker { worker: 1, workers: 1 }
    );
}

#[test]
fn work_that_is_in_the_mail_at_the_end_is_cancelled_not_lost() {
    for _ in 0..20 {
        let runtime = one_worker();
        let (sender, receiver) = mpsc::channel();
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let kept = DropThread::new(sender.clone());
                // Only the closure goes to the worker; what it makes there is not Send.
                let sender = kept.0.clone();
                drop(kept);
                runtime
                    .handle()
                    .spawn_on(0, move || async move {
                        let _kept = DropThread::new(sender);
                        std::future::pending::<()>().await;
                    })
                    .unwrap()
            })
            .collect();
        drop((sender, runtime));
        for task in tasks {
            assert_eq!(task.join(), Err(JoinError::Cancelled));
        }
        assert!(receiver.iter().count() >= 20, "the senders are gone");
    }
}

#[test]
fn what_tasks_begin_while_they_are_dropped_is_ended_too() {
    struct Restart(Rc<RefCell<u32>>, mpsc::Sender<u32>);
    impl Drop for Restart {
        fn drop(&mut self) {
            let count = {
                *self.0.borrow_mut() += 1;
                *self.0.borrow()
            };
            let _ = self.1.send(count);
            if count < 3 && current_worker().is_some() {
                let again = Restart(self.0.clone(), self.1.clone());
                drop(spawn_local(async move {
                    let _again = again;
                    std::future::pending::<()>().await;
                }));
            }
        }
    }
    let (sender, receiver) = mpsc::channel();
    corewire_runtime::run(async move {
        let first = Restart(Rc::default(), sender);
        drop(spawn_local(async move {
            let _first = first;
            std::future::pending::<()>().await;
        }));
        yield_now().await;
    })
    .unwrap();
    assert_eq!(receiver.iter().collect::<Vec<_>>(), [1, 2, 3]);
}

#[test]
fn a_runtime_dropped_on_its_own_worker_does_not_hang() {
    let runtime = one_worker();
    let handle = runtime.handle().clone();
    let (done, is_done) = mpsc::channel();
    handle
        .run_on(0, move || {
            drop(runtime);
            done.send(()).unwrap();
        })
        .unwrap();
    is_done.recv_timeout(PATIENCE).expect("the worker waits for itself");
    let until = Instant::now() + PATIENCE;
    while handle.run_on(0, || ()).is_ok() {
        assert!(Instant::now() < until, "the worker did not stop");
        thread::yield_now();
    }
}

#[test]
fn a_shutdown_does_not_wait_for_a_worker_beyond_its_deadline() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel();
    runtime
        .handle()
        .run_on(0, move || {
            begin.send(()).unwrap();
            let _ = released.recv();
        })
        .unwrap();
    begun.recv().unwrap();
    runtime.shutdown(Duration::from_millis(50));
    // Reached while the worker is held.
    drop(release);
}

#[test]
fn work_that_another_thread_sends_leaves_the_tasks_of_the_worker_their_turn() {
    let runtime = one_worker();
    let (turns, seen) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(Vec::new())));
    let counted = turns.clone();
    drop(runtime.handle().spawn_on(0, move || async move {
        loop {
            counted.fetch_add(1, Ordering::Relaxed);
            yield_now().await;
        }
    }));
    let worker = runtime.handle().worker(0).unwrap();
    // All come in one piece: the worker is busy until the last was sent.
    let (begin, begun) = mpsc::channel::<()>();
    worker.run(move || assert!(begun.recv().is_err())).unwrap();
    for _ in 0..400 {
        let (turns, seen) = (turns.clone(), seen.clone());
        let job = move || {
            let end = Instant::now() + Duration::from_micros(200);
            while Instant::now() < end {}
            seen.lock().unwrap().push(turns.load(Ordering::Relaxed));
        };
        worker.run(job).unwrap();
    }
    drop(begin);
    while seen.lock().unwrap().len() < 400 {
        thread::sleep(Duration::from_millis(1));
    }
    let seen = seen.lock().unwrap();
    assert!(seen.is_sorted(), "in the order in which it came");
    let rounds = seen.chunk_by(|one, next| one == next).count();
    assert!(rounds >= 10, "{rounds} turns in 80 ms of work");
}
