//! Calls whose requests come one by one, made again before the server has answered.
#![allow(clippy::unwrap_used)]

mod support;

use std::io::Read;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corewire::{ServerHandle, block_on};
use corewire_rpc::{
    Bytes, Channel, Code, Context, Hedge, Retry, Service, Sink, Status, Streaming, StreamingCall, Version,
};
use support::{VERSIONS, eventually, server};

type Bidi = (Sink<Bytes>, Streaming<Bytes>);

/// How an attempt fails that is to fail.
#[derive(Clone, Copy)]
enum Fails {
    /// When it has read so many requests.
    Behind(usize),
    /// Behind a first response.
    LateBehind(usize),
}

/// Fails its first calls; later ones say how many bytes each request had, and in the end how many requests there were.
fn flaky(failures: usize, how: Fails, count: &Arc<AtomicUsize>) -> Service {
    let (upload, bidi) = (count.clone(), count.clone());
    let gone = || Status::new(Code::UNAVAILABLE, "not yet");
    Service::new("Flaky")
        .client_stream("upload", move |mut requests: Streaming, _: Context| {
            let call = upload.fetch_add(1, Ordering::SeqCst);
            async move {
                let (mut all, mut read) = (Vec::new(), 0);
                while let Some(request) = requests.next().await {
                    all.extend_from_slice(&request?);
                    read += 1;
                    if let Fails::Behind(most) = how
                        && call < failures
                        && read == most
                    {
                        return Err(gone());
                    }
                }
                Ok(Bytes::from(all))
            }
        })
        .bidi("talk", move |mut requests: Streaming, mut answers: Sink, _: Context| {
            let call = bidi.fetch_add(1, Ordering::SeqCst);
            async move {
                let (mut read, mut has_answered) = (0, false);
                loop {
                    let (Fails::Behind(most) | Fails::LateBehind(most)) = how;
                    if call < failures && read == most {
                        if let (Fails::LateBehind(_), false) = (how, has_answered) {
                            answers.send("late".into()).await?;
                        }
                        return Err(gone());
                    }
                    let Some(request) = requests.next().await else { break };
                    read += 1;
                    if call >= failures {
                        has_answered = true;
                        answers.send(request?.len().to_string().into()).await?;
                    }
                }
                answers.send(format!("{read} in all").into()).await
            }
        })
}

fn flaky_server(failures: usize, how: Fails) -> (ServerHandle, Arc<AtomicUsize>) {
    let count = Arc::new(AtomicUsize::new(0));
    (server(|server| server.service(flaky(failures, how, &count))), count)
}

fn quick() -> Retry {
    let mut retry = Retry::default();
    (retry.attempts, retry.initial_wait) = (5, Duration::from_millis(1));
    retry
}

fn channel(server: &ServerHandle, retry: Retry) -> Channel {
    Channel::to(server.uri()).retry(retry).build().unwrap()
}

fn talk(channel: &Channel) -> StreamingCall<corewire_rpc::client::BidiStreaming<Bytes, Bytes>> {
    channel.bidi::<Bytes, Bytes>("Flaky/talk").idempotent()
}

async fn says(answers: &mut Streaming<Bytes>) -> String {
    String::from_utf8(answers.next().await.unwrap().unwrap().to_vec()).unwrap()
}

/// Nothing is left of any call, at either end.
#[track_caller]
fn is_idle(channel: &Channel) {
    eventually("nothing is left", || block_on(channel.gauges()).is_idle());
}

#[test]
fn requests_that_were_sent_before_a_failure_are_sent_again() {
    let (server, count) = flaky_server(2, Fails::Behind(2));
    let channel = channel(&server, quick());
    block_on(upload(&channel));
    assert_eq!(count.load(Ordering::SeqCst), 3);
    is_idle(&channel);
}

async fn upload(channel: &Channel) {
    let call = channel.client_stream::<Bytes, Bytes>("Flaky/upload").first("a".into());
    let (mut sink, response) = call.idempotent().await.unwrap();
    for part in ["b", "c", "d"] {
        sink.send(part.into()).await.unwrap();
    }
    sink.finish().await.unwrap();
    assert_eq!(response.await.unwrap(), "abcd");
}

