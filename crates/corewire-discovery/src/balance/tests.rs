use super::*;
use crate::Endpoint;
use std::sync::Arc;
use std::time::Duration;

fn endpoint(name: &str, weight: u16, zone: &str) -> Arc<Endpoint> {
    let endpoint = Endpoint::new("s", name, "h:1").unwrap().with_weight(weight);
    Arc::new(endpoint.with_zone(zone).unwrap())
}

fn weights(weights: &[u16]) -> Snapshot {
    let named = weights.iter().enumerate().map(|(n, weight)| endpoint(&n.to_string(), *weight, "z"));
    Snapshot::new("s", named)
}

/// Every balancer, with a seed.
fn all(seed: u64) -> Vec<Box<dyn Balancer>> {
    vec![
        Box::new(RoundRobin::starting_at(seed as usize)),
        Box::new(SmoothWeighted::new()),
        Box::new(Random::seeded(seed)),
        Box::new(WeightedRandom::seeded(seed)),
        Box::new(LeastInFlight::new()),
        Box::new(TwoChoices::seeded(seed)),
        Box::new(ConsistentHash::seeded(seed)),
        Box::new(ZoneAware::new("z", RoundRobin::starting_at(seed as usize))),
    ]
}

/// How often each position is picked.
fn count(balancer: &mut dyn Balancer, endpoints: &Snapshot, picks: usize) -> Vec<usize> {
    let mut counts = vec![0; endpoints.len()];
    for _ in 0..picks {
        counts[balancer.pick(endpoints, None).unwrap()] += 1;
    }
    counts
}

fn picks(balancer: &mut dyn Balancer, endpoints: &Snapshot, picks: usize) -> Vec<usize> {
    (0..picks).map(|_| balancer.pick(endpoints, None).unwrap()).collect()
}

#[test]
fn no_endpoints_no_pick() {
    for mut balancer in all(1) {
        assert_eq!(balancer.pick(&weights(&[]), None), None, "{balancer:?}");
        assert_eq!(balancer.pick_avoiding(&weights(&[]), Some(7), &[0]), None, "{balancer:?}");
        drop(balancer.begin(&weights(&[]), 3));
    }
}

#[test]
fn one_endpoint_is_always_picked_whatever_its_weight() {
    for mut balancer in all(1) {
        for weight in [0, 1, u16::MAX] {
            let one = weights(&[weight]);
            assert_eq!(count(&mut balancer, &one, 50), [50], "{balancer:?}");
            assert_eq!(balancer.pick_avoiding(&one, None, &[0]), None, "{balancer:?}");
        }
    }
}

#[test]
fn weight_zero_is_never_picked_beside_another() {
    for mut balancer in all(2) {
        let counts = count(&mut balancer, &weights(&[0, 5, 0, 0, 5, 0, 0, 0, 0, 0]), 2000);
        assert_eq!(counts.iter().sum::<usize>(), counts[1] + counts[4], "{balancer:?}");
        assert!(counts[1] > 600 && counts[4] > 600, "{balancer:?}: {counts:?}");
    }
}

#[test]
fn weight_zero_everywhere_counts_as_equal() {
    for mut balancer in all(3) {
        let counts = count(&mut balancer, &weights(&[0, 0, 0, 0]), 4000);
        assert!(counts.iter().all(|count| (600..1400).contains(count)), "{balancer:?}: {counts:?}");
    }
}

#[test]
fn a_retry_goes_elsewhere_until_there_is_nowhere() {
    for mut balancer in all(4) {
        let endpoints = weights(&[1, 2, 0, 3]);
        for key in 0..50 {
            let mut tried = Vec::new();
            while let Some(position) = balancer.pick_avoiding(&endpoints, Some(key), &tried) {
                assert!(!tried.contains(&position), "{balancer:?}");
                tried.push(position);
            }
            tried.sort_unstable();
            assert_eq!(tried, [0, 1, 3], "{balancer:?}");
        }
    }
}

#[test]
fn a_balancer_copes_with_endpoints_that_come_and_go() {
    for mut balancer in all(5) {
        let mut flights = Vec::new();
        for round in 0..200usize {
            let names =
                (0..round * 7 % 11).map(|n| endpoint(&((n * round) % 13).to_string(), (n % 3) as u16, "z"));
            let endpoints = Snapshot::new("s", names);
            for key in 0..5 {
                let picked = balancer.pick(&endpoints, Some(key));
                assert_eq!(picked.is_none(), endpoints.is_empty(), "{balancer:?}");
                if let Some(position) = picked {
                    assert!(endpoints.effective_weight(position) > 0, "{balancer:?}");
                    flights.push(balancer.begin(&endpoints, position));
                }
            }
            flights.truncate(round % 20);
        }
    }
}

#[test]
fn round_robin_takes_turns_and_goes_on_where_it_was_after_a_change() {
    let mut balancer = RoundRobin::starting_at(0);
    assert_eq!(picks(&mut balancer, &weights(&[1, 9, 1]), 5), [0, 1, 2, 0, 1]);
    assert_eq!(picks(&mut balancer, &weights(&[1, 9, 1, 1]), 3), [2, 3, 0]);
    assert_eq!(picks(&mut balancer, &weights(&[1]), 2), [0, 0]);
}

