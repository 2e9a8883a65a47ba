//! Retries and hedges.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use corewire::block_on;
use corewire_rpc::{Bytes, Channel, Code, Context, Hedge, Retry, Service, Sink, Status};
use support::{eventually, server};

/// Fails the first calls as unavailable.
fn flaky(failures: usize, count: &Arc<AtomicUsize>) -> Service {
    let count = count.clone();
    Service::new("Flaky").unary("get", move |_: Bytes, _: Context| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        async move {
            if call < failures {
                Err(Status::new(Code::UNAVAILABLE, "not yet"))
            } else {
                Ok(Bytes::from("got"))
            }
        }
    })
}

#[test]
fn only_calls_marked_idempotent_are_retried() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = server(|server| server.service(flaky(2, &count)));
    let channel = Channel::to(server.uri()).retry(Retry::default()).build().unwrap();
    assert_eq!(block_on(channel.unary("Flaky/get", "")).unwrap_err().code(), Code::UNAVAILABLE);
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(block_on(channel.unary("Flaky/get", "").idempotent()).unwrap(), "got");
    assert_eq!(count.load(Ordering::SeqCst), 3);
}

#[test]
fn retries_end_with_their_budget() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = server(|server| server.service(flaky(usize::MAX, &count)));
    let mut retry = Retry::default();
    (retry.attempts, retry.budget, retry.initial_wait) = (10, 3, Duration::from_millis(1));
    let channel = Channel::to(server.uri()).retry(retry).build().unwrap();
    for _ in 0..2 {
        assert!(block_on(channel.unary("Flaky/get", "").idempotent()).is_err());
    }
    assert_eq!(count.load(Ordering::SeqCst), 2 + 3, "two calls and a budget of three");
}

#[test]
fn a_slow_call_is_hedged_and_the_loser_is_cancelled() {
    let count = Arc::new(AtomicUsize::new(0));
    let (begun, ended) = (count.clone(), Arc::new(AtomicUsize::new(0)));
    struct Ends(Arc<AtomicUsize>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let dropped = ended.clone();
    let server = server(move |server| {
        server.service(Service::new("Slow").unary("first", move |_: Bytes, _: Context| {
            let (call, ends) = (begun.fetch_add(1, Ordering::SeqCst), Ends(dropped.clone()));
            async move {
                let _ends = ends;
                if call == 0 {
                    std::future::pending::<()>().await;
                }
                Ok(Bytes::from(call.to_string()))
            }
        }))
    });
    let channel = Channel::to(server.uri()).hedge(Duration::from_millis(20)).build().unwrap();
    assert_eq!(block_on(channel.unary("Slow/first", "").idempotent()).unwrap(), "1");
    eventually("both have ended", || ended.load(Ordering::SeqCst) == 2);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// A service that counts its calls; the first fails when the second has come, which then succeeds.
fn first_fails_late(count: &Arc<AtomicUsize>) -> Service {
    let count = count.clone();
    let (fail, failing) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(None)));
    Service::new("Race").unary("run", move |_: Bytes, _: Context| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        let (sender, failed) = futures_channel::oneshot::channel::<()>();
        let (told, heard) = futures_channel::oneshot::channel::<()>();
        let mut gates = None;
        if call == 0 {
            *fail.lock().unwrap() = Some(sender);
            *failing.lock().unwrap() = Some(heard);
        } else {
            gates = fail.lock().unwrap().take().zip(failing.lock().unwrap().take());
        }
        async move {
            if call == 0 {
                let _ = failed.await;
                drop(told);
                return Err(Status::new(Code::UNAVAILABLE, "too late"));
            }
            if let Some((sender, heard)) = gates {
                drop(sender);
                let _ = heard.await;
                // Behind the failure of the first one.
                corewire::sleep(Duration::from_millis(20)).await;
            }
            Ok(Bytes::from(call.to_string()))
        }
    })
}

#[test]
fn a_failure_of_the_first_attempt_leaves_a_healthy_hedge_alone() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = server(|server| server.service(first_fails_late(&count)));
    let channel = Channel::to(server.uri()).hedge(Duration::from_millis(10)).build().unwrap();
    assert_eq!(block_on(channel.unary("Race/run", "").idempotent()).unwrap(), "1");
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

