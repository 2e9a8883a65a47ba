//! Task groups, intervals and signals; on the driver that `COREWIRE_DRIVER` names.

#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use common::{poll_once, run};
use corewire_runtime::{
    JoinError, MissedTicks, Runtime, Signal, Signals, TaskGroup, interval, interval_at, sleep, spawn_local,
    yield_now,
};

/// Counts what lives.
struct Lives(Rc<Cell<usize>>);

impl Lives {
    fn new(count: &Rc<Cell<usize>>) -> Self {
        count.set(count.get() + 1);
        Self(count.clone())
    }
}

impl Drop for Lives {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

#[test]
fn a_group_is_joined_in_the_order_in_which_its_tasks_end() {
    run(async {
        let mut group = TaskGroup::new();
        assert!(group.join_next().await.is_none());
        for number in (0..5).rev() {
            group.spawn(async move {
                for _ in 0..number * 2 {
                    yield_now().await;
                }
                number
            });
        }
        assert_eq!((group.len(), group.is_empty()), (5, false));
        assert!(poll_once(group.join_next()).await.is_none(), "a join that is dropped loses none");
        let joined = group.join_all().await;
        assert_eq!(joined.into_iter().map(Result::unwrap).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert!(group.is_empty());
        group.spawn(async { 7 });
        assert_eq!(group.join_next().await, Some(Ok(7)), "a group can be used again");
    });
}

#[test]
fn a_panic_and_an_abort_are_results_of_their_tasks_alone() {
    run(async {
        let lives = Rc::new(Cell::new(0));
        let mut group = TaskGroup::new();
        group.spawn(async { panic!("on purpose") });
        assert_eq!(group.join_next().await, Some(Err(JoinError::Panicked("on purpose".to_owned()))));

        group.spawn(async { 1 });
        yield_now().await;
        for _ in 0..10 {
            let held = Lives::new(&lives);
            group.spawn(async move {
                let _held = held;
                std::future::pending().await
            });
        }
        yield_now().await;
        group.abort_all();
        assert_eq!(group.len(), 11);
        let joined = group.join_all().await;
        assert_eq!(joined.iter().filter(|result| **result == Ok(1)).count(), 1);
        assert_eq!(joined.iter().filter(|result| **result == Err(JoinError::Cancelled)).count(), 10);
        assert_eq!(lives.get(), 0, "what they held was dropped before");
    });
}

#[test]
fn a_group_that_is_dropped_or_shut_down_ends_its_tasks() {
    run(async {
        let lives = Rc::new(Cell::new(0));
        let group_of = |count| {
            let mut group = TaskGroup::new();
            for _ in 0..count {
                let held = Lives::new(&lives);
                group.spawn(async move {
                    sleep(Duration::from_secs(1_000)).await;
                    drop(held);
                });
            }
            group
        };
        let mut group = group_of(10);
        yield_now().await;
        group.shutdown().await;
        assert_eq!((lives.get(), group.is_empty()), (0, true));

        let group = group_of(10);
        yield_now().await;
        // Within a task that holds it.
        let holder = spawn_local(async move {
            let _group = group;
            std::future::pending::<()>().await;
        });
        yield_now().await;
        holder.abort();
        while lives.get() > 0 {
            yield_now().await;
        }
    });
}

#[test]
fn a_group_ends_with_its_worker() {
    let runtime = Runtime::builder().workers(1).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel::<()>();
    runtime
        .handle()
        .run_on(0, move || {
            drop(spawn_local(async move {
                let mut group = TaskGroup::new();
                for _ in 0..3 {
                    let kept = sender.clone();
                    group.spawn(async move {
                        let _kept = kept;
                        std::future::pending::<()>().await;
                    });
                }
                group.join_all().await;
            }));
        })
        .unwrap();
    runtime.handle().spawn_on(0, || sleep(Duration::from_millis(1))).unwrap().join().unwrap();
    drop(runtime);
    assert!(receiver.recv().is_err());
}

#[test]
fn an_interval_ticks_at_even_times_and_loses_none_by_a_drop() {
    run(async {
        let period = Duration::from_millis(3);
        let start = Instant::now() + Duration::from_millis(5);
        let mut every = interval_at(start, period);
        assert_eq!(every.period(), period);
        for count in 0..10 {
            // Given up once, or more often.
            while poll_once(every.tick()).await.is_none_or(|due| {
                assert_eq!(due, start + period * count);
                assert!(Instant::now() >= due, "early");
                false
            }) {
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
}

#[test]
fn missed_ticks_are_made_up_for_or_left_out() {
    run(async {
        let period = Duration::from_millis(2);
        let long_ago = Instant::now().checked_sub(Duration::from_secs(2)).unwrap();
        let mut burst = interval_at(long_ago, period);
        for count in 0..1_000 {
            assert_eq!(burst.tick().await, long_ago + period * count, "made up for one after the other");
        }
        let mut skip = interval_at(long_ago, period).missed_ticks(MissedTicks::Skip);
        assert_eq!(skip.tick().await, long_ago);
        assert!(skip.tick().await >= long_ago + Duration::from_secs(2));
        let mut delay = interval_at(long_ago, period).missed_ticks(MissedTicks::Delay);
        delay.tick().await;
        let after = delay.tick().await;
        assert!(after >= long_ago + Duration::from_secs(2) + period);

        let mut anew = interval(Duration::from_secs(1_000));
        anew.tick().await;
        let before = Instant::now();
        anew.reset();
        assert!(poll_once(anew.tick()).await.is_none());
        assert!(before.elapsed() < Duration::from_secs(1_000));
    });
}

#[test]
#[should_panic(expected = "the period of an interval must be more than 0")]
fn an_interval_without_a_period_is_refused() {
    drop(interval(Duration::ZERO));
}

fn raise(signal: i32) {
    signal_hook::low_level::raise(signal).unwrap();
}

#[test]
fn signals_reach_the_tasks_that_wait_for_them() {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
    run(async {
        let mut stop = Signals::new([Signal::Interrupt, Signal::Terminate]).unwrap();
        let mut both = Signals::new([Signal::Hangup, Signal::Terminate]).unwrap();
        assert!(poll_once(stop.recv()).await.is_none());
        for (number, signal) in
            [(SIGINT, Signal::Interrupt), (SIGTERM, Signal::Terminate), (SIGINT, Signal::Interrupt)]
        {
            raise(number);
            assert_eq!(stop.recv().await.unwrap(), signal);
        }
        assert_eq!(both.recv().await.unwrap(), Signal::Terminate, "each receiver gets it");
        assert!(poll_once(stop.recv()).await.is_none());

        // Many count as one, or a few: none is told of that did not come.
        (0..1_000).for_each(|_| raise(SIGHUP));
        assert_eq!(both.recv().await.unwrap(), Signal::Hangup);

        // From another thread while the worker sleeps, to a future that was given up once.
        let mut user = Signals::new([Signal::User1]).unwrap();
        assert!(poll_once(user.recv()).await.is_none());
        let thread = std::thread::spawn(|| {
            std::thread::sleep(Duration::from_millis(20));
            raise(SIGUSR1);
        });
        assert_eq!(user.recv().await.unwrap(), Signal::User1);
        thread.join().unwrap();
        drop(user);
        // Nobody waits for it any more, and the process goes on.
        raise(SIGUSR1);
    });
}