#[test]
fn the_same_when_the_connection_is_lost() {
    for version in VERSIONS {
        let dying = TcpListener::bind("127.0.0.1:0").unwrap();
        let uri = format!("tcp://{}", dying.local_addr().unwrap());
        let peer = std::thread::spawn(move || {
            // The beginning of the call: no other frame is as long.
            dying.accept().unwrap().0.read_exact(&mut [0; 40]).unwrap();
        });
        let (server, count) = flaky_server(0, Fails::Behind(0));
        let channel = Channel::to(uri).and(server.uri()).protocol(version).retry(quick()).build().unwrap();
        block_on(upload(&channel));
        peer.join().unwrap();
        assert_eq!(count.load(Ordering::SeqCst), 1, "{version:?}");
        is_idle(&channel);
    }
}

#[test]
fn the_ends_of_a_call_go_on_directly_behind_its_first_response() {
    let (server, count) = flaky_server(1, Fails::Behind(2));
    let channel = channel(&server, quick());
    block_on(async {
        let (mut say, mut answers) = talk(&channel).await.unwrap();
        say.send("1".into()).await.unwrap();
        say.send("22".into()).await.unwrap();
        assert_eq!(says(&mut answers).await, "1");
        assert_eq!(says(&mut answers).await, "2");
        for n in 3..200_usize {
            say.send(vec![0; n].into()).await.unwrap();
            assert_eq!(says(&mut answers).await, n.to_string());
        }
        say.finish().await.unwrap();
        assert_eq!(says(&mut answers).await, "199 in all");
        assert!(answers.next().await.is_none());
    });
    assert_eq!(count.load(Ordering::SeqCst), 2);
    is_idle(&channel);
}

#[test]
fn the_same_on_the_worker_of_the_channel() {
    let (server, count) = flaky_server(1, Fails::Behind(2));
    let uri = server.uri().to_owned();
    corewire::run(async move {
        let channel = Channel::to(uri).retry(quick()).build().unwrap();
        let (mut say, mut answers) = talk(&channel).await.unwrap();
        for n in 1..100_usize {
            say.send(vec![0; n].into()).await.unwrap();
        }
        drop(say);
        for n in 1..100_usize {
            assert_eq!(says(&mut answers).await, n.to_string());
        }
        assert_eq!(says(&mut answers).await, "99 in all");
    })
    .unwrap();
    assert_eq!(count.load(Ordering::SeqCst), 2);
}

#[test]
fn a_call_that_is_not_idempotent_is_made_once() {
    let (server, count) = flaky_server(1, Fails::Behind(1));
    let channel = channel(&server, quick());
    let status = block_on(async {
        let (mut say, mut answers) = channel.bidi::<Bytes, Bytes>("Flaky/talk").await.unwrap();
        say.send("1".into()).await.unwrap();
        answers.next().await.unwrap().unwrap_err()
    });
    assert_eq!((status.code(), count.load(Ordering::SeqCst)), (Code::UNAVAILABLE, 1));
}

#[test]
fn behind_the_first_response_a_failure_is_that_of_the_call() {
    let (server, count) = flaky_server(1, Fails::LateBehind(1));
    let channel = channel(&server, quick());
    let status = block_on(async {
        let (mut say, mut answers) = talk(&channel).await.unwrap();
        say.send("1".into()).await.unwrap();
        assert_eq!(says(&mut answers).await, "late");
        answers.next().await.unwrap().unwrap_err()
    });
    assert_eq!((status.code(), count.load(Ordering::SeqCst)), (Code::UNAVAILABLE, 1));
    is_idle(&channel);
}

/// Sends requests of 1 KiB, of which so many may be kept, and reads the answers only then.
fn with_room_for(room: usize, all: usize, requests: usize) -> (Result<usize, Code>, usize) {
    let (server, count) = flaky_server(1, Fails::Behind(requests));
    let mut retry = quick();
    (retry.keep_per_call, retry.keep) = (room << 10, all << 10);
    let channel = channel(&server, retry);
    let result = block_on(async {
        let (mut say, mut answers) = talk(&channel).await.unwrap();
        for _ in 0..requests {
            // The last ones may come behind the failure.
            let _ = say.send(vec![7; 1_024].into()).await;
        }
        drop(say);
        let mut read = 0;
        while let Some(answer) = answers.next().await {
            answer.map_err(|status| status.code())?;
            read += 1;
        }
        Ok(read)
    });
    is_idle(&channel);
    (result, count.load(Ordering::SeqCst))
}

