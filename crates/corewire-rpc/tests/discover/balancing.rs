//! Which endpoint a call goes to.

use std::collections::HashMap;
use std::time::Duration;

use crate::common::*;
use crate::support::eventually;
use corewire::block_on;
use corewire_rpc::RpcServer;
use corewire_rpc::discover::Registration;
use corewire_rpc::discover::registry::{ConsistentHash, LocalRegistry, SmoothWeighted};

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
