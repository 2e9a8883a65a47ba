//! Channels that follow a registry, and servers that register themselves.
#![allow(clippy::unwrap_used)]

mod support;

use std::collections::HashMap;
use std::io::Write;
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use corewire::{ServerError, ServerHandle, block_on};
use corewire_rpc::discover::registry::{
    ConsistentHash, Endpoint, LocalLease, LocalRegistry, OutlierConfig, PanicConfig, RoundRobin,
    SmoothWeighted,
};
use corewire_rpc::discover::{DiscoverBuilder, DiscoverError, Registration};
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service, Sink, Status};
use support::{VERSIONS, eventually};

/// Says who it is; `wait` answers after the given ms, `ticks` for ever.
fn who(name: &str) -> Service {
    counting(name, &Arc::default())
}

/// As `who`, and counts the calls of `wait`.
fn counting(name: &str, begun: &Arc<AtomicUsize>) -> Service {
    let begun = begun.clone();
    let said = Bytes::from(name.to_owned());
    let waited = said.clone();
    Service::new("Who")
        .unary("name", move |_: Bytes, _: Context| std::future::ready(Ok(said.clone())))
        .unary("wait", move |ms: Bytes, _: Context| {
            begun.fetch_add(1, Ordering::SeqCst);
            let (said, ms) = (waited.clone(), std::str::from_utf8(&ms).unwrap().parse().unwrap());
            async move {
                corewire::sleep(Duration::from_millis(ms)).await;
                Ok(said)
            }
        })
        .server_stream("ticks", |_: Bytes, mut ticks: Sink, _: Context| async move {
            loop {
                ticks.send(Bytes::from_static(b"tick")).await?;
                corewire::sleep(Duration::from_millis(1)).await;
            }
        })
}

fn server(registry: &LocalRegistry, name: &str) -> ServerHandle {
    let registration = Registration::new(registry).instance(name.to_owned());
    RpcServer::bind("tcp://127.0.0.1:0")
        .service(who(name))
        .register_as(registration)
        .workers(1)
        .start()
        .unwrap()
}

/// One that is in the registry by hand, so that nobody takes it out when it dies.
fn unregistered(name: &str) -> ServerHandle {
    RpcServer::bind("tcp://127.0.0.1:0").service(who(name)).workers(1).start().unwrap()
}

fn put(registry: &LocalRegistry, name: &str, address: impl ToString) -> LocalLease {
    registry.register(Endpoint::new("Who", name.to_owned(), address.to_string()).unwrap()).unwrap()
}

fn in_turn(registry: &LocalRegistry) -> DiscoverBuilder {
    Channel::discover(registry, "Who").balancer(RoundRobin::new()).eager()
}

fn build(builder: DiscoverBuilder) -> Channel {
    block_on(builder.build()).unwrap()
}

fn name(channel: &Channel) -> Result<String, Status> {
    block_on(channel.unary("Who/name", "")).map(|name| String::from_utf8(name.to_vec()).unwrap())
}

/// How often each server answers.
fn answers(channel: &Channel, calls: usize) -> HashMap<String, usize> {
    let mut answers = HashMap::new();
    for _ in 0..calls {
        *answers.entry(name(channel).unwrap()).or_default() += 1;
    }
    answers
}

fn eventually_answers(channel: &Channel, servers: &[&str]) {
    eventually(&format!("calls go to {servers:?}"), || {
        let answers = answers(channel, 4 * servers.len());
        answers.len() == servers.len() && servers.iter().all(|server| answers.contains_key(*server))
    });
}

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
fn weight_zero_everywhere_counts_as_equal_and_somewhere_as_none() {
    let registry = LocalRegistry::new();
    let weightless = |name: &str| {
        let registration = Registration::new(&registry).instance(name.to_owned()).weight(0);
        let server = RpcServer::bind("tcp://127.0.0.1:0").service(who(name)).workers(1);
        server.register_as(registration).start().unwrap()
    };
    let _none = (weightless("one"), weightless("two"));
    for builder in [in_turn(&registry), in_turn(&registry).balancer(SmoothWeighted::new())] {
        eventually_answers(&build(builder), &["one", "two"]);
    }
    let channel = build(in_turn(&registry));
    let _some = server(&registry, "three");
    eventually("the others get none", || answers(&channel, 6).len() == 1);
    assert_eq!(name(&channel).unwrap(), "three");
}