/// Counts its calls, and answers the last one of as many as are given.
fn patient(answers: usize, count: &Arc<AtomicUsize>) -> Service {
    let count = count.clone();
    Service::new("Patient").unary("get", move |_: Bytes, _: Context| {
        let call = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            if call < answers {
                std::future::pending::<()>().await;
            }
            Ok(Bytes::from(call.to_string()))
        }
    })
}

#[test]
fn a_call_is_hedged_as_often_as_it_may_be_and_each_hedge_takes_a_token() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = server(|server| server.service(patient(3, &count)));
    let mut hedge = Hedge::after(Duration::from_millis(5));
    hedge.attempts = 5;
    let mut retry = Retry::default();
    (retry.budget, retry.refill) = (3, 0);
    let channel = Channel::to(server.uri()).retry(retry).build().unwrap();
    assert_eq!(block_on(channel.unary("Patient/get", "").idempotent().hedge(hedge)).unwrap(), "3");
    count.store(0, Ordering::SeqCst);
    // One token is left: the second attempt is the last one.
    let call = channel.unary("Patient/get", "").idempotent().hedge(hedge).timeout(Duration::from_millis(200));
    assert_eq!(block_on(call).unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn a_retry_whose_wait_ends_behind_the_deadline_is_not_waited_for() {
    let count = Arc::new(AtomicUsize::new(0));
    let server = server(|server| server.service(flaky(usize::MAX, &count)));
    let mut retry = Retry::default();
    retry.initial_wait = Duration::from_secs(1 << 40);
    let channel = Channel::to(server.uri()).retry(retry).build().unwrap();
    let call = channel.unary("Flaky/get", "").idempotent().timeout(Duration::from_secs(60));
    assert_eq!(block_on(call).unwrap_err().code(), Code::UNAVAILABLE);
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

/// Fails the first calls before (or after) a first response.
fn flaky_stream(failures: usize, answers_first: bool, count: &Arc<AtomicUsize>) -> Service {
    let count = count.clone();
    Service::new("FlakyStream").server_stream("get", move |_: Bytes, mut replies: Sink, _: Context| {
        let call = count.fetch_add(1, Ordering::SeqCst);
        async move {
            if answers_first {
                replies.send(Bytes::from("first")).await?;
            }
            if call < failures {
                return Err(Status::new(Code::UNAVAILABLE, "not yet"));
            }
            replies.send(Bytes::from("got")).await
        }
    })
}

#[test]
fn a_stream_is_retried_before_its_first_response_and_not_after_it() {
    for answers_first in [false, true] {
        let count = Arc::new(AtomicUsize::new(0));
        let server = server(|server| server.service(flaky_stream(2, answers_first, &count)));
        let channel = Channel::to(server.uri()).retry(Retry::default()).build().unwrap();
        let call = |idempotent| {
            let call = channel.server_stream::<Bytes, Bytes>("FlakyStream/get", "".into());
            if idempotent { call.idempotent() } else { call }
        };
        block_on(async {
            let mut replies = call(true).await.unwrap();
            if answers_first {
                assert_eq!(replies.next().await.unwrap().unwrap(), "first");
                assert_eq!(replies.next().await.unwrap().unwrap_err().code(), Code::UNAVAILABLE);
                assert_eq!(count.load(Ordering::SeqCst), 1);
                return;
            }
            assert_eq!(replies.next().await.unwrap().unwrap(), "got");
            assert!(replies.next().await.is_none());
            assert_eq!(count.load(Ordering::SeqCst), 3);
            count.store(0, Ordering::SeqCst);
            let mut replies = call(false).await.unwrap();
            assert_eq!(replies.next().await.unwrap().unwrap_err().code(), Code::UNAVAILABLE);
            assert_eq!(count.load(Ordering::SeqCst), 1, "it is not marked idempotent");
        });
        assert!(block_on(channel.gauges()).is_idle());
    }
}
