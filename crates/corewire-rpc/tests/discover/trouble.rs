//! Endpoints that fail, and registries that lose them.

use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::*;
use crate::support::eventually;
use corewire::{ServerHandle, block_on};
use corewire_rpc::discover::registry::{LocalLease, LocalRegistry, OutlierConfig, PanicConfig};
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service, Status};

/// Takes connections and does with them what it is told.
fn peer(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn endpoints_that_refuse_hang_or_answer_garbage_are_passed_over() {
    let registry = LocalRegistry::new();
    let refusing = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let hanging = peer(std::mem::forget);
    let garbling = peer(|mut stream| {
        let _ = stream.write_all(&[0xee; 64]);
        std::mem::forget(stream);
    });
    let _bad = (
        put(&registry, "refusing", refusing),
        put(&registry, "hanging", hanging),
        put(&registry, "garbling", garbling),
        put(&registry, "nowhere", "no-such-host.invalid:1"),
    );
    let alone = build(
        in_turn(&registry)
            .channel(|c| c.net(|net| net.connect_timeout(Duration::from_millis(200))))
            .fail_fast(),
    );
    let began = Instant::now();
    let failed = block_on(alone.unary("Who/name", "")).unwrap_err();
    assert!(failed.code() == Code::UNAVAILABLE && failed.is_unprocessed(), "{failed}");
    assert!(began.elapsed() < Duration::from_secs(8), "{:?}", began.elapsed());
    let _good = (server(&registry, "good"), server(&registry, "better"));
    // Long enough that a call which waits for one that hangs shows.
    let channel = build(in_turn(&registry).channel(|c| c.net(|net| net.connect_timeout(LONG))));
    let began = Instant::now();
    for _ in 0..50 {
        assert!(["good", "better"].contains(&&*name(&channel).unwrap()));
    }
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
}

#[test]
fn an_endpoint_that_keeps_failing_is_taken_out_for_a_time_and_tried_again() {
    let registry = LocalRegistry::new();
    let (count, is_well) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicBool::new(false)));
    let (counted, well) = (count.clone(), is_well.clone());
    let sick = Service::new("Who").unary("name", move |_: Bytes, _: Context| {
        counted.fetch_add(1, Ordering::SeqCst);
        let well = well.load(Ordering::SeqCst);
        std::future::ready(if well {
            Ok(Bytes::from_static(b"sick"))
        } else {
            Err(Status::new(Code::UNAVAILABLE, "overloaded"))
        })
    });
    let sick = RpcServer::bind("tcp://127.0.0.1:0").service(sick).workers(1).start().unwrap();
    let _well = server(&registry, "well");
    let mut config = OutlierConfig::default();
    (config.consecutive_failures, config.ejection_base) = (3, Duration::from_secs(2));
    let channel = build(in_turn(&registry).outliers(config));
    // First the one that works: alone, the other would be used however often it fails.
    eventually_answers(&channel, &["well"]);
    let _sick = put(&registry, "sick", sick.local_addrs()[0]);
    eventually("both are connected to", || name(&channel).is_err());
    let failed = (0..40).filter(|_| name(&channel).is_err()).count();
    assert!(failed <= 3, "{failed} of 40 calls failed");
    assert!(count.load(Ordering::SeqCst) <= 4, "it got {count:?} calls");
    is_well.store(true, Ordering::SeqCst);
    eventually_answers(&channel, &["sick", "well"]);
}

/// So many endpoints at these servers.
fn put_many(registry: &LocalRegistry, servers: &[ServerHandle], count: usize) -> Vec<LocalLease> {
    let at = |n: usize| put(registry, &n.to_string(), servers[n % servers.len()].local_addrs()[0]);
    (0..count).map(at).collect()
}

/// Endpoints of a channel: listed, held, connected.
fn endpoints(channel: &Channel) -> (usize, usize, usize) {
    let now = block_on(channel.endpoints()).unwrap();
    (now.listed, now.held, now.connected)
}

#[test]
fn hundreds_of_endpoints_that_leave_at_once_are_called_on() {
    let registry = LocalRegistry::new();
    let servers = ["one", "two", "three", "four"].map(unregistered);
    let fast = || in_turn(&registry).fail_fast();
    let (channel, follows) = (build(fast()), build(fast().no_panic_threshold()));
    let leases = put_many(&registry, &servers, 200);
    eventually("all are connected to", || {
        endpoints(&channel) == (200, 0, 200) && endpoints(&follows) == (200, 0, 200)
    });
    // As when the leases of all lapse: one after the other, within a moment.
    let lapsing = std::thread::spawn(move || drop(leases));
    answers(&channel, 400);
    lapsing.join().unwrap();
    eventually("all are gone", || endpoints(&channel) == (0, 200, 200));
    let answered = answers(&channel, 400);
    // A change of the registry that is heard late begins a turn anew.
    assert!(answered.len() == 4 && answered.values().all(|count| *count >= 50), "{answered:?}");
    let none = name(&follows).unwrap_err();
    assert!(none.message().contains("knows no endpoint of Who"), "{none}");
    // When enough are back, the others are gone.
    let _some = put_many(&registry, &servers, 99);
    eventually("too few are back", || endpoints(&channel) == (99, 101, 200));
    answers(&channel, 400);
    let _one_more = put(&registry, "99", servers[0].local_addrs()[0]);
    eventually("the others are given up", || endpoints(&channel) == (100, 0, 100));
    assert_eq!(answers(&channel, 400).len(), 4);
}

#[test]
fn endpoints_that_left_are_given_up_when_nothing_good_is_heard_of_them() {
    let registry = LocalRegistry::new();
    let servers = ["one", "two"].map(unregistered);
    let hold = Duration::from_secs(1);
    let config = PanicConfig { hold, ..PanicConfig::default() };
    let channel = build(in_turn(&registry).fail_fast().panic_threshold(config));
    let leases = put_many(&registry, &servers, 8);
    eventually("all are connected to", || endpoints(&channel) == (8, 0, 8));
    drop(leases);
    let began = Instant::now();
    while began.elapsed() < hold * 2 {
        name(&channel).unwrap();
    }
    // Without a call, and without a change of the registry.
    eventually("they are given up", || endpoints(&channel) == (0, 0, 0));
    assert!(name(&channel).unwrap_err().message().contains("knows no endpoint of Who"));
}

#[test]
fn a_call_that_failed_is_made_again_elsewhere_if_it_may_be() {
    let registry = LocalRegistry::new();
    let sick = Service::new("Who").unary("name", |_: Bytes, _: Context| {
        std::future::ready(Err::<Bytes, _>(Status::new(Code::UNAVAILABLE, "overloaded")))
    });
    let sick = RpcServer::bind("tcp://127.0.0.1:0").service(sick).workers(1).start().unwrap();
    let _well = server(&registry, "well");
    let channel = build(in_turn(&registry).no_outliers());
    eventually_answers(&channel, &["well"]);
    let _sick = put(&registry, "sick", sick.local_addrs()[0]);
    eventually("both are connected to", || name(&channel).is_err());
    for _ in 0..20 {
        assert_eq!(block_on(channel.unary("Who/name", "").idempotent()).unwrap(), "well");
    }
}
