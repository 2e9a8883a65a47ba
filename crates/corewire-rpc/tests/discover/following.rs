//! Calls go where the registry says, while servers come and go.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::*;
use crate::support::{VERSIONS, eventually};
use corewire::block_on;
use corewire_rpc::discover::registry::LocalRegistry;
use corewire_rpc::{Bytes, Channel, Code, RpcServer, Status};

#[test]
fn calls_follow_the_registry() {
    let registry = LocalRegistry::new();
    let one = server(&registry, "one");
    let channel = build(in_turn(&registry));
    assert_eq!(answers(&channel, 3), HashMap::from([("one".into(), 3)]));
    let _two = server(&registry, "two");
    eventually_answers(&channel, &["one", "two"]);
    one.shutdown(Duration::from_secs(5));
    assert_eq!(answers(&channel, 3), HashMap::from([("two".into(), 3)]));
}

#[test]
fn typed_clients_work_and_the_default_balancer_too() {
    #[corewire_rpc::service(name = "Who")]
    trait Who {
        async fn name(&self) -> Result<Bytes, Status>;
    }
    let registry = LocalRegistry::new();
    let _one = server(&registry, "one");
    let client = WhoClient::new(build(Channel::discover(&registry, "Who")));
    assert_eq!(block_on(client.name()).unwrap(), "one");
}

/// Calls all the time from a thread, and counts what fails.
fn under_load(channel: &Channel, is_idempotent: bool, during: impl FnOnce()) -> (usize, Vec<Status>) {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let load = scope.spawn(|| {
            let (mut done, mut failed) = (0, Vec::new());
            while !stop.load(Ordering::Relaxed) {
                let call = channel.unary("Who/name", "");
                match block_on(if is_idempotent { call.idempotent() } else { call }) {
                    Ok(_) => done += 1,
                    Err(status) => failed.push(status),
                }
            }
            (done, failed)
        });
        let end_load = StopOnDrop(&stop);
        during();
        drop(end_load);
        load.join().unwrap()
    })
}

/// A panic of what is tried under load ends the load too, or the test would never tell it.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_call_fails_while_servers_drain_die_and_join() {
    for version in VERSIONS {
        let registry = LocalRegistry::new();
        let (draining, dying, _staying) =
            (server(&registry, "draining"), unregistered("dying"), server(&registry, "staying"));
        let _dying = put(&registry, "dying", dying.local_addrs()[0]);
        let channel = build(in_turn(&registry).channel(|channel| channel.protocol(version)));
        eventually_answers(&channel, &["draining", "dying", "staying"]);
        let (done, failed) = under_load(&channel, true, || {
            draining.shutdown(Duration::from_secs(5));
            drop(dying);
            let _added = server(&registry, "added");
            eventually_answers(&channel, &["staying", "added"]);
        });
        assert!(failed.is_empty() && done > 0, "{version:?}: {failed:?} of {done}");
    }
}

#[test]
fn no_call_fails_for_servers_that_drain_even_if_it_must_not_be_made_twice() {
    let registry = LocalRegistry::new();
    let mut serving: Vec<_> = ["a", "b", "c"].iter().map(|name| server(&registry, name)).collect();
    let channel = build(in_turn(&registry).connections_per_endpoint(2));
    let (done, failed) = under_load(&channel, false, || {
        for round in 0..10 {
            serving.remove(0).shutdown(Duration::from_secs(5));
            serving.push(server(&registry, &format!("later-{round}")));
        }
    });
    assert!(failed.is_empty() && done > 0, "{failed:?} of {done}");
}

#[test]
fn a_call_in_flight_is_finished_when_its_endpoint_goes_away() {
    let registry = LocalRegistry::new();
    let begun = Arc::default();
    let server =
        RpcServer::bind("tcp://127.0.0.1:0").service(counting("one", &begun)).workers(1).start().unwrap();
    let lease = put(&registry, "one", server.local_addrs()[0]);
    let channel = build(in_turn(&registry));
    std::thread::scope(|scope| {
        let call = scope.spawn(|| block_on(channel.unary("Who/wait", "300")));
        eventually("the call has begun", || begun.load(Ordering::SeqCst) == 1);
        lease.deregister().unwrap();
        assert_eq!(call.join().unwrap().unwrap(), "one");
    });
    eventually("the connection is closed", || server.stats().sessions == 0);
}

#[test]
fn a_stream_in_flight_goes_on_when_its_endpoint_goes_away() {
    let registry = LocalRegistry::new();
    let server = unregistered("one");
    let lease = put(&registry, "one", server.local_addrs()[0]);
    let channel = build(in_turn(&registry));
    block_on(async {
        let mut ticks = channel.server_stream::<Bytes, Bytes>("Who/ticks", Bytes::new()).await.unwrap();
        assert_eq!(ticks.next().await.unwrap().unwrap(), "tick");
        lease.deregister().unwrap();
        for _ in 0..100 {
            assert_eq!(ticks.next().await.unwrap().unwrap(), "tick");
        }
    });
    eventually("the connection is closed", || server.stats().sessions == 0);
}

#[test]
fn without_endpoints_calls_wait_or_fail_at_once_as_they_are_told() {
    let registry = LocalRegistry::new();
    let channel = build(Channel::discover(&registry, "Who"));
    let failed = block_on(channel.unary("Who/name", "").fail_fast()).unwrap_err();
    assert_eq!(failed.code(), Code::UNAVAILABLE);
    assert!(failed.is_unprocessed() && failed.message().contains("knows no endpoint of Who"), "{failed}");
    let late = block_on(channel.unary("Who/name", "").timeout(Duration::from_millis(50))).unwrap_err();
    assert_eq!(late.code(), Code::DEADLINE_EXCEEDED);
    assert!(late.message().contains("knows no endpoint of Who"), "{late}");
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| name(&channel));
        std::thread::sleep(Duration::from_millis(20));
        let _one = server(&registry, "one");
        assert_eq!(waiting.join().unwrap().unwrap(), "one");
    });
    let fast = build(Channel::discover(&registry, "Never").fail_fast());
    assert_eq!(block_on(fast.unary("Never/was", "")).unwrap_err().code(), Code::UNAVAILABLE);
}

#[test]
fn a_closed_channel_says_so_and_its_connections_are_gone() {
    let registry = LocalRegistry::new();
    let one = server(&registry, "one");
    let channel = build(in_turn(&registry));
    assert_eq!(name(&channel).unwrap(), "one");
    channel.close();
    assert_eq!(name(&channel).unwrap_err().code(), Code::CONNECTION_CLOSED);
    eventually("no connection is left", || one.stats().sessions == 0);
}