#[test]
fn smooth_weighted_is_exact_and_spread_out() {
    let mut balancer = SmoothWeighted::new();
    assert_eq!(picks(&mut balancer, &weights(&[5, 1, 1]), 7), [0, 0, 1, 0, 2, 0, 0]);
    assert_eq!(count(&mut balancer, &weights(&[u16::MAX, 1]), 65_536), [65_535, 1]);
}

#[test]
fn smooth_weighted_keeps_its_credit_across_a_change() {
    let (a, b, c) = (endpoint("a", 1, "z"), endpoint("b", 1, "z"), endpoint("c", 1, "z"));
    let mut balancer = SmoothWeighted::new();
    let first = Snapshot::new("s", [a.clone(), b.clone()]);
    assert_eq!(picks(&mut balancer, &first, 1), [0]);
    let moved = Snapshot::new("s", [c, b, a]);
    assert_eq!(
        picks(&mut balancer, &moved, 1),
        [1],
        "it was b's turn, and b is served from its new position"
    );
}

#[test]
fn random_and_weighted_random_keep_their_proportions() {
    let endpoints = weights(&[10, 20, 0, 70]);
    let counts = count(&mut WeightedRandom::seeded(6), &endpoints, 100_000);
    for (count, share) in counts.iter().zip([10_000usize, 20_000, 0, 70_000]) {
        assert!(count.abs_diff(share) <= share / 20, "{counts:?}");
    }
    let counts = count(&mut Random::seeded(6), &endpoints, 90_000);
    for (count, share) in counts.iter().zip([30_000usize, 30_000, 0, 30_000]) {
        assert!(count.abs_diff(share) <= share / 20, "{counts:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_picks() {
    let endpoints = weights(&[3, 1, 4, 1, 5, 9]);
    for (mut one, mut other) in all(7).into_iter().zip(all(7)) {
        assert_eq!(picks(&mut one, &endpoints, 200), picks(&mut other, &endpoints, 200));
    }
}

#[test]
fn least_in_flight_fills_by_weight_and_goes_where_calls_end() {
    let endpoints = weights(&[1, 3]);
    let mut balancer = LeastInFlight::new();
    let mut flights: Vec<(usize, Flight)> = Vec::new();
    for _ in 0..8 {
        let position = balancer.pick(&endpoints, None).unwrap();
        flights.push((position, balancer.begin(&endpoints, position)));
    }
    assert_eq!(flights.iter().filter(|(position, _)| *position == 0).count(), 2);
    flights.retain(|(position, _)| *position == 1);
    assert_eq!(balancer.pick(&endpoints, None), Some(0), "what has nothing in flight is next");
}

#[test]
fn in_flight_counts_follow_an_endpoint_to_its_new_position() {
    let (a, b) = (endpoint("a", 1, "z"), endpoint("b", 1, "z"));
    let mut balancer = LeastInFlight::new();
    let flight = balancer.begin(&Snapshot::new("s", [a.clone(), b.clone()]), 0);
    let turned = Snapshot::new("s", [b, a]);
    assert_eq!(picks(&mut balancer, &turned, 3), [0, 0, 0]);
    drop(flight);
    assert_ne!(picks(&mut balancer, &turned, 2), [0, 0]);
}

/// Picks with feedback: each endpoint answers after its own latency at once.
fn with_latencies(
    balancer: &mut TwoChoices,
    endpoints: &Snapshot,
    micros: &[u64],
    picks: usize,
) -> Vec<usize> {
    let mut counts = vec![0; endpoints.len()];
    for _ in 0..picks {
        let position = balancer.pick(endpoints, None).unwrap();
        counts[position] += 1;
        balancer.begin(endpoints, position).succeeded(Duration::from_micros(micros[position]));
    }
    counts
}

#[test]
fn two_choices_prefers_the_fast_and_still_tries_the_slow() {
    let endpoints = weights(&[1; 5]);
    let mut balancer = TwoChoices::seeded(8);
    let counts = with_latencies(&mut balancer, &endpoints, &[100, 100, 100, 100, 10_000], 20_000);
    assert!(counts[4] > 0, "{counts:?}");
    assert!(counts[4] * 10 < counts[0], "{counts:?}");
    let recovered = with_latencies(&mut balancer, &endpoints, &[100; 5], 20_000);
    assert!(recovered[4] * 2 > recovered[0], "an endpoint that is fast again gets its share: {recovered:?}");
}

#[test]
fn two_choices_leaves_an_endpoint_that_fails_at_once() {
    let endpoints = weights(&[1; 4]);
    let mut balancer = TwoChoices::seeded(9);
    let mut counts = [0; 4];
    for _ in 0..10_000 {
        let position = balancer.pick(&endpoints, None).unwrap();
        counts[position] += 1;
        let flight = balancer.begin(&endpoints, position);
        match position {
            0 => flight.failed(Duration::from_micros(1)),
            _ => flight.succeeded(Duration::from_micros(500)),
        }
    }
    assert!(counts[0] * 10 < counts[1], "{counts:?}");
}

#[test]
fn two_choices_goes_by_calls_in_flight() {
    let endpoints = weights(&[1; 2]);
    let mut balancer = TwoChoices::seeded(10);
    let _hanging: Vec<_> = (0..50).map(|_| balancer.begin(&endpoints, 0)).collect();
    let counts = count(&mut balancer, &endpoints, 2_000);
    assert!(counts[0] < 30, "{counts:?}");
}

#[test]
fn consistent_hash_keeps_keys_and_moves_only_the_share_of_who_left() {
    let named = |count: usize| Snapshot::new("s", (0..count).map(|n| endpoint(&n.to_string(), 7, "z")));
    let (ten, nine) = (named(10), named(9));
    let mut balancer = ConsistentHash::seeded(1);
    let by_ten: Vec<_> = (0..10_000).map(|key| balancer.pick(&ten, Some(key)).unwrap()).collect();
    let again: Vec<_> = (0..10_000).map(|key| balancer.pick(&ten, Some(key)).unwrap()).collect();
    assert_eq!(by_ten, again);
    let by_nine: Vec<_> =
        (0..10_000).map(|key| ConsistentHash::pick(&mut balancer, &nine, Some(key)).unwrap()).collect();
    let moved =
        by_ten.iter().zip(&by_nine).filter(|(before, after)| **before != 9 && before != after).count();
    assert_eq!(moved, 0, "keys of endpoints that stayed do not move");
    let mut counts = [0usize; 10];
    by_ten.iter().for_each(|position| counts[*position] += 1);
    assert!(counts.iter().all(|count| (700..1300).contains(count)), "{counts:?}");
    let mut turned = ConsistentHash::seeded(99);
    let reversed = Snapshot::new("s", (0..10).rev().map(|n| endpoint(&n.to_string(), 7, "z")));
    let same = (0..1000).all(|key| 9 - turned.pick(&reversed, Some(key)).unwrap() == by_ten[key as usize]);
    assert!(same, "the choice depends on ids, not on positions or seeds");
}

#[test]
fn consistent_hash_shares_keys_by_weight() {
    let endpoints = weights(&[100, 300, 0]);
    let mut balancer = ConsistentHash::seeded(1);
    let mine = (0..10_000).filter(|key| balancer.pick(&endpoints, Some(*key)) == Some(0)).count();
    assert!((1800..3200).contains(&mine), "{mine}");
}

#[test]
fn consistent_hash_bounds_the_load_of_a_hot_key() {
    let endpoints = weights(&[1; 4]);
    let mut balancer = ConsistentHash::seeded(1);
    let mut counts = [0usize; 4];
    let _flights: Vec<_> = (0..1000)
        .map(|_| {
            let position = balancer.pick(&endpoints, Some(42)).unwrap();
            counts[position] += 1;
            balancer.begin(&endpoints, position)
        })
        .collect();
    assert!(counts.iter().all(|count| *count <= 313), "{counts:?}");
    assert_eq!(counts.iter().filter(|count| **count > 300).count(), 3, "{counts:?}");
}

#[test]
fn a_zone_is_preferred_while_it_has_enough_that_take_work() {
    let zones = |a: u16| {
        Snapshot::new(
            "s",
            [endpoint("0", 1, "b"), endpoint("1", a, "a"), endpoint("2", 1, "b"), endpoint("3", a, "a")],
        )
    };
    let mut balancer = ZoneAware::new("a", RoundRobin::starting_at(0));
    assert_eq!(picks(&mut balancer, &zones(1), 4), [1, 3, 1, 3]);
    assert_eq!(count(&mut balancer, &zones(0), 10), [5, 0, 5, 0], "a zone of weight 0 is no zone");
    let mut wants_three = ZoneAware::new("a", RoundRobin::starting_at(0)).with_local_min(3);
    assert_eq!(count(&mut wants_three, &zones(1), 8), [2, 2, 2, 2]);
    let mut elsewhere = ZoneAware::new("c", RoundRobin::starting_at(0));
    assert_eq!(count(&mut elsewhere, &zones(1), 8), [2, 2, 2, 2]);
}

#[test]
fn a_zone_passes_feedback_on_to_the_balancer_within() {
    let endpoints = Snapshot::new("s", [endpoint("0", 1, "b"), endpoint("1", 1, "a"), endpoint("2", 1, "a")]);
    let mut balancer = ZoneAware::new("a", LeastInFlight::new());
    let _flight = balancer.begin(&endpoints, 2);
    assert_eq!(picks(&mut balancer, &endpoints, 3), [1, 1, 1]);
    assert_eq!(balancer.pick_avoiding(&endpoints, None, &[1]), Some(2));
    assert_eq!(balancer.pick_avoiding(&endpoints, None, &[1, 2]), Some(0), "at last another zone");
}
