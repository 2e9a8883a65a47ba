//! Speed of the local registry.
//!
//! `cargo run --release -p corewire-discovery --example discovery_bench -- [MODE]… [--threads N] [--seconds S]`
//!
//! Modes, all of them when none is given:
//! - `own`: register, discover and deregister, each of 100 workers on a registry of its own; keys kept
//! - `own-by-name`: the same, every step by the service's name, a new endpoint each time
//! - `shared`: as `own`, all workers on one registry, each with a service of its own
//! - `shared-service`: all workers on one service of one registry
//! - `lookup`: look-up and pick among 1,000 services of 10 endpoints while another thread makes 1,000 changes/s

use corewire_discovery::{Endpoint, LocalRegistry, ServiceKey};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const WORKERS: usize = 100;
/// Rounds a worker does before the next one on its thread has its turn.
const TURN: usize = 64;

fn main() {
    let mut modes = Vec::new();
    let (mut threads, mut seconds) = (2, 1.0);
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--threads" => threads = args.next().and_then(|n| n.parse().ok()).expect("--threads N"),
            "--seconds" => seconds = args.next().and_then(|s| s.parse().ok()).expect("--seconds S"),
            _ => modes.push(arg),
        }
    }
    if modes.is_empty() {
        modes = ["own", "own-by-name", "shared", "shared-service", "lookup"].map(String::from).into();
    }
    let time = Duration::from_secs_f64(seconds);
    for mode in modes {
        let (operations, unit) = match mode.as_str() {
            "own" => (rounds(threads, time, &worker_registries(), by_key) * 3, "op"),
            "own-by-name" => (rounds(threads, time, &worker_registries(), by_name) * 3, "op"),
            "shared" => (rounds(threads, time, &one_registry(|n| format!("service-{n}")), by_key) * 3, "op"),
            "shared-service" => {
                (rounds(threads, time, &one_registry(|_| "service".into()), by_key) * 3, "op")
            }
            "lookup" => (lookups(threads, time, false), "look-up"),
            other => panic!("there is no mode {other}"),
        };
        let rate = operations as f64 / seconds;
        println!("{mode:15} {threads} threads {:8.2} M {unit}/s", rate / 1e6);
        if mode == "lookup" {
            println!(
                "{mode:15} {threads} threads p99 {:5} ns, with the reading of the clock",
                lookups(threads, time, true)
            );
        }
    }
}

struct Worker {
    registry: LocalRegistry,
    key: ServiceKey,
    endpoint: Arc<Endpoint>,
}

fn worker(registry: LocalRegistry, service: &str, number: usize) -> Worker {
    let key = registry.key(service).expect("a valid name");
    let endpoint = Endpoint::new(key.name().clone(), format!("instance-{number}"), "10.0.0.1:7000");
    Worker { registry, key, endpoint: Arc::new(endpoint.expect("a valid endpoint")) }
}

fn worker_registries() -> Vec<Worker> {
    (0..WORKERS).map(|number| worker(LocalRegistry::new(), "service", number)).collect()
}

fn one_registry(service: impl Fn(usize) -> String) -> Vec<Worker> {
    let registry = LocalRegistry::new();
    (0..WORKERS).map(|number| worker(registry.clone(), &service(number), number)).collect()
}

fn by_key(worker: &Worker) {
    let lease = worker.registry.register_in(&worker.key, worker.endpoint.clone()).expect("there is room");
    assert!(!black_box(worker.key.snapshot()).is_empty());
    lease.deregister().expect("the lease is held");
}

fn by_name(worker: &Worker) {
    let endpoint = Endpoint::new("service", "instance", "10.0.0.1:7000").expect("a valid endpoint");
    let lease = worker.registry.register(endpoint).expect("there is room");
    assert!(!black_box(worker.registry.discover("service")).is_empty());
    lease.deregister().expect("the lease is held");
}

/// Rounds done by all workers within the time.
fn rounds(threads: usize, time: Duration, workers: &[Worker], round: fn(&Worker)) -> u64 {
    let end = Instant::now() + time;
    std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut done = 0;
                    while Instant::now() < end {
                        for worker in workers.iter().skip(thread).step_by(threads) {
                            (0..TURN).for_each(|_| round(worker));
                            done += TURN as u64;
                        }
                    }
                    done
                })
            })
            .collect();
        running.into_iter().map(|thread| thread.join().expect("no panic")).sum()
    })
}

/// Look-ups done within the time, or the 99th percentile of their latency in nanoseconds.
fn lookups(threads: usize, time: Duration, latency: bool) -> u64 {
    const SERVICES: usize = 1_000;
    const ENDPOINTS: usize = 10;
    let registry = LocalRegistry::new();
    let name = |service: usize| format!("service-{service}");
    let endpoint = |service: usize, instance: usize, weight: u16| {
        let endpoint = Endpoint::new(name(service), format!("instance-{instance}"), "10.0.0.1:7000");
        endpoint.expect("a valid endpoint").with_weight(weight)
    };
    let mut leases: Vec<_> = (0..SERVICES * ENDPOINTS)
        .map(|n| registry.register(endpoint(n / ENDPOINTS, n % ENDPOINTS, 1)).expect("there is room"))
        .collect();
    let (names, stop): (Vec<_>, _) = ((0..SERVICES).map(name).collect(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let (registry, names, stop) = (&registry, &names, &stop);
        scope.spawn(move || {
            let mut changes = 0;
            while !stop.load(Ordering::Relaxed) {
                let n = changes * 7919 % leases.len();
                let changed = endpoint(n / ENDPOINTS, n % ENDPOINTS, (changes % 100) as u16 + 2);
                leases[n] = registry.register(changed).expect("there is room");
                changes += 1;
                std::thread::sleep(Duration::from_micros(940));
            }
        });
        let end = Instant::now() + time;
        let readers: Vec<_> =
            (0..threads).map(|seed| scope.spawn(move || read(registry, names, seed, end, latency))).collect();
        let read: Vec<_> = readers.into_iter().map(|reader| reader.join().expect("no panic")).collect();
        let mut latencies: Vec<u64> =
            read.iter().flat_map(|(_, latencies)| latencies.iter().copied()).collect();
        latencies.sort_unstable();
        let done = match latencies.get(latencies.len() * 99 / 100) {
            Some(p99) => *p99,
            None => read.iter().map(|(done, _)| done).sum(),
        };
        stop.store(true, Ordering::Relaxed);
        done
    })
}

fn read(
    registry: &LocalRegistry,
    names: &[String],
    seed: usize,
    end: Instant,
    latency: bool,
) -> (u64, Vec<u64>) {
    let mut lookup = registry.catalog().lookup();
    let (mut random, mut done, mut latencies) = (seed as u64 + 1, 0, Vec::new());
    let mut look_up = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let snapshot = lookup.snapshot(&names[(random >> 32) as usize % names.len()]);
        let picked = (random >> 40) as usize % snapshot.len();
        black_box(snapshot.get(picked).map(|endpoint| endpoint.weight()));
    };
    while Instant::now() < end {
        for _ in 0..1024 {
            if latency {
                let start = Instant::now();
                look_up();
                latencies.push(start.elapsed().as_nanos() as u64);
            } else {
                look_up();
            }
        }
        done += 1024;
    }
    (done, latencies)
}
