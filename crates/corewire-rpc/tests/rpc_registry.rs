//! A registry that one process serves and others use.
#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::{ServerHandle, block_on};
use corewire_rpc::discover::registry::{
    Change, Endpoint, Lease, LocalRegistry, RegisterOptions, Registry, RegistryError, Watch,
};
use corewire_rpc::discover::{Registration, connect, registry_service};
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service, Sink};
use support::{echo_service, eventually};

const PATIENCE: Duration = Duration::from_secs(10);

fn serve(listen: &str, registry: &LocalRegistry) -> ServerHandle {
    RpcServer::bind(listen).service(registry_service(registry)).workers(1).start().unwrap()
}

fn address(server: &ServerHandle, settings: &str) -> String {
    format!("{}?{settings}", server.uri().replace("tcp:", "rpc:"))
}

fn open(server: &ServerHandle, settings: &str) -> Arc<dyn Registry> {
    block_on(connect(&address(server, settings))).unwrap()
}

fn endpoint(instance: &str, weight: u16) -> Arc<Endpoint> {
    Arc::new(Endpoint::new("Echo", instance, "10.0.0.1:7000").unwrap().with_weight(weight))
}

fn register(registry: &Arc<dyn Registry>, endpoint: Arc<Endpoint>) -> Lease {
    block_on(registry.register(endpoint, RegisterOptions::new())).unwrap()
}