/// Takes connections and does with them what it is told.
fn peer(serve: impl Fn(std::net::TcpStream) + Send + 'static) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().flatten().for_each(serve));
    address
}

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
    let channel = build(in_turn(&registry));
    let began = Instant::now();
    for _ in 0..50 {
        assert!(["good", "better"].contains(&&*name(&channel).unwrap()));
    }
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
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
    assert!(answered.len() == 4 && answered.values().all(|count| *count == 100), "{answered:?}");
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

#[test]
fn a_zone_is_preferred_for_as_long_as_it_has_endpoints() {
    let registry = LocalRegistry::new();
    let zoned = |name: &str, zone: &str| {
        let registration = Registration::new(&registry).instance(name.to_owned()).zone(zone.to_owned());
        let server = RpcServer::bind("tcp://127.0.0.1:0").service(who(name)).workers(1);
        server.register_as(registration).start().unwrap()
    };
    let (here, _there) = (zoned("here", "eu"), zoned("there", "us"));
    let channel = build(in_turn(&registry).zone("eu"));
    eventually("it is connected to", || name(&channel).unwrap() == "here");
    assert_eq!(answers(&channel, 10), HashMap::from([("here".into(), 10)]));
    here.shutdown(Duration::from_secs(5));
    assert_eq!(name(&channel).unwrap(), "there");
}

#[test]
fn calls_with_the_same_key_go_to_the_same_endpoint() {
    let registry = LocalRegistry::new();
    let _servers = ["one", "two", "three"].map(|name| server(&registry, name));
    let channel = build(in_turn(&registry).balancer(ConsistentHash::new()));
    let by = |key: u64| block_on(channel.unary("Who/name", "").balance_by(key)).unwrap();
    eventually("all are connected to", || {
        (0..32).map(by).collect::<std::collections::HashSet<_>>().len() == 3
    });
    for key in 0..32 {
        let first = by(key);
        assert!((0..5).all(|_| by(key) == first), "key {key}");
    }
}

#[test]
fn a_server_that_listens_everywhere_must_say_where_it_is_found() {
    let registry = LocalRegistry::new();
    let bind = || RpcServer::bind("tcp://*:0").service(who("one")).workers(1);
    let refused = bind().register(&registry).start().unwrap_err();
    assert!(matches!(refused, ServerError::Registration(_)), "{refused}");
    assert!(refused.to_string().contains("Registration::advertise"), "{refused}");
    for (advertise, found) in
        [("127.0.0.1", "127.0.0.1:"), ("::1", "[::1]:"), ("me.test", "me.test:"), ("a.test:9", "a.test:9")]
    {
        let server = bind().register_as(Registration::new(&registry).advertise(advertise)).start().unwrap();
        let address = registry.discover("Who").get(0).unwrap().address().clone();
        assert!(address.starts_with(found), "{address}");
        server.shutdown(Duration::from_secs(1));
        assert!(registry.discover("Who").is_empty());
    }
    let bad = bind()
        .register_as(Registration::new(&registry).advertise("a b:1").instance("i"))
        .start()
        .unwrap_err();
    assert!(bad.to_string().contains("not host:port"), "{bad}");
    let absent =
        bind().register_as(Registration::new("file:/nowhere/x.toml").advertise("h:1")).start().unwrap_err();
    assert!(absent.to_string().contains("/nowhere/x.toml"), "{absent}");
}

