//! `corewire bench` of calls, streams and datagrams, as a user runs it: what moves is checked, speed is not.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

use common::bench;
use serde_json::Value;

/// A row is valid only if both sides counted the same bytes, and as many for a message as the baseline moves.
#[test]
fn calls_of_every_mode_move_what_the_baseline_moves_on_both_drivers() {
    for driver in ["auto", "epoll"] {
        let sizes = ["rpc", "--driver", driver, "--connections", "3", "--depth", "2", "--size", "47"];
        let rows = bench(&format!("rpc-{driver}"), &sizes);
        for workload in ["rpc/unary", "rpc/client-stream", "rpc/server-stream", "rpc/bidi", "rpc2/unary"] {
            assert!(rows.iter().any(|row| row["workload"] == workload), "{workload}");
        }
        for row in &rows {
            assert!(row["baseline_msgs_per_s"].as_f64().unwrap() > 0.0);
            let us = |key: &str| row[key].as_f64().unwrap();
            let order = ["p50_us", "p90_us", "p95_us", "p99_us", "p999_us", "max_us"].map(us);
            assert!(order.is_sorted() && us("mean_us") > 0.0, "{row}");
        }
    }
}

#[test]
fn streams_move_what_the_baseline_moves_on_both_drivers() {
    for (driver, depth) in [("auto", "1"), ("epoll", "16")] {
        let depths = ["stream", "--driver", driver, "--connections", "1", "--depth", depth];
        let rows = bench(&format!("stream-{driver}"), &depths);
        let is_of_many = |row: &&Value| row["workload"].as_str().unwrap().ends_with("/many");
        assert_eq!((rows.len(), rows.iter().filter(is_of_many).count()), (4, 2), "{rows:?}");
        for row in rows.iter().filter(|row| !is_of_many(row)) {
            let (frame, stream) = (&row["mean_us"], &row["stream_latency"]["mean_us"]);
            let times = stream.as_f64().unwrap() / frame.as_f64().unwrap();
            // With one frame on its way at a time, all of them are timed and a stream takes 16 times as long.
            assert!(if row["depth"] == 1 { times > 8.0 } else { times > 0.0 }, "{row}");
            assert!(row["stream_p99_by_mean"].as_f64().unwrap() > 0.9, "{row}");
        }
    }
}

/// Valid only if no datagram was lost, one way neither.
#[test]
fn datagrams_all_arrive_both_ways_and_one_way_on_both_drivers() {
    for driver in ["auto", "epoll"] {
        let few =
            ["udp", "--driver", driver, "--connections", "2", "--size", "32,1024", "--reference", "report"];
        let rows = bench(&format!("udp-{driver}"), &few);
        for workload in ["udp/echo/plain", "udp/echo", "udp/send/plain", "udp/send"] {
            let of_it: Vec<_> = rows.iter().filter(|row| row["workload"] == workload).collect();
            assert_eq!(of_it.len(), 2, "{workload}");
            assert!(of_it.iter().all(|row| row["msgs_per_s"].as_f64().unwrap() > 0.0
                && row["baseline_msgs_per_s"].as_f64().unwrap() > 0.0));
        }
    }
}

/// A worker that sleeps has to be woken; how often a busy one was is a figure.
#[test]
fn wake_says_what_a_push_costs_a_busy_worker_and_one_asleep() {
    let rows = bench("wake", &["wake", "--driver", "both"]);
    for driver in ["uring", "epoll"] {
        for workload in ["wake/busy", "wake/asleep"] {
            let row = rows.iter().find(|row| row["driver"] == driver && row["workload"] == workload).unwrap();
            assert!(
                row["pushes"].as_u64().unwrap() > 0 && row["ns_per_push"].as_f64().unwrap() > 0.0,
                "{row}"
            );
        }
    }
}