#[test]
fn a_call_with_more_requests_than_are_kept_is_made_no_more_often() {
    assert_eq!(with_room_for(10, 1_000, 10), (Ok(11), 2), "just enough");
    assert_eq!(with_room_for(9, 1_000, 10), (Err(Code::UNAVAILABLE), 1));
    assert_eq!(with_room_for(1_000, 9, 10), (Err(Code::UNAVAILABLE), 1), "the channel has no room");
    assert_eq!(with_room_for(0, 0, 10), (Err(Code::UNAVAILABLE), 1), "nothing is kept");
}

#[test]
fn what_a_call_kept_makes_room_for_others() {
    let (server, count) = flaky_server(0, Fails::Behind(1));
    let mut retry = quick();
    (retry.keep_per_call, retry.keep) = (8 << 10, 8 << 10);
    let channel = channel(&server, retry);
    for round in 0..20 {
        block_on(async {
            let (mut say, mut answers) = talk(&channel).await.unwrap();
            for _ in 0..8 {
                say.send(vec![7; 1_024].into()).await.unwrap();
            }
            if round % 2 == 0 {
                // One that is given up.
                return;
            }
            say.finish().await.unwrap();
            let mut last = String::new();
            while last != "8 in all" {
                last = says(&mut answers).await;
            }
        });
    }
    assert!(count.load(Ordering::SeqCst) <= 20);
    is_idle(&channel);
}

#[test]
fn a_call_that_no_attempt_mends_fails_with_the_last_failure_at_both_ends() {
    let (server, count) = flaky_server(usize::MAX, Fails::Behind(1));
    let channel = channel(&server, quick());
    block_on(async {
        let (mut say, mut answers) = talk(&channel).await.unwrap();
        say.send("1".into()).await.unwrap();
        let status = answers.next().await.unwrap().unwrap_err();
        assert_eq!((status.code(), status.message()), (Code::UNAVAILABLE, "not yet"));
        assert!(answers.next().await.is_none());
        assert_eq!(say.send("2".into()).await.unwrap_err().code(), Code::UNAVAILABLE);
        assert_eq!(say.finish().await.unwrap_err().code(), Code::UNAVAILABLE);
    });
    assert_eq!(count.load(Ordering::SeqCst), 5);
    is_idle(&channel);
}

#[test]
fn a_hedge_gets_the_same_requests() {
    let count = Arc::new(AtomicUsize::new(0));
    let calls = count.clone();
    let slow = Service::new("Slow").client_stream("sum", move |mut requests: Streaming, _: Context| {
        let call = calls.fetch_add(1, Ordering::SeqCst);
        async move {
            let mut sum = 0;
            while let Some(request) = requests.next().await {
                sum += request?.len();
            }
            if call == 0 {
                std::future::pending::<()>().await;
            }
            Ok(Bytes::from(sum.to_string()))
        }
    });
    let server = server(|server| server.service(slow));
    let channel = Channel::to(server.uri()).protocol(Version::V2).build().unwrap();
    block_on(async {
        let call = channel.client_stream::<Bytes, Bytes>("Slow/sum").idempotent();
        let (mut sink, sum) = call.hedge(Hedge::after(Duration::from_millis(20))).await.unwrap();
        for n in 1..10 {
            sink.send(vec![0; n].into()).await.unwrap();
        }
        sink.finish().await.unwrap();
        assert_eq!(sum.await.unwrap(), "45");
    });
    assert_eq!(count.load(Ordering::SeqCst), 2);
    is_idle(&channel);
}

#[test]
fn dropping_the_responses_cancels_every_attempt() {
    let running = support::Running::default();
    let server = server(|server| server.service(support::stuck(&running)));
    let channel = channel(&server, quick());
    block_on(async {
        let call = channel.bidi::<Bytes, Bytes>("Stuck/bidi").idempotent();
        let (mut say, answers): Bidi = call.await.unwrap();
        say.send("1".into()).await.unwrap();
        eventually("it has begun", || running.now() == 1);
        drop(answers);
        eventually("it is cancelled", || running.now() == 0);
        eventually("the requests end too", || block_on(say.send("2".into())).is_err());
    });
    is_idle(&channel);
}

#[test]
fn a_path_that_is_none_fails_both_ends() {
    let server = server(|server| server);
    let channel = channel(&server, quick());
    block_on(async {
        let (_say, mut answers): Bidi = channel.bidi::<Bytes, Bytes>("no path").idempotent().await.unwrap();
        let status = answers.next().await.unwrap().unwrap_err();
        assert!(status.message().contains("Service/method"), "{status}");
    });
}
