//! The local registry: leases, limits and what watchers see.
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]

use corewire_discovery::{
    CatalogLimits, Change, Clock, Endpoint, Lease, LocalRegistry, RegisterOptions, Registry, RegistryError,
    VirtualClock, Watch,
};
use futures_lite::{StreamExt, future::block_on};
use std::sync::Arc;
use std::time::Duration;

fn endpoint(service: &str, instance: &str, weight: u16) -> Endpoint {
    Endpoint::new(service, instance, "127.0.0.1:7000").unwrap().with_weight(weight)
}

fn instances(registry: &LocalRegistry, service: &str) -> Vec<String> {
    let mut names: Vec<_> = registry.discover(service).iter().map(|e| e.instance().to_string()).collect();
    names.sort();
    names
}

/// The event's kind, instance and weight, to compare.
fn told(watch: &mut Watch) -> Option<(&'static str, String, u16)> {
    Some(match watch.try_next()?.change {
        Change::Reset(snapshot) => ("reset", snapshot.len().to_string(), 0),
        Change::Added(e) => ("added", e.instance().to_string(), e.weight()),
        Change::Updated { after, .. } => ("updated", after.instance().to_string(), after.weight()),
        Change::Removed(e) => ("removed", e.instance().to_string(), e.weight()),
        other => panic!("{other:?}"),
    })
}

#[test]
fn an_unknown_service_is_empty() {
    let registry = LocalRegistry::new();
    assert!(registry.discover("nobody").is_empty());
    assert!(registry.catalog().lookup().snapshot("nobody").is_empty());
    assert!(registry.catalog().services().is_empty());
}

#[test]
fn a_lease_holds_its_endpoint_until_it_is_dropped_or_given_back() {
    let registry = LocalRegistry::new();
    let a = registry.register(endpoint("s", "a", 1)).unwrap();
    let b = registry.register(endpoint("s", "b", 1)).unwrap();
    assert_eq!(instances(&registry, "s"), ["a", "b"]);
    drop(a);
    assert_eq!(instances(&registry, "s"), ["b"]);
    b.deregister().unwrap();
    assert!(registry.discover("s").is_empty());
    assert!(registry.catalog().services().is_empty());
}

#[test]
fn registering_again_updates_and_the_older_lease_lets_go() {
    let registry = LocalRegistry::new();
    let mut watch = registry.watch("s").unwrap();
    let old = registry.register(endpoint("s", "a", 1)).unwrap();
    let new = registry.register(endpoint("s", "a", 2)).unwrap();
    assert_eq!(registry.discover("s").get(0).unwrap().weight(), 2);
    assert!(matches!(old.renew(), Err(RegistryError::LeaseLost { .. })));
    assert!(matches!(old.deregister(), Err(RegistryError::LeaseLost { .. })));
    assert_eq!(instances(&registry, "s"), ["a"]);
    drop(new);
    let told: Vec<_> =
        std::iter::from_fn(|| told(&mut watch)).map(|(kind, _, weight)| (kind, weight)).collect();
    assert_eq!(told, [("reset", 0), ("added", 1), ("updated", 2), ("removed", 2)]);
}

#[test]
fn registering_the_same_again_is_no_change() {
    let registry = LocalRegistry::new();
    let _a = registry.register(endpoint("s", "a", 1)).unwrap();
    let version = registry.discover("s").version();
    let _b = registry.register(endpoint("s", "a", 1)).unwrap();
    assert_eq!(registry.discover("s").version(), version);
}

#[test]
fn an_instance_that_comes_back_by_its_names_is_what_they_say() {
    let registry = LocalRegistry::new();
    let come = |instance: &str, address: &str| registry.register_named("s", instance, address);
    let seen = || {
        let all = registry.discover("s");
        all.iter().map(|e| format!("{} {} {}", e.instance(), e.address(), e.weight())).collect::<Vec<_>>()
    };
    let first = come("a", "h:1").unwrap();
    let known = first.endpoint().clone();
    first.deregister().unwrap();
    let same = come("a", "h:1").unwrap();
    assert!(Arc::ptr_eq(same.endpoint(), &known));
    drop(same);
    let moved = come("a", "h:2").unwrap();
    assert_eq!(seen(), ["a h:2 100"]);
    drop(moved);
    drop(registry.register(endpoint("s", "a", 7)).unwrap());
    let plain = come("a", "127.0.0.1:7000").unwrap();
    assert_eq!(seen(), ["a 127.0.0.1:7000 100"], "not with the weight of the one before");
    let other = come("b", "127.0.0.1:7000").unwrap();
    assert_eq!(seen().len(), 2);
    let newer = come("b", "h:3").unwrap();
    assert!(other.deregister().is_err() && newer.is_held() && plain.is_held());
    assert!(matches!(come("c", "nowhere"), Err(RegistryError::Endpoint(_))));
    assert!(matches!(come("a/b", "h:1"), Err(RegistryError::Endpoint(_))));
    assert_eq!(seen().len(), 2);
}

