use super::*;
use std::sync::Barrier;
use std::sync::mpsc;
use std::time::Instant;

/// Far longer than anything here takes: reached only by a test that fails.
const PLENTY: Duration = Duration::from_secs(30);

fn pool(max_threads: usize, queue_max: usize) -> BlockingPool {
    BlockingPool::new(BlockingLimits { max_threads, queue_max, idle_timeout: PLENTY })
}

/// A job that runs until told to end.
struct Gate {
    running: mpsc::Receiver<()>,
    open: mpsc::Sender<()>,
}

fn spawn_gated(pool: &BlockingPool) -> Gate {
    let (running_tx, running) = mpsc::channel();
    let (open, open_rx) = mpsc::channel::<()>();
    pool.spawn(
        move || {
            running_tx.send(()).unwrap();
            // Also ends when the gate is dropped.
            let _ = open_rx.recv();
        },
        |result| result.unwrap(),
    )
    .unwrap();
    Gate { running, open }
}

fn wait_for_threads(pool: &BlockingPool, threads: usize) {
    let start = Instant::now();
    let mut state = pool.shared.lock();
    while state.threads != threads {
        assert!(start.elapsed() < PLENTY, "{} threads instead of {threads}", state.threads);
        state = pool.shared.ended.wait_timeout(state, PLENTY).unwrap().0;
    }
}

#[test]
fn result_is_delivered_on_a_thread_of_the_pool() {
    let pool = pool(2, 2);
    let (tx, rx) = mpsc::channel();
    pool.spawn(
        || (thread::current().id(), "done"),
        move |result| tx.send((result.unwrap(), thread::current().id())).unwrap(),
    )
    .unwrap();
    let ((job_thread, value), done_thread) = rx.recv_timeout(PLENTY).unwrap();
    assert_eq!(value, "done");
    assert_eq!(job_thread, done_thread);
    assert_ne!(job_thread, thread::current().id());
}

#[test]
fn panic_is_delivered_and_the_thread_lives_on() {
    let pool = pool(1, 4);
    let (tx, rx) = mpsc::channel();
    let panicked = tx.clone();
    pool.spawn(
        || -> () { std::panic::resume_unwind(Box::new("lost")) },
        move |result| panicked.send(*result.unwrap_err().downcast::<&str>().unwrap()).unwrap(),
    )
    .unwrap();
    assert_eq!(rx.recv_timeout(PLENTY), Ok("lost"));
    pool.spawn(|| (), |_| std::panic::resume_unwind(Box::new("in the callback"))).unwrap();
    pool.spawn(|| "fine", move |result| tx.send(result.unwrap()).unwrap()).unwrap();
    assert_eq!(rx.recv_timeout(PLENTY), Ok("fine"));
    assert_eq!(pool.shared.lock().threads, 1);
}

#[test]
fn jobs_run_side_by_side_up_to_the_most_threads() {
    let pool = pool(4, 0);
    // Passed only when all four run at once.
    let barrier = Arc::new(Barrier::new(4));
    let (tx, rx) = mpsc::channel();
    for _ in 0..4 {
        let (barrier, tx) = (Arc::clone(&barrier), tx.clone());
        pool.spawn(move || barrier.wait().is_leader(), move |result| tx.send(result.unwrap()).unwrap())
            .unwrap();
    }
    let leaders = (0..4).filter(|_| rx.recv_timeout(PLENTY).unwrap()).count();
    assert_eq!(leaders, 1);
}

#[test]
fn idle_thread_is_used_before_a_new_one_starts() {
    let pool = pool(8, 8);
    let (tx, rx) = mpsc::channel();
    for _ in 0..20 {
        let tx = tx.clone();
        pool.spawn(|| (), move |_| tx.send(()).unwrap()).unwrap();
        rx.recv_timeout(PLENTY).unwrap();
        // The thread reports before it is idle again.
        while pool.shared.lock().idle == 0 {
            thread::yield_now();
        }
    }
    assert_eq!(pool.shared.lock().threads, 1);
}

#[test]
fn full_queue_is_an_error_that_says_so() {
    let pool = pool(1, 2);
    let gate = spawn_gated(&pool);
    gate.running.recv_timeout(PLENTY).unwrap();
    let (tx, rx) = mpsc::channel();
    for number in 0..2 {
        let tx = tx.clone();
        pool.spawn(move || number, move |result| tx.send(result.unwrap()).unwrap()).unwrap();
    }
    let error = pool.spawn(|| (), |_| ()).unwrap_err();
    assert!(matches!(error, SpawnBlockingError::QueueFull { max_threads: 1, queue_max: 2 }), "{error:?}");
    assert!(error.to_string().contains("2 wait"), "{error}");

    gate.open.send(()).unwrap();
    assert_eq!([rx.recv_timeout(PLENTY), rx.recv_timeout(PLENTY)], [Ok(0), Ok(1)]);
    pool.spawn(|| (), |_| ()).unwrap();
}

