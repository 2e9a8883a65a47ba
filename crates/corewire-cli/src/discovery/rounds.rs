//! Rounds of registering, discovering and deregistering.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Instant;

use corewire_rpc::discover::registry::{
    Endpoint, LocalRegistry, RegisterOptions, Registry, RegistryError, ServiceKey,
};

use super::{DiscoveryRow, Pace, REPORT_B3};
use crate::failure::Failure;
use crate::heap;
use crate::percentiles::{Latency, latency};
use crate::system::thread_cpu_ns;

/// Rounds that a worker does before the next one on its thread has its turn.
const TURN: usize = 64;

struct Worker {
    registry: LocalRegistry,
    key: ServiceKey,
    endpoint: Arc<Endpoint>,
}

/// What was done.
#[derive(Debug, Clone, Default)]
struct Counts {
    registered: u64,
    discovered: u64,
    deregistered: u64,
    errors: u64,
    heap_bytes: u64,
    cpu_ns: u64,
    seconds: f64,
}

/// In this process: by keys that are kept, by names, and with all that a new endpoint takes.
pub(super) fn here(shared: bool, pace: Pace) -> Result<Vec<DiscoveryRow>, Failure> {
    let one = LocalRegistry::new();
    let worker = |number: usize| {
        let registry = if shared { one.clone() } else { LocalRegistry::new() };
        let service = if shared { format!("service-{number}") } else { "service".to_owned() };
        let key = registry.key(&service)?;
        let endpoint = Endpoint::new(key.name().clone(), format!("instance-{number}"), "10.0.0.1:7000")?;
        Ok(Worker { registry, key, endpoint: Arc::new(endpoint) })
    };
    let workers = (0..pace.workers).map(worker).collect::<Result<Vec<_>, RegistryError>>();
    let workers = workers.map_err(|error| Failure::Library(error.to_string()))?;
    let place = if shared { "one shared registry" } else { "own registries" };
    Ok(vec![
        measure(&format!("{place}, keys kept"), pace, &workers, by_key),
        measure(&format!("{place}, by name"), pace, &workers, by_name),
        measure(&format!("{place}, a new endpoint each time"), pace, &workers, with_new_endpoint),
    ])
}