#[test]
fn two_instances_may_share_an_address() {
    let registry = LocalRegistry::new();
    let _a = registry.register(endpoint("s", "a", 1)).unwrap();
    let _b = registry.register(endpoint("s", "b", 1)).unwrap();
    assert_eq!(registry.discover("s").len(), 2);
}

#[test]
fn a_watch_of_a_service_that_never_existed_waits_for_it() {
    let registry = LocalRegistry::new();
    let mut watch = registry.watch("later").unwrap();
    assert_eq!(told(&mut watch), Some(("reset", "0".into(), 0)));
    assert_eq!(told(&mut watch), None);
    let _a = registry.register(endpoint("later", "a", 3)).unwrap();
    assert_eq!(told(&mut watch), Some(("added", "a".into(), 3)));
    assert!(registry.watch("").is_err());
}

#[test]
fn a_slow_watcher_gets_one_fresh_snapshot_and_then_every_change() {
    let limits = CatalogLimits { watch_queue_events: 4, ..CatalogLimits::default() };
    let registry = LocalRegistry::with_limits(limits);
    let mut watch = registry.watch("s").unwrap();
    let mut leases: Vec<_> =
        (0..6).map(|n| registry.register(endpoint("s", &n.to_string(), 1)).unwrap()).collect();
    drop(leases.pop());
    let all: Vec<_> = std::iter::from_fn(|| told(&mut watch)).collect();
    assert_eq!(all[0], ("reset", "4".into(), 0));
    assert_eq!(all[1..].iter().map(|(kind, ..)| *kind).collect::<Vec<_>>(), ["added", "added", "removed"]);
}

#[test]
fn a_watch_is_a_stream_that_ends_with_its_registry() {
    let registry = LocalRegistry::new();
    let mut watch = registry.watch("s").unwrap();
    let writer = std::thread::spawn(move || {
        let _a = registry.register(endpoint("s", "a", 1)).unwrap();
    });
    let seen = block_on(async {
        let mut seen = Vec::new();
        while let Some(event) = StreamExt::next(&mut watch).await {
            seen.push(event.version);
        }
        seen
    });
    writer.join().unwrap();
    assert_eq!(seen, [0, 1, 2]);
    assert!(watch.recv_timeout(Duration::from_secs(60)).is_none(), "an ended watch does not wait");
}

#[test]
fn limits_are_typed_errors() {
    let limits = CatalogLimits {
        services_max: 2,
        endpoints_per_service_max: 2,
        watches_per_service_max: 1,
        ..Default::default()
    };
    let registry = LocalRegistry::with_limits(limits);
    let _a = registry.register(endpoint("s", "a", 1)).unwrap();
    let _b = registry.register(endpoint("s", "b", 1)).unwrap();
    let third = registry.register(endpoint("s", "c", 1)).unwrap_err();
    assert!(matches!(third, RegistryError::Full { what: "endpoints of one service", limit: 2 }));
    registry.register(endpoint("s", "b", 9)).unwrap().deregister().unwrap();
    let _watch = registry.watch("t").unwrap();
    assert!(matches!(registry.watch("t"), Err(RegistryError::Full { what: "watches of one service", .. })));
    let full = registry.register(endpoint("u", "a", 1)).unwrap_err();
    assert!(matches!(full, RegistryError::Full { what: "services", limit: 2 }));
}

#[test]
fn services_that_are_over_make_room_for_others() {
    let registry = LocalRegistry::with_limits(CatalogLimits { services_max: 10, ..Default::default() });
    let mut lookup = registry.catalog().lookup();
    let _kept = registry.register(endpoint("kept", "a", 1)).unwrap();
    let key = registry.key("pinned").unwrap();
    for n in 0..1000 {
        let name = format!("service-{n}");
        let _lease = registry.register(endpoint(&name, "a", 1)).unwrap();
        assert_eq!(lookup.snapshot(&name).len(), 1);
        assert_eq!(lookup.snapshot("kept").len(), 1);
    }
    let _back = registry.register(endpoint("service-0", "a", 1)).unwrap();
    assert_eq!(lookup.snapshot("service-0").len(), 1, "a service that came back is seen");
    let _pinned = registry.register_in(&key, endpoint("pinned", "a", 1)).unwrap();
    assert_eq!(registry.discover("pinned").len(), 1, "a key's service is the one that is found by name");
}

#[test]
fn a_key_is_good_only_for_its_own_service_and_registry() {
    let (registry, other) = (LocalRegistry::new(), LocalRegistry::new());
    let key = registry.key("s").unwrap();
    let mut reader = key.reader();
    let lease = registry.register_in(&key, endpoint("s", "a", 1)).unwrap();
    assert_eq!((key.snapshot().len(), reader.snapshot().len()), (1, 1));
    drop(lease);
    assert!(reader.snapshot().is_empty());
    assert!(matches!(registry.register_in(&key, endpoint("t", "a", 1)), Err(RegistryError::WrongKey { .. })));
    assert!(matches!(other.register_in(&key, endpoint("s", "a", 1)), Err(RegistryError::WrongKey { .. })));
}

