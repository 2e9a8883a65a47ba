//! What is done again and again takes nothing from the heap.

use corewire_discovery::{
    Balancer, ConsistentHash, Endpoint, LeastInFlight, LocalRegistry, Random, RoundRobin, SmoothWeighted,
    TwoChoices, WeightedRandom, ZoneAware,
};
use std::hint::black_box;
use std::time::Duration;

#[test]
fn a_look_up_and_a_pick_take_no_heap_bytes_with_any_balancer() {
    let boxed = allocation_counter::measure(|| drop(black_box(Box::new(1u64))));
    assert_eq!(boxed.bytes_total, 8, "what is counted is what is taken");
    let registry = LocalRegistry::new();
    let endpoint = |n: u16| Endpoint::new("s", n.to_string(), "10.0.0.1:1").unwrap().with_weight(n % 4);
    let _leases: Vec<_> = (0..200)
        .map(|n| registry.register(endpoint(n).with_zone((n % 2).to_string()).unwrap()).unwrap())
        .collect();
    let mut lookup = registry.catalog().lookup();
    let mut reader = registry.key("s").unwrap().reader();
    let balancers: [Box<dyn Balancer>; 8] = [
        Box::new(RoundRobin::new()),
        Box::new(SmoothWeighted::new()),
        Box::new(Random::new()),
        Box::new(WeightedRandom::new()),
        Box::new(LeastInFlight::new()),
        Box::new(TwoChoices::new()),
        Box::new(ConsistentHash::new()),
        Box::new(ZoneAware::new("1", TwoChoices::new())),
    ];
    for mut balancer in balancers {
        let mut call = |key| {
            assert_eq!(reader.snapshot().id(), lookup.snapshot("s").id());
            let endpoints = lookup.snapshot("s");
            let position = balancer.pick(endpoints, Some(key)).unwrap();
            let retry = balancer.pick_avoiding(endpoints, Some(key), &[position]).unwrap();
            let flight = balancer.begin(endpoints, black_box(retry));
            flight.succeeded(Duration::from_micros(key));
        };
        call(0);
        let counted = allocation_counter::measure(|| (1..500).for_each(&mut call));
        assert_eq!((counted.count_total, counted.bytes_total), (0, 0), "{balancer:?}");
    }
}

#[test]
fn an_instance_that_comes_and_goes_takes_no_heap_bytes() {
    let registry = LocalRegistry::new();
    let round = || {
        let lease = registry.register_named("s", "a", "10.0.0.1:7000").unwrap();
        assert_eq!(registry.discover("s").len(), 1);
        lease.deregister().unwrap();
    };
    (0..4).for_each(|_| round());
    let counted = allocation_counter::measure(|| (0..100).for_each(|_| round()));
    assert_eq!((counted.count_total, counted.bytes_total), (0, 0));
}