#[test]
fn idle_threads_end() {
    let pool =
        BlockingPool::new(BlockingLimits { idle_timeout: Duration::from_millis(1), ..Default::default() });
    let (tx, rx) = mpsc::channel();
    for _ in 0..2 {
        let tx = tx.clone();
        pool.spawn(|| (), move |_| tx.send(()).unwrap()).unwrap();
        rx.recv_timeout(PLENTY).unwrap();
        wait_for_threads(&pool, 0);
        assert_eq!(pool.shared.lock().idle, 0);
    }
}

#[test]
fn shutdown_runs_what_was_taken_and_refuses_more() {
    let pool = pool(1, 8);
    let gate = spawn_gated(&pool);
    gate.running.recv_timeout(PLENTY).unwrap();
    let (tx, rx) = mpsc::channel();
    pool.spawn(|| "queued", move |result| tx.send(result.unwrap()).unwrap()).unwrap();
    gate.open.send(()).unwrap();

    assert_eq!(pool.shutdown(PLENTY), BlockingShutdown::default());
    assert_eq!(rx.try_recv(), Ok("queued"));
    assert_eq!(pool.shared.lock().threads, 0);
    assert!(matches!(pool.spawn(|| (), |_| ()), Err(SpawnBlockingError::ShutDown)));
    assert_eq!(pool.shutdown(PLENTY), BlockingShutdown::default());
}

#[test]
fn shutdown_counts_what_it_leaves_at_the_deadline() {
    let pool = pool(2, 8);
    let gates = [spawn_gated(&pool), spawn_gated(&pool)];
    for gate in &gates {
        gate.running.recv_timeout(PLENTY).unwrap();
    }
    let (tx, rx) = mpsc::channel::<()>();
    for _ in 0..3 {
        let tx = tx.clone();
        pool.spawn(|| (), move |_| tx.send(()).unwrap()).unwrap();
    }
    drop(tx);
    assert_eq!(pool.shutdown(Duration::ZERO), BlockingShutdown { unfinished: 2, discarded: 3 });
    assert_eq!(rx.try_recv(), Err(mpsc::TryRecvError::Disconnected), "dropped, not run");

    drop(gates);
    wait_for_threads(&pool, 0);
}

#[test]
fn shutdown_ends_idle_threads_at_once() {
    let pool = pool(2, 2);
    let (tx, rx) = mpsc::channel();
    pool.spawn(|| (), move |_| tx.send(()).unwrap()).unwrap();
    rx.recv_timeout(PLENTY).unwrap();
    let start = Instant::now();
    assert_eq!(pool.shutdown(PLENTY), BlockingShutdown::default());
    assert!(start.elapsed() < PLENTY / 2, "waited for the idle timeout");
}

#[test]
fn dropped_pool_finishes_its_jobs() {
    let pool = pool(1, 2);
    let gate = spawn_gated(&pool);
    gate.running.recv_timeout(PLENTY).unwrap();
    let (tx, rx) = mpsc::channel();
    pool.spawn(|| 5, move |result| tx.send(result.unwrap()).unwrap()).unwrap();
    drop(pool);
    gate.open.send(()).unwrap();
    assert_eq!(rx.recv_timeout(PLENTY), Ok(5));
}

#[test]
fn shutdown_without_time_does_not_count_idle_threads() {
    for _ in 0..50 {
        let pool = pool(1, 2);
        let (tx, rx) = mpsc::channel();
        pool.spawn(|| (), move |_| tx.send(()).unwrap()).unwrap();
        rx.recv_timeout(PLENTY).unwrap();
        while pool.shared.lock().idle == 0 {
            thread::yield_now();
        }
        pool.shared.lock().shut_down = true;
        pool.shared.work.notify_all();
        assert_eq!(pool.shutdown(Duration::ZERO), BlockingShutdown::default());
    }
}

#[test]
fn thread_that_panics_by_itself_is_counted_out() {
    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("dropped"));
        }
    }
    let pool = pool(1, 2);
    pool.spawn(|| (), |_| std::panic::resume_unwind(Box::new(PanicsWhenDropped))).unwrap();
    wait_for_threads(&pool, 0);
    let (tx, rx) = mpsc::channel();
    pool.spawn(|| 1, move |result| tx.send(result.unwrap()).unwrap()).unwrap();
    assert_eq!(rx.recv_timeout(PLENTY), Ok(1));
    assert_eq!(pool.shutdown(PLENTY), BlockingShutdown::default());
}