fn told(watch: &mut Watch) -> String {
    match watch.recv_timeout(PATIENCE).expect("something happens").change {
        Change::Reset(snapshot) => format!("={}", snapshot.len()),
        Change::Added(endpoint) => format!("+{}*{}", endpoint.instance(), endpoint.weight()),
        Change::Updated { after, .. } => format!("~{}*{}", after.instance(), after.weight()),
        Change::Removed(endpoint) => format!("-{}", endpoint.instance()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn what_one_client_registers_the_others_are_told() {
    let served = LocalRegistry::new();
    let server = serve("tcp://127.0.0.1:0", &served);
    let (one, other) = (open(&server, ""), open(&server, ""));
    let mut watch = block_on(other.watch("Echo")).unwrap();
    assert_eq!(told(&mut watch), "=0");
    let full =
        Endpoint::new("Echo", "a", "[::1]:7000").unwrap().with_zone("eu").unwrap().with_tags(["x", "y"]);
    let full = Arc::new(full.unwrap());
    let lease = register(&one, full.clone());
    assert_eq!(told(&mut watch), "+a*100");
    assert_eq!(block_on(other.discover("Echo")).unwrap().get(0), Some(&full));
    assert_eq!(block_on(one.services()).unwrap(), ["Echo".into()]);
    // A second registration of the instance updates it and takes it over.
    let taking = register(&other, endpoint("a", 7));
    assert_eq!(told(&mut watch), "~a*7");
    eventually("the first is told that its lease is lost", || lease.renew().is_err());
    assert!(matches!(block_on(lease.deregister()), Err(RegistryError::LeaseLost { .. })));
    // What the process of the registry registers itself is served as well.
    let own = served.register(endpoint("b", 1)).unwrap();
    assert_eq!(told(&mut watch), "+b*1");
    drop(own);
    assert_eq!(told(&mut watch), "-b");
    block_on(taking.deregister()).unwrap();
    assert_eq!(told(&mut watch), "-a");
    assert!(block_on(one.discover("Never")).unwrap().is_empty());
}

#[test]
fn a_lease_is_renewed_and_ends_when_nobody_does() {
    let served = LocalRegistry::new();
    let server = serve("tcp://127.0.0.1:0", &served);
    let channel = Channel::to(server.uri()).build().unwrap();
    let raw = |method: &str, json: &'static str| {
        block_on(channel.unary(&*format!("corewire.Registry/{method}"), json))
    };
    let held = open(&server, "ttl=300ms");
    let _held = register(&held, endpoint("held", 1));
    raw(
        "register",
        r#"{"endpoint":{"service":"Echo","instance":"left","address":"h:1"},"ttl_ms":300,"lease":7}"#,
    )
    .unwrap();
    assert_eq!(served.discover("Echo").len(), 2);
    eventually("the lease that is not renewed ends", || served.discover("Echo").len() == 1);
    std::thread::sleep(Duration::from_millis(400));
    assert_eq!(&**served.discover("Echo").get(0).unwrap().instance(), "held");
    assert_eq!(raw("renew", r#"{"leases":[7,8]}"#).unwrap(), r#"{"gone":[7,8],"taken":[]}"#);
    assert_eq!(raw("deregister", r#"{"lease":7}"#).unwrap(), r#"{"was_held":false}"#);
    for (bad, code) in [
        ("no json", Code::DESERIALIZATION),
        (
            r#"{"endpoint":{"service":"a b","instance":"i","address":"h:1"},"ttl_ms":300,"lease":7}"#,
            Code::INVALID_REQUEST,
        ),
        (
            r#"{"endpoint":{"service":"s","instance":"i","address":"h"},"ttl_ms":300,"lease":7}"#,
            Code::INVALID_REQUEST,
        ),
        (
            r#"{"endpoint":{"service":"s","instance":"i","address":"h:1"},"ttl_ms":0,"lease":7}"#,
            Code::INVALID_REQUEST,
        ),
    ] {
        assert_eq!(raw("register", bad).unwrap_err().code(), code, "{bad}");
    }
    let watched = block_on(async {
        let mut watch = channel
            .server_stream::<Bytes, Bytes>("corewire.Registry/watch", r#"{"service":"a/b"}"#.into())
            .await?;
        watch.next().await.unwrap()
    });
    assert_eq!(watched.unwrap_err().code(), Code::INVALID_REQUEST);
}

#[test]
fn a_registry_that_comes_back_empty_is_filled_again_and_nobody_sees_a_gap() {
    let server = serve("tcp://127.0.0.1:0", &LocalRegistry::new());
    let listen = server.uri().to_owned();
    let (one, other) = (open(&server, "ttl=1s"), open(&server, "grace=2s"));
    let _kept = register(&one, endpoint("kept", 1));
    let dead = register(&open(&server, "ttl=1s"), endpoint("dead", 1));
    let mut watch = block_on(other.watch("Echo")).unwrap();
    assert_eq!(told(&mut watch), "=2");
    drop(server);
    // Its process died while the registry was away.
    drop(dead);
    std::thread::sleep(Duration::from_millis(1_200));
    assert_eq!(block_on(other.discover("Echo")).unwrap().len(), 2, "the last known endpoints are served");
    let fresh = LocalRegistry::new();
    let _server = serve(&listen, &fresh);
    let back = Instant::now();
    eventually("it is registered again", || fresh.discover("Echo").len() == 1);
    assert!(back.elapsed() < Duration::from_secs(2), "{:?}", back.elapsed());
    assert_eq!(told(&mut watch), "-dead");
    assert!(watch.recv_timeout(Duration::from_millis(300)).is_none());
    let _late = register(&other, endpoint("late", 1));
    assert_eq!(told(&mut watch), "+late*1");
}

#[test]
fn an_endpoint_whose_update_is_malformed_is_left_out() {
    let told_changes = [
        r#"{"change":"reset","endpoints":[{"service":"Echo","instance":"a","address":"10.0.0.1:7000"}]}"#,
        r#"{"change":"put","endpoint":{"service":"Echo","instance":"a","address":"nowhere"}}"#,
        r#"{"change":"put","endpoint":{"service":"Echo","instance":"b","address":"10.0.0.2:7000"}}"#,
    ];
    let registry = Service::new("corewire.Registry")
        .unary("services", |_: Bytes, _: Context| {
            std::future::ready(Ok(Bytes::from_static(br#"{"services":["Echo"]}"#)))
        })
        .server_stream("watch", move |_: Bytes, mut told: Sink<Bytes>, _: Context| async move {
            for change in told_changes {
                told.send(Bytes::from_static(change.as_bytes())).await?;
            }
            std::future::pending().await
        });
    let server = RpcServer::bind("tcp://127.0.0.1:0").service(registry).workers(1).start().unwrap();
    let registry = open(&server, "");
    eventually("only the other is left", || {
        let known = block_on(registry.discover("Echo")).unwrap();
        known.iter().map(|endpoint| &**endpoint.instance()).eq(["b"])
    });
}

#[test]
fn a_registry_that_cannot_be_reached_is_said_or_waited_for() {
    let gone = serve("tcp://127.0.0.1:0", &LocalRegistry::new());
    let (listen, there) = (gone.uri().to_owned(), address(&gone, ""));
    drop(gone);
    let refused = block_on(connect(&there)).unwrap_err();
    assert!(matches!(refused, RegistryError::Unreachable { kind: "rpc", .. }), "{refused}");
    assert!(refused.to_string().contains(&listen), "{refused}");
    let waiting = std::thread::spawn(move || block_on(connect(&format!("{there}wait=true"))));
    std::thread::sleep(Duration::from_millis(100));
    assert!(!waiting.is_finished());
    let _server = serve(&listen, &LocalRegistry::new());
    assert!(waiting.join().unwrap().is_ok());
    for bad in ["rpc://", "rpc://h", "rpc://h:1?ttl=1ms", "rpc://h:1?x=1"] {
        let refused = block_on(connect(bad)).unwrap_err();
        assert!(
            matches!(refused, RegistryError::BadUri { .. } | RegistryError::BadTtl { .. }),
            "{bad}: {refused:?}"
        );
    }
}

#[test]
fn a_server_starts_without_its_registry_and_registers_when_it_is_there() {
    let gone = serve("tcp://127.0.0.1:0", &LocalRegistry::new());
    let (listen, there) = (gone.uri().to_owned(), address(&gone, ""));
    drop(gone);
    let start = |registry: &str| {
        let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo_service("Echo")).workers(1);
        server.register_as(Registration::new(registry)).start()
    };
    let began = Instant::now();
    let server = start(&there).unwrap();
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    let registry = LocalRegistry::new();
    let _served = serve(&listen, &registry);
    eventually("it is registered", || registry.discover("Echo").len() == 1);
    server.shutdown(Duration::from_secs(5));
    assert!(registry.discover("Echo").is_empty());
    // An address that is none never becomes one.
    assert!(start("rpc://h").unwrap_err().to_string().contains("no port"));
}

#[test]
fn servers_and_channels_find_each_other_by_its_address() {
    let served = LocalRegistry::new();
    let registry = serve("tcp://127.0.0.1:0", &served);
    let there = address(&registry, "");
    let echo = || {
        let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo_service("Echo")).workers(1);
        server.register_as(Registration::new(&there)).start().unwrap()
    };
    let (one, two) = (echo(), echo());
    assert_eq!(served.discover("Echo").len(), 2);
    let channel = block_on(Channel::discover(&there, "Echo").build()).unwrap();
    for _ in 0..10 {
        assert_eq!(block_on(channel.unary("Echo/echo", "x")).unwrap(), "x");
    }
    one.shutdown(Duration::from_secs(5));
    assert_eq!(served.discover("Echo").len(), 1);
    // The registry may be away: what is known is called.
    drop(registry);
    for _ in 0..10 {
        assert_eq!(block_on(channel.unary("Echo/echo", "x")).unwrap(), "x");
    }
    let began = Instant::now();
    two.shutdown(Duration::from_secs(5));
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
}
