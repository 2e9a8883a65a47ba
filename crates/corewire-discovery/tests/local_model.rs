//! The local registry against a plain map, and from many threads.
#![expect(clippy::unwrap_used, reason = "a panic here is a failed test")]

use corewire_discovery::{
    CatalogLimits, Change, Endpoint, LocalLease, LocalRegistry, Snapshot, VirtualClock, Watch,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

type Known = BTreeMap<String, u16>;

fn endpoint(service: usize, instance: usize, weight: u16) -> Endpoint {
    Endpoint::new(format!("s{service}"), format!("i{instance}"), "10.0.0.1:1").unwrap().with_weight(weight)
}

fn known(snapshot: &Snapshot) -> Known {
    snapshot.iter().map(|e| (e.instance().to_string(), e.weight())).collect()
}

/// Rebuilds a service from what its watch tells, and checks that each step fits the one before.
struct Follower {
    watch: Watch,
    known: Known,
    version: Option<u64>,
    resets: usize,
}

impl Follower {
    fn new(watch: Watch) -> Self {
        Self { watch, known: Known::new(), version: None, resets: 0 }
    }

    fn catch_up(&mut self) {
        while let Some(event) = self.watch.try_next() {
            let expected = self.version.map(|version| version + 1);
            match event.change {
                Change::Reset(snapshot) => {
                    assert_eq!(snapshot.version(), event.version);
                    assert!(self.version.is_none_or(|version| version < event.version));
                    self.known = known(&snapshot);
                    self.resets += 1;
                }
                Change::Added(e) => {
                    assert_eq!(Some(event.version), expected);
                    assert_eq!(self.known.insert(e.instance().to_string(), e.weight()), None);
                }
                Change::Updated { before, after } => {
                    assert_eq!(Some(event.version), expected);
                    let old = self.known.insert(after.instance().to_string(), after.weight());
                    assert_eq!(old, Some(before.weight()));
                }
                Change::Removed(e) => {
                    assert_eq!(Some(event.version), expected);
                    assert_eq!(self.known.remove(&**e.instance()), Some(e.weight()));
                }
                other => panic!("{other:?}"),
            }
            self.version = Some(event.version);
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Register { service: usize, instance: usize, weight: u16, ttl_s: Option<u64> },
    Drop(usize),
    Renew(usize),
    Advance(u64),
    ClockBack(u64),
    Watch(usize),
    CatchUp(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0usize..3, 0usize..100, 0u16..3, prop::option::weighted(0.3, 1u64..20))
            .prop_map(|(service, instance, weight, ttl_s)| Step::Register { service, instance, weight, ttl_s }),
        3 => any::<usize>().prop_map(Step::Drop),
        1 => any::<usize>().prop_map(Step::Renew),
        1 => (1u64..8).prop_map(Step::Advance),
        1 => (1u64..8).prop_map(Step::ClockBack),
        1 => (0usize..3).prop_map(Step::Watch),
        2 => any::<usize>().prop_map(Step::CatchUp),
    ]
}

/// What the registry is to hold, by the plainest means.
#[derive(Default)]
struct Model {
    held: BTreeMap<(usize, usize), Held>,
    elapsed_s: u64,
    registrations: u64,
}

struct Held {
    weight: u16,
    by: u64,
    deadline_s: Option<u64>,
}

struct Leased {
    lease: LocalLease,
    key: (usize, usize),
    number: u64,
    ttl_s: Option<u64>,
}

impl Model {
    fn service(&self, service: usize) -> Known {
        let of = self.held.range((service, 0)..(service + 1, 0));
        of.map(|((_, instance), held)| (format!("i{instance}"), held.weight)).collect()
    }

    fn holds(&mut self, leased: &Leased) -> Option<&mut Held> {
        self.held.get_mut(&leased.key).filter(|held| held.by == leased.number)
    }

    fn expire(&mut self) -> usize {
        let (before, now) = (self.held.len(), self.elapsed_s);
        self.held.retain(|_, held| held.deadline_s.is_none_or(|deadline| deadline > now));
        before - self.held.len()
    }
}

fn run(steps: Vec<Step>, queue: usize) {
    let clock = Arc::new(VirtualClock::new());
    clock.set(Duration::from_secs(1000));
    let mut clock_s = 1000;
    let limits = CatalogLimits { watch_queue_events: queue, ..CatalogLimits::default() };
    let registry = LocalRegistry::with_clock(limits, clock.clone());
    let (mut model, mut leases, mut followers) = (Model::default(), Vec::<Leased>::new(), Vec::new());
    let mut lookup = registry.catalog().lookup();
    registry.expire_due();
    for step in steps {
        match step {
            Step::Register { service, instance, weight, ttl_s } => {
                let e = endpoint(service, instance, weight);
                let lease = match ttl_s {
                    Some(ttl) => registry.register_with_ttl(e, Duration::from_secs(ttl)).unwrap(),
                    None => registry.register(e).unwrap(),
                };
                model.registrations += 1;
                let (key, number) = ((service, instance), model.registrations);
                let deadline_s = ttl_s.map(|ttl| model.elapsed_s + ttl);
                model.held.insert(key, Held { weight, by: number, deadline_s });
                leases.push(Leased { lease, key, number, ttl_s });
            }
            Step::Drop(at) if !leases.is_empty() => {
                let leased = leases.swap_remove(at % leases.len());
                let held = model.holds(&leased).is_some();
                if held {
                    model.held.remove(&leased.key);
                }
                assert_eq!(leased.lease.deregister().is_ok(), held);
            }
            Step::Renew(at) if !leases.is_empty() => {
                let (at, now) = (at % leases.len(), model.elapsed_s);
                let (leased, ttl_s) = (&leases[at], leases[at].ttl_s);
                let held = model.holds(leased);
                assert_eq!(leased.lease.renew().is_ok(), held.is_some());
                if let Some(held) = held {
                    held.deadline_s = ttl_s.map(|ttl| now + ttl);
                }
            }
            Step::Advance(by) => {
                clock_s += by;
                clock.set(Duration::from_secs(clock_s));
                model.elapsed_s += by;
                assert_eq!(registry.expire_due(), model.expire());
            }
            Step::ClockBack(by) => {
                clock_s -= by;
                clock.set(Duration::from_secs(clock_s));
                assert_eq!(registry.expire_due(), 0);
            }
            Step::Watch(service) => {
                followers.push((service, Follower::new(registry.watch(&format!("s{service}")).unwrap())));
            }
            Step::CatchUp(at) if !followers.is_empty() => {
                let at = at % followers.len();
                let (service, follower) = &mut followers[at];
                follower.catch_up();
                assert_eq!(follower.known, model.service(*service));
            }
            _ => {}
        }
        for service in 0..3 {
            let name = format!("s{service}");
            assert_eq!(known(lookup.snapshot(&name)), model.service(service));
            assert_eq!(known(&registry.discover(&name)), model.service(service));
        }
    }
    for (service, follower) in &mut followers {
        follower.catch_up();
        assert_eq!(follower.known, model.service(*service));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn the_registry_is_a_map_with_leases(steps in prop::collection::vec(step(), 1..250)) {
        run(steps, 1024);
    }

    #[test]
    fn slow_watchers_still_rebuild_the_map(steps in prop::collection::vec(step(), 1..250), queue in 1usize..6) {
        run(steps, queue);
    }
}

#[test]
fn watchers_of_a_service_changed_by_many_threads_rebuild_it() {
    const WRITERS: usize = 4;
    const ROUNDS: usize = 2_000;
    for queue in [1 << 20, 16] {
        let limits = CatalogLimits { watch_queue_events: queue, ..CatalogLimits::default() };
        let registry = LocalRegistry::with_limits(limits);
        let mut follower = Follower::new(registry.watch("s0").unwrap());
        let running = AtomicUsize::new(WRITERS);
        let kept = std::thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    let (registry, running) = (&registry, &running);
                    scope.spawn(move || {
                        let mut leases = Vec::new();
                        for round in 0..ROUNDS {
                            // Half of the instances are fought over by all writers.
                            let own = if round % 2 == 0 { 0 } else { 1 + writer };
                            let instance = own * 1000 + round % 37;
                            let weight = (round % 5) as u16;
                            leases.push(registry.register(endpoint(0, instance, weight)).unwrap());
                            if leases.len() > 20 {
                                drop(leases.swap_remove(round % 20));
                            }
                        }
                        running.fetch_sub(1, Ordering::Release);
                        leases
                    })
                })
                .collect();
            let mut reader = registry.key("s0").unwrap().reader();
            let mut last = 0;
            while running.load(Ordering::Acquire) > 0 {
                follower.catch_up();
                let snapshot = reader.snapshot();
                assert!(snapshot.version() >= last, "a snapshot went back");
                last = snapshot.version();
                let weights: u64 = snapshot.iter().map(|e| u64::from(e.weight())).sum();
                assert_eq!(snapshot.total_weight(), weights);
            }
            writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
        });
        follower.catch_up();
        assert_eq!(follower.known, known(&registry.discover("s0")));
        assert!(queue < 1024 || follower.resets == 1, "a watcher with room sees every change");
        drop(kept);
        follower.catch_up();
        assert!(follower.known.is_empty() && registry.discover("s0").is_empty());
    }
}

#[test]
fn services_come_and_go_under_threads_without_losing_an_endpoint() {
    const THREADS: usize = 4;
    let registry = LocalRegistry::with_limits(CatalogLimits { services_max: 64, ..Default::default() });
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let registry = &registry;
            scope.spawn(move || {
                let mut lookup = registry.catalog().lookup();
                for round in 0..3_000 {
                    let service = 1000 * (thread + 1) + round % 500;
                    let shared = round % 5;
                    let _own = registry.register(endpoint(service, 0, 1)).unwrap();
                    let _shared = registry.register(endpoint(shared, thread, 1)).unwrap();
                    let name = format!("s{shared}");
                    let instance = format!("i{thread}");
                    let found = lookup.snapshot(&name).iter().any(|e| **e.instance() == *instance);
                    assert!(found, "an endpoint that is registered is found");
                    assert_eq!(lookup.snapshot(&format!("s{service}")).len(), 1);
                }
            });
        }
    });
    assert!(registry.catalog().services().is_empty());
}