#[test]
fn a_lease_ends_when_its_time_has_passed_since_the_last_renewal() {
    let clock = Arc::new(VirtualClock::new());
    let registry = LocalRegistry::with_clock(CatalogLimits::default(), clock.clone());
    let second = Duration::from_secs(1);
    let renewed = registry.register_with_ttl(endpoint("s", "renewed", 1), second).unwrap();
    let silent = registry.register_with_ttl(endpoint("s", "silent", 1), second).unwrap();
    let _endless = registry.register(endpoint("s", "endless", 1)).unwrap();
    clock.advance(second / 2);
    renewed.renew().unwrap();
    clock.advance(second / 2);
    assert_eq!(registry.expire_due(), 1);
    assert_eq!(instances(&registry, "s"), ["endless", "renewed"]);
    assert!(matches!(silent.renew(), Err(RegistryError::LeaseLost { .. })));
    clock.advance(second / 2);
    assert_eq!(registry.expire_due(), 1);
    assert_eq!(instances(&registry, "s"), ["endless"]);
    assert_eq!(registry.expire_due(), 0);
}

#[test]
fn a_clock_that_goes_back_neither_ends_nor_prolongs_a_lease_for_ever() {
    let clock = Arc::new(VirtualClock::new());
    clock.set(Duration::from_secs(1_000_000));
    let registry = LocalRegistry::with_clock(CatalogLimits::default(), clock.clone());
    let _lease = registry.register_with_ttl(endpoint("s", "a", 1), Duration::from_secs(10)).unwrap();
    clock.set(Duration::from_secs(5));
    assert_eq!(registry.expire_due(), 0, "time that went back ends nothing");
    clock.set(Duration::from_secs(14));
    assert_eq!(registry.expire_due(), 0, "nine seconds have passed");
    clock.set(Duration::from_secs(15));
    assert_eq!(
        registry.expire_due(),
        1,
        "ten seconds have passed, though the clock is far from where it was"
    );
}

#[test]
fn registering_again_without_a_time_to_live_ends_the_old_deadline() {
    let clock = Arc::new(VirtualClock::new());
    let registry = LocalRegistry::with_clock(CatalogLimits::default(), clock.clone());
    let _old = registry.register_with_ttl(endpoint("s", "a", 1), Duration::from_secs(1)).unwrap();
    let _new = registry.register(endpoint("s", "a", 1)).unwrap();
    clock.advance(Duration::from_secs(5));
    assert_eq!(registry.expire_due(), 0);
    assert_eq!(instances(&registry, "s"), ["a"]);
}

#[test]
fn a_registry_on_the_systems_clock_ends_leases_by_itself() {
    let registry = LocalRegistry::new();
    let mut watch = registry.watch("s").unwrap();
    let _late = registry.register_with_ttl(endpoint("s", "late", 1), Duration::from_secs(3600)).unwrap();
    let _soon = registry.register_with_ttl(endpoint("s", "soon", 1), Duration::from_millis(5)).unwrap();
    let removed = std::iter::from_fn(|| watch.recv_timeout(Duration::from_secs(30))).find_map(|event| {
        if let Change::Removed(e) = event.change { Some(e.instance().to_string()) } else { None }
    });
    assert_eq!(removed.as_deref(), Some("soon"));
    assert!(matches!(
        registry.register_with_ttl(endpoint("s", "x", 1), Duration::ZERO),
        Err(RegistryError::BadTtl { .. })
    ));
}

#[test]
fn the_registry_trait_serves_the_same() {
    let clock = Arc::new(VirtualClock::new());
    assert_eq!(clock.now(), Duration::ZERO);
    let registry: Box<dyn Registry> = Box::new(LocalRegistry::with_clock(CatalogLimits::default(), clock));
    block_on(async {
        let lease: Lease =
            registry.register(Arc::new(endpoint("s", "a", 1)), RegisterOptions::new()).await.unwrap();
        let ttl = RegisterOptions::new().with_ttl(Duration::from_secs(1));
        let leased = registry.register(Arc::new(endpoint("t", "a", 1)), ttl).await.unwrap();
        leased.renew().unwrap();
        assert_eq!(registry.discover("s").await.unwrap().len(), 1);
        assert_eq!(registry.services().await.unwrap(), ["s".into(), "t".into()]);
        let mut watch = registry.watch("s").await.unwrap();
        assert!(matches!(watch.next().await.unwrap().change, Change::Reset(_)));
        lease.deregister().await.unwrap();
        assert!(matches!(watch.next().await.unwrap().change, Change::Removed(_)));
        drop(leased);
        assert!(registry.services().await.unwrap().is_empty());
    });
}
