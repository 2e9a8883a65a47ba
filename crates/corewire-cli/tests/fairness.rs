//! `corewire bench fairness` as a user runs it: what it reports is checked, speed is not. By itself, since its clients take
//! all of the processors.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use common::bench;

/// Whether the polite client was served in time is for the benchmark to say, not for a test.
#[test]
fn fairness_says_what_greedy_clients_did_and_what_a_polite_one_had_to_wait() {
    let few = ["fairness", "--driver", "both", "--connections", "2", "--size", "28", "--protocol"];
    let protocols = ["echo", "srmp", "rpc", "stream", "udp", "kcp", "never-reads", "one-byte"];
    let rows = bench("fairness", &[&few[..], &[&protocols.join(",")]].concat());
    for protocol in protocols {
        let of_it: Vec<_> =
            rows.iter().filter(|row| row["workload"] == format!("fairness/{protocol}")).collect();
        let drivers: Vec<_> = of_it.iter().map(|row| row["driver"].as_str().unwrap()).collect();
        let has_baseline = ["echo", "srmp", "udp"].contains(&protocol);
        assert_eq!(drivers.contains(&"baseline"), has_baseline, "{protocol}: {drivers:?}");
        assert!(drivers.contains(&"uring") && drivers.contains(&"epoll"), "{protocol}: {drivers:?}");
        for row in of_it {
            assert_eq!((&row["connections"], &row["polite_due"]), (&2.into(), &100.into()), "{row}");
            assert!(row["polite_answered"].as_u64().unwrap() <= 100, "{row}");
            let us = |key: &str| row[key].as_f64().unwrap();
            let order = ["polite_p50_us", "polite_p99_us", "polite_p999_us", "polite_max_us"].map(us);
            assert!(order.is_sorted() && order[0] > 0.0, "{row}");
            assert!(row["is_target_met"].is_boolean(), "{row}");
            assert_eq!(row["greedy_msgs_per_s"].is_null(), ["never-reads", "one-byte"].contains(&protocol));
        }
    }
}
