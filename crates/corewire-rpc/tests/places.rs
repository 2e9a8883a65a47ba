//! Calls beyond those that a server takes at once.
#![allow(clippy::unwrap_used)]

mod support;

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use corewire::{block_on, spawn_local};
use corewire_rpc::{
    Bytes, CallOptions, Channel, ClientInterceptor, Code, Context, MethodPath, RpcServer, Service, Settings,
    Status, Version,
};
use support::{Running, eventually, gauged, server, settles, stuck};

const TWO: fn() -> Settings = || Settings { max_calls: 2, ..Settings::default() };

/// A method that takes a while, and the most calls of it that there were at once.
fn slow() -> (Service, Arc<AtomicUsize>) {
    let (running, most) = (Running::default(), Arc::new(AtomicUsize::new(0)));
    let peak = most.clone();
    let service = Service::new("Slow").unary("echo", move |request: Bytes, _: Context| {
        let (runs, now) = (running.begin(), running.now());
        peak.fetch_max(now, Ordering::SeqCst);
        async move {
            let _runs = runs;
            corewire::sleep(Duration::from_millis(1)).await;
            Ok(request)
        }
    });
    (service, most)
}

/// Makes calls at once, each as a task of its own; their answers.
async fn at_once<F>(calls: impl Iterator<Item = F>) -> Vec<Result<Bytes, Status>>
where
    F: Future<Output = Result<Bytes, Status>> + 'static,
{
    let tasks: Vec<_> = calls.map(spawn_local).collect();
    let mut answers = Vec::new();
    for task in tasks {
        answers.push(task.await.unwrap());
    }
    answers
}

fn all_answered(channel: Channel, most: &AtomicUsize) {
    corewire::run(async move {
        let calls = (0..100).map(|n: u32| channel.unary("Slow/echo", n.to_string()));
        for (n, answer) in at_once(calls).await.into_iter().enumerate() {
            assert_eq!(answer.unwrap(), n.to_string());
        }
    })
    .unwrap();
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

#[test]
fn calls_wait_for_a_place_among_those_that_the_server_takes() {
    let (service, most) = slow();
    let server = server(|server| server.service(service).settings(TWO()));
    // The first calls go out before the server has said what it takes.
    all_answered(Channel::to(server.uri()).protocol(Version::V2).build().unwrap(), &most);
}

#[test]
fn a_client_of_version_1_keeps_to_its_own_limit() {
    let (service, most) = slow();
    let server = server(|server| server.service(service));
    all_answered(Channel::to(server.uri()).protocol(Version::V1).settings(TWO()).build().unwrap(), &most);
}

struct Count(Arc<AtomicUsize>);

impl ClientInterceptor for Count {
    fn on_call(&self, _: &MethodPath, _: &mut CallOptions) -> Result<(), Status> {
        self.0.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }
}

#[test]
fn interceptors_are_told_once_of_a_call_that_waits() {
    let (service, most) = slow();
    let server = server(|server| server.service(service).settings(TWO()));
    let told = Arc::new(AtomicUsize::new(0));
    let channel = Channel::to(server.uri()).protocol(Version::V2).interceptor(Count(told.clone()));
    all_answered(channel.build().unwrap(), &most);
    assert_eq!(told.load(Ordering::SeqCst), 100);
}

/// A server whose two places are taken by calls that do not end, and a channel whose calls they are.
struct Full {
    channel: Channel,
    stuck: Vec<std::thread::JoinHandle<Result<Bytes, Status>>>,
    running: Running,
    _server: corewire::ServerHandle,
}

impl Full {
    fn new(change: impl FnOnce(RpcServer) -> RpcServer) -> Self {
        let running = Running::default();
        let (server, _) = gauged(|server| change(server.service(stuck(&running)).settings(TWO())));
        let channel = Channel::to(server.uri()).protocol(Version::V2).build().unwrap();
        let stuck = (0..2).map(|_| {
            let call = channel.unary("Stuck/unary", "").timeout(Duration::from_millis(700));
            std::thread::spawn(move || block_on(call))
        });
        let stuck = stuck.collect();
        let full = Self { channel, stuck, running, _server: server };
        eventually("both places are taken", || full.running.now() == 2);
        full
    }
}

#[test]
fn a_call_that_fails_fast_does_not_wait_for_a_place() {
    let full = Full::new(|server| server);
    let status = block_on(full.channel.unary("EchoService/echo", "x").fail_fast()).unwrap_err();
    assert_eq!(status.code(), Code::RESOURCE_EXHAUSTED, "{status}");
    assert!(status.message().contains('2'), "{status}");
}

#[test]
fn a_call_that_gets_no_place_in_time_says_so() {
    let full = Full::new(|server| server);
    let call = full.channel.unary("EchoService/echo", "x").timeout(Duration::from_millis(50));
    let status = block_on(call).unwrap_err();
    assert_eq!(status.code(), Code::DEADLINE_EXCEEDED, "{status}");
    assert!(status.message().contains("as many calls were in flight"), "{status}");
}

#[test]
fn a_call_that_is_given_up_lets_the_next_one_have_its_turn() {
    let full = Full::new(|server| server);
    let given_up = full.channel.unary("EchoService/echo", "x").timeout(Duration::from_millis(50));
    let last = full.channel.unary("EchoService/echo", "last").timeout(Duration::from_secs(10));
    let (given_up, last) = (std::thread::spawn(|| block_on(given_up)), std::thread::spawn(|| block_on(last)));
    assert_eq!(given_up.join().unwrap().unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    for call in full.stuck {
        assert_eq!(call.join().unwrap().unwrap_err().code(), Code::DEADLINE_EXCEEDED);
    }
    assert_eq!(last.join().unwrap().unwrap(), "last");
}

#[test]
fn the_end_of_the_connection_ends_the_wait() {
    let (server, gauges) = gauged(|server| server.service(stuck(&Running::default())).settings(TWO()));
    let channel = Channel::to(server.uri()).protocol(Version::V2).build().unwrap();
    let calls: Vec<_> = (0..5)
        .map(|_| {
            let call = channel.unary("Stuck/unary", "");
            std::thread::spawn(move || block_on(call))
        })
        .collect();
    eventually("two are in flight", || block_on(gauges.read()).calls == 2);
    channel.close();
    for call in calls {
        assert!(call.join().unwrap().is_err());
    }
    settles(&gauges, 0);
}