fn measure(
    name: &str,
    pace: Pace,
    workers: &[Worker],
    round: fn(&Worker, &mut Counts) -> Result<(), RegistryError>,
) -> DiscoveryRow {
    let start = &Barrier::new(pace.threads);
    let counts = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..pace.threads)
            .map(|thread| {
                scope.spawn(move || {
                    let mut counts = Counts::default();
                    let mine = || workers.iter().skip(thread).step_by(pace.threads);
                    // What is made once is not counted.
                    mine().for_each(|worker| drop(round(worker, &mut counts)));
                    counts = Counts::default();
                    start.wait();
                    let (heap_before, cpu_before) = (heap::of_this_thread(), thread_cpu_ns());
                    let began = Instant::now();
                    while began.elapsed() < pace.time && mine().next().is_some() {
                        for worker in mine() {
                            for _ in 0..TURN {
                                counts.errors += u64::from(round(worker, &mut counts).is_err());
                            }
                        }
                    }
                    counts.seconds = began.elapsed().as_secs_f64();
                    counts.cpu_ns = thread_cpu_ns() - cpu_before;
                    counts.heap_bytes = heap::of_this_thread() - heap_before;
                    counts
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>()
    });
    let seconds = counts.iter().map(|counts| counts.seconds).fold(0.0, f64::max);
    row(name, pace, pace.threads, seconds, &counts)
}

fn row(name: &str, pace: Pace, threads: usize, seconds: f64, counts: &[Counts]) -> DiscoveryRow {
    let sum = |of: fn(&Counts) -> u64| counts.iter().map(of).sum::<u64>();
    let (registered, discovered) = (sum(|c| c.registered), sum(|c| c.discovered));
    let deregistered = sum(|c| c.deregistered);
    let operations = (registered + discovered + deregistered) as f64;
    DiscoveryRow {
        workload: name.to_owned(),
        workers: pace.workers,
        threads,
        seconds,
        ops_per_s: operations / seconds,
        registered,
        discovered,
        deregistered,
        looked_up: 0,
        errors: sum(|c| c.errors),
        heap_bytes_per_op: sum(|c| c.heap_bytes) as f64 / operations.max(1.0),
        cpu_ns_per_op: Some(sum(|c| c.cpu_ns) as f64 / operations.max(1.0)).filter(|ns| *ns > 0.0),
        first_call_ms: None,
        heap_bytes_per_endpoint: None,
        p50_ns: None,
        p99_ns: None,
        report_ops_per_s: Some(REPORT_B3),
    }
}

fn by_key(worker: &Worker, counts: &mut Counts) -> Result<(), RegistryError> {
    let lease = worker.registry.register_in(&worker.key, worker.endpoint.clone())?;
    counts.registered += 1;
    counts.discovered += u64::from(!black_box(worker.key.snapshot()).is_empty());
    lease.deregister()?;
    counts.deregistered += 1;
    Ok(())
}

fn by_name(worker: &Worker, counts: &mut Counts) -> Result<(), RegistryError> {
    let known = &worker.endpoint;
    let (service, instance) = (known.service(), known.instance());
    let lease = worker.registry.register_named(service, instance, "10.0.0.1:7000")?;
    counts.registered += 1;
    counts.discovered += u64::from(!black_box(worker.registry.discover(service)).is_empty());
    lease.deregister()?;
    counts.deregistered += 1;
    Ok(())
}

fn with_new_endpoint(worker: &Worker, counts: &mut Counts) -> Result<(), RegistryError> {
    let known = &worker.endpoint;
    let endpoint = Endpoint::new(&**known.service(), &**known.instance(), "10.0.0.1:7000")?;
    let lease = worker.registry.register(endpoint)?;
    counts.registered += 1;
    counts.discovered += u64::from(!black_box(worker.registry.discover(known.service())).is_empty());
    lease.deregister()?;
    counts.deregistered += 1;
    Ok(())
}

/// In a registry elsewhere: each worker is a thread that waits for its answers.
pub(super) fn elsewhere(address: &str, pace: Pace) -> Result<DiscoveryRow, Failure> {
    let registry = crate::registry::open(address)?;
    let began = Instant::now();
    let end = began + pace.time;
    // One that fails is likely to fail for all: none goes on for the whole time with errors alone.
    let is_broken = AtomicBool::new(false);
    let done: Vec<(Counts, Latency)> = std::thread::scope(|scope| {
        let (registry, is_broken) = (&*registry, &is_broken);
        let threads: Vec<_> = (0..pace.workers)
            .map(|number| {
                scope.spawn(move || {
                    let (mut counts, mut latencies) = (Counts::default(), latency());
                    while Instant::now() < end && !is_broken.load(Ordering::Relaxed) {
                        let round = Instant::now();
                        if let Err(error) = round_elsewhere(registry, number, &mut counts) {
                            counts.errors += 1;
                            if !is_broken.swap(true, Ordering::Relaxed) {
                                eprintln!("corewire: {error}");
                            }
                        }
                        latencies.saturating_record(round.elapsed().as_nanos() as u64);
                    }
                    (counts, latencies)
                })
            })
            .collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    });
    let seconds = began.elapsed().as_secs_f64();
    let (counts, latencies): (Vec<Counts>, Vec<Latency>) = done.into_iter().unzip();
    let mut all = latency();
    for one in &latencies {
        all.add(one).map_err(|error| Failure::Library(error.to_string()))?;
    }
    let mut row = row(&format!("{address}, round trips"), pace, pace.workers, seconds, &counts);
    (row.p50_ns, row.p99_ns) = (Some(all.value_at_quantile(0.5)), Some(all.value_at_quantile(0.99)));
    row.report_ops_per_s = None;
    Ok(row)
}

fn round_elsewhere(registry: &dyn Registry, number: usize, counts: &mut Counts) -> Result<(), RegistryError> {
    let (service, instance) = (format!("bench-{number}"), format!("instance-{number}"));
    let endpoint = Arc::new(Endpoint::new(service.clone(), instance, "10.0.0.1:7000")?);
    let lease = corewire::block_on(registry.register(endpoint, RegisterOptions::new()))?;
    counts.registered += 1;
    corewire::block_on(registry.discover(&service))?;
    counts.discovered += 1;
    corewire::block_on(lease.deregister())?;
    counts.deregistered += 1;
    Ok(())
}
