use super::*;
use crate::Endpoint;

fn named(names: &[&str]) -> Snapshot {
    Snapshot::new("s", names.iter().map(|name| Arc::new(Endpoint::new("s", *name, "h:1").unwrap())))
}

fn at(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn detector(endpoints: &Snapshot, percent: u8) -> OutlierDetector {
    let config = OutlierConfig {
        consecutive_failures: 3,
        ejection_base: at(10),
        ejection_max: at(60),
        ejected_max_percent: percent,
    };
    let mut outliers = OutlierDetector::new(config);
    outliers.healthy(endpoints, at(0));
    outliers
}

fn fail(outliers: &mut OutlierDetector, instance: &str, times: usize, now: Duration) -> bool {
    (0..times).any(|_| outliers.failed(instance, now, now))
}

fn in_use(outliers: &mut OutlierDetector, endpoints: &Snapshot, now: Duration) -> Vec<String> {
    outliers.healthy(endpoints, now).iter().map(|e| e.instance().to_string()).collect()
}

#[test]
fn only_failures_in_a_row_take_an_endpoint_out() {
    let endpoints = named(&["a", "b", "c", "d"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(!fail(&mut outliers, "a", 2, at(1)));
    outliers.succeeded("a", at(1), at(1));
    assert!(!fail(&mut outliers, "a", 2, at(1)));
    assert!(outliers.failed("a", at(1), at(1)));
    assert_eq!(in_use(&mut outliers, &endpoints, at(1)), ["b", "c", "d"]);
    assert_eq!((outliers.next_return(), outliers.ejected()), (Some(at(11)), 1));
}

#[test]
fn the_time_out_grows_to_its_limit_and_a_trial_fails_at_once() {
    let endpoints = named(&["a", "b"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(0)));
    let mut now = at(0);
    for seconds in [10, 20, 40, 60, 60] {
        assert_eq!(in_use(&mut outliers, &endpoints, now + at(seconds) - Duration::from_nanos(1)), ["b"]);
        now += at(seconds);
        assert_eq!(in_use(&mut outliers, &endpoints, now), ["a", "b"]);
        assert!(outliers.failed("a", now, now), "one failure is enough on trial");
    }
}

#[test]
fn a_good_trial_clears_and_good_time_is_forgiving() {
    let endpoints = named(&["a", "b"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(0)));
    outliers.healthy(&endpoints, at(10));
    outliers.succeeded("a", at(10), at(10));
    assert!(!fail(&mut outliers, "a", 2, at(11)), "cleared: it takes three again");
    outliers.succeeded("a", at(25), at(25));
    assert!(fail(&mut outliers, "a", 3, at(26)));
    assert_eq!(outliers.next_return(), Some(at(36)), "15 good seconds forgot the first time out");
}

#[test]
fn what_was_begun_before_the_trial_decides_nothing() {
    let endpoints = named(&["a", "b"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(1)));
    assert_eq!(in_use(&mut outliers, &endpoints, at(11)), ["a", "b"]);
    outliers.succeeded("a", at(0), at(12));
    outliers.succeeded("a", at(10), at(12));
    assert!(!outliers.failed("a", at(10), at(12)), "an old failure does not end the trial either");
    assert!(outliers.failed("a", at(11), at(12)), "an old success has not cleared it");
    assert_eq!(outliers.next_return(), Some(at(32)));
    assert_eq!(in_use(&mut outliers, &endpoints, at(32)), ["a", "b"]);
    outliers.succeeded("a", at(32), at(33));
    assert!(!fail(&mut outliers, "a", 2, at(34)), "cleared: it takes three again");
}

#[test]
fn no_more_than_the_limit_are_out_and_never_the_last() {
    let endpoints = named(&["a", "b", "c", "d", "e"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(0)));
    assert!(fail(&mut outliers, "b", 3, at(1)));
    assert!(!fail(&mut outliers, "c", 100, at(1)), "two of five are half");
    assert_eq!(in_use(&mut outliers, &endpoints, at(1)), ["c", "d", "e"]);
    assert_eq!(in_use(&mut outliers, &endpoints, at(10)), ["a", "c", "d", "e"]);
    assert!(outliers.failed("c", at(10), at(10)), "there is room again");

    let mut outliers = detector(&endpoints, 100);
    let out = ["a", "b", "c", "d", "e"].iter().filter(|name| fail(&mut outliers, name, 9, at(0))).count();
    assert_eq!(out, 4);
    let one = named(&["a"]);
    assert!(!fail(&mut detector(&one, 100), "a", 100, at(0)));
    let two = named(&["a", "b"]);
    assert!(fail(&mut detector(&two, 10), "a", 3, at(0)), "one of several may always be out");
    assert!(!fail(&mut detector(&two, 0), "a", 100, at(0)), "unless none may");
}

#[test]
fn what_is_known_survives_a_change_of_the_endpoints() {
    let endpoints = named(&["a", "b", "c", "d"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(0)));
    assert!(fail(&mut outliers, "b", 3, at(1)));
    let grown = named(&["d", "b", "e", "a", "c"]);
    assert_eq!(in_use(&mut outliers, &grown, at(2)), ["d", "e", "c"]);
    let shrunk = named(&["b", "a"]);
    assert_eq!(in_use(&mut outliers, &shrunk, at(3)), ["a"], "over the limit, the one due first is let in");
    assert!(!outliers.failed("gone", at(3), at(3)));
    outliers.succeeded("gone", at(3), at(3));
    assert!(in_use(&mut outliers, &named(&[]), at(4)).is_empty());
    assert_eq!(outliers.ejected(), 0);
}

#[test]
fn the_snapshot_in_use_is_the_same_until_something_changes() {
    let endpoints = named(&["a", "b", "c"]);
    let mut outliers = detector(&endpoints, 50);
    assert_eq!(outliers.healthy(&endpoints, at(0)).id(), endpoints.id());
    assert!(fail(&mut outliers, "a", 3, at(0)));
    let first = outliers.healthy(&endpoints, at(1)).id();
    assert_ne!(first, endpoints.id());
    assert_eq!(outliers.healthy(&endpoints, at(2)).id(), first);
    assert_eq!(outliers.healthy(&endpoints, at(10)).id(), endpoints.id());
}

#[test]
fn time_that_goes_back_does_no_harm() {
    let endpoints = named(&["a", "b"]);
    let mut outliers = detector(&endpoints, 50);
    assert!(fail(&mut outliers, "a", 3, at(100)));
    assert_eq!(in_use(&mut outliers, &endpoints, at(0)), ["b"]);
    outliers.healthy(&endpoints, at(110));
    outliers.succeeded("a", at(5), at(5));
    outliers.succeeded("a", at(0), at(0));
    assert_eq!(in_use(&mut outliers, &endpoints, at(0)), ["a", "b"]);
}