#[test]
fn all_services_of_a_server_are_registered_or_those_that_were_chosen() {
    let registry = LocalRegistry::new();
    let server = |registration: Registration| {
        let other =
            Service::new("Other").unary("x", |_: Bytes, _: Context| std::future::ready(Ok(Bytes::new())));
        let server = RpcServer::bind("tcp://127.0.0.1:0").service(who("one")).service(other).workers(1);
        server.register_as(registration.ttl(Duration::from_millis(300))).start().unwrap()
    };
    let all = server(Registration::new(&registry));
    let names = || registry.catalog().services().iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(names(), ["Other", "Who"]);
    // Longer than the time to live: it is renewed.
    std::thread::sleep(Duration::from_millis(700));
    assert_eq!(names(), ["Other", "Who"]);
    drop(all);
    eventually("a server that is gone is not registered", || names().is_empty());
    let _some = server(Registration::new(&registry).services(["Who"]));
    assert_eq!(names(), ["Who"]);
}

#[test]
fn a_registry_that_cannot_be_reached_is_said_at_once() {
    let refused = block_on(Channel::discover("file:/nowhere/x.toml", "Who").build()).unwrap_err();
    assert!(matches!(refused, DiscoverError::Registry(_)), "{refused}");
    assert!(refused.to_string().contains("/nowhere/x.toml"), "{refused}");
    let bad_name = block_on(Channel::discover("local", "a/b").build()).unwrap_err();
    assert!(bad_name.to_string().contains("'/'"), "{bad_name}");
    // Waited for, as its address says.
    let file = std::env::temp_dir().join(format!("corewire-discover-{}.toml", std::process::id()));
    let address = format!("file:{}?wait=true&poll=20ms", file.display());
    let channel = build(Channel::discover(address, "Who"));
    let server = unregistered("one");
    let waiting = std::thread::spawn(move || name(&channel));
    let text = format!("[[endpoints]]\nservice = \"Who\"\naddress = \"{}\"\n", server.local_addrs()[0]);
    std::fs::write(&file, text).unwrap();
    assert_eq!(waiting.join().unwrap().unwrap(), "one");
    std::fs::remove_file(&file).unwrap();
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

#[test]
fn endpoints_are_reached_whatever_their_scheme_with_the_keys_of_the_channel() {
    let registry = LocalRegistry::new();
    let key = || corewire::kcp::Key::new([7; 32]);
    let path = std::env::temp_dir().join(format!("corewire-discover-{}.sock", std::process::id()));
    let start = |uri: &str, name: &str| {
        RpcServer::bind(uri)
            .service(who(name))
            .net(|net| net.kcp_key(key()))
            .register(&registry)
            .workers(1)
            .start()
            .unwrap()
    };
    let unix = format!("unix://{}", path.display());
    let servers =
        [start("tcp://127.0.0.1:0", "tcp"), start("kcp://127.0.0.1:0", "kcp"), start(&unix, "unix")];
    let addresses: Vec<String> =
        registry.discover("Who").iter().map(|endpoint| endpoint.address().to_string()).collect();
    assert!(addresses.iter().any(|address| address.starts_with("kcp://127.0.0.1:")), "{addresses:?}");
    assert!(addresses.contains(&unix), "{addresses:?}");
    let channel = build(in_turn(&registry).channel(|channel| channel.net(|net| net.kcp_key(key()))));
    let mut seen = HashMap::new();
    eventually("all of them answer", || {
        seen.insert(name(&channel).unwrap(), ());
        seen.len() == 3
    });
    drop((channel, servers));
    let _ = std::fs::remove_file(path);
}

#[test]
fn an_endpoint_of_a_scheme_that_is_not_spoken_is_left_out_with_the_reason() {
    let registry = LocalRegistry::new();
    let _lease = put(&registry, "secret", "tls://127.0.0.1:443");
    let channel = build(in_turn(&registry).fail_fast());
    let failed = block_on(channel.unary("Who/name", "")).unwrap_err();
    assert_eq!(failed.code(), Code::UNAVAILABLE);
    assert!(failed.message().contains("secret") && failed.message().contains("tls"), "{failed}");
    let server = unregistered("plain");
    let _lease = put(&registry, "plain", server.local_addrs()[0]);
    eventually("the other one is used", || name(&channel).is_ok_and(|name| name == "plain"));
    let refused = Channel::to("tls://127.0.0.1:443").build().unwrap_err();
    assert!(
        matches!(refused, corewire::ConnectError::Uri(corewire::UriError::UnknownScheme { .. })),
        "{refused}"
    );
}
