//! Servers in a registry, and the addresses there.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::*;
use crate::support::eventually;
use corewire::{ServerError, block_on};
use corewire_rpc::discover::registry::LocalRegistry;
use corewire_rpc::discover::{DiscoverError, Registration};
use corewire_rpc::{Bytes, Channel, Code, Context, RpcServer, Service};

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
    let _lease = put(&registry, "secret", "ws://127.0.0.1:443");
    let channel = build(in_turn(&registry).fail_fast());
    let failed = block_on(channel.unary("Who/name", "")).unwrap_err();
    assert_eq!(failed.code(), Code::UNAVAILABLE);
    assert!(failed.message().contains("secret") && failed.message().contains("ws"), "{failed}");
    let server = unregistered("plain");
    let _lease = put(&registry, "plain", server.local_addrs()[0]);
    eventually("the other one is used", || name(&channel).is_ok_and(|name| name == "plain"));
    for (uri, says) in [
        ("ws://127.0.0.1:443", "use tcp, tls"),
        ("udp://127.0.0.1:443", "use tcp, tls"),
        ("abc://127.0.0.1:443", "abc"),
    ] {
        let refused = Channel::to(uri).build().unwrap_err();
        assert!(refused.to_string().contains(says), "{refused}");
    }
}
