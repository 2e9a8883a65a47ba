//! How soon a registry elsewhere tells what it knows, and what has changed.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use corewire_rpc::discover::registry::{Change, Endpoint, Lease, RegisterOptions, Registry, RegistryError};

use super::{DiscoveryRow, Pace};
use crate::failure::Failure;
use crate::percentiles::{Latency, latency};

/// Threads that register endpoints at the same time.
const REGISTERING: usize = 50;
/// Changes that watchers are told of, one after the other.
const CHANGES: u16 = 50;
/// How long a watcher waits for a change.
const PATIENCE: Duration = Duration::from_secs(10);

/// Registers so many endpoints, and lists them from a connection of its own.
pub(super) fn listed(address: &str, endpoints: usize, pace: Pace) -> Result<DiscoveryRow, Failure> {
    let service = format!("bench-list-{}", std::process::id());
    let registry = crate::registry::open(address)?;
    let began = Instant::now();
    let leases = register(&*registry, &service, endpoints).map_err(refused)?;
    let registered_in = began.elapsed();
    let began = Instant::now();
    let fresh = crate::registry::open(address)?;
    let mut found = 0;
    // What was registered last may be on its way still.
    while found < endpoints && began.elapsed() < PATIENCE {
        found = corewire::block_on(fresh.discover(&service)).map_err(refused)?.len();
    }
    let listed_in = began.elapsed();
    let mut leases = leases;
    let last = leases.pop();
    drop(leases);
    // When the last one is out the others are, too.
    if let Some(last) = last {
        corewire::block_on(last.deregister()).map_err(refused)?;
    }
    eprintln!("{endpoints} endpoints registered in {:.2} s", registered_in.as_secs_f64());
    let took = listed_in.as_nanos() as u64;
    let mut row = row(format!("{endpoints} endpoints listed"), pace, 1, listed_in.as_secs_f64());
    row.discovered = found as u64;
    row.ops_per_s = found as f64 / row.seconds;
    row.errors = (endpoints - found) as u64;
    (row.p50_ns, row.p99_ns) = (Some(took), Some(took));
    Ok(row)
}

fn refused(error: RegistryError) -> Failure {
    Failure::Library(error.to_string())
}

fn register(registry: &dyn Registry, service: &str, endpoints: usize) -> Result<Vec<Lease>, RegistryError> {
    std::thread::scope(|scope| {
        let one = |n: usize| {
            let endpoint = Endpoint::new(service, format!("instance-{n}"), "10.0.0.1:7000")?;
            corewire::block_on(registry.register(Arc::new(endpoint), RegisterOptions::new()))
        };
        let threads: Vec<_> = (0..REGISTERING)
            .map(|thread| {
                scope.spawn(move || {
                    (thread..endpoints).step_by(REGISTERING).map(one).collect::<Result<Vec<_>, _>>()
                })
            })
            .collect();
        let mut leases = Vec::with_capacity(endpoints);
        for thread in threads {
            leases.extend(thread.join().map_err(|_| RegistryError::Closed)??);
        }
        Ok(leases)
    })
}

/// Changes one endpoint again and again, before watchers that each have a connection of their own.
pub(super) fn told(address: &str, pace: Pace) -> Result<DiscoveryRow, Failure> {
    let service = format!("bench-watch-{}", std::process::id());
    let registries: Vec<_> =
        (0..pace.workers).map(|_| crate::registry::open(address)).collect::<Result<_, _>>()?;
    let changing = crate::registry::open(address)?;
    let origin = Instant::now();
    // When each change was begun, by its weight.
    let begun: Vec<AtomicU64> = (0..=CHANGES).map(|_| AtomicU64::new(0)).collect();
    let together = Barrier::new(pace.workers + 1);
    let (seen, failed) = std::thread::scope(|scope| {
        let (begun, together, service) = (&begun, &together, &*service);
        let watching: Vec<_> = registries
            .iter()
            .map(|registry| scope.spawn(move || watch(&**registry, service, origin, begun, together)))
            .collect();
        let mut lease = None;
        together.wait();
        let mut failed = 0;
        for weight in 1..=CHANGES {
            begun[usize::from(weight)].store(origin.elapsed().as_nanos() as u64, Ordering::Release);
            match change(&*changing, service, weight) {
                Ok(changed) => lease = Some(changed),
                Err(_) => failed += 1,
            }
            together.wait();
        }
        drop(lease);
        (watching.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<_>>(), failed)
    });
    let mut all = latency();
    let mut missed = failed;
    for (latencies, errors) in &seen {
        all.add(latencies).map_err(|error| Failure::Library(error.to_string()))?;
        missed += errors;
    }
    let seconds = origin.elapsed().as_secs_f64();
    let mut row = row(format!("change told to {} watchers", pace.workers), pace, pace.workers, seconds);
    (row.looked_up, row.errors, row.ops_per_s) = (all.len(), missed, all.len() as f64 / seconds);
    (row.p50_ns, row.p99_ns) = (Some(all.value_at_quantile(0.5)), Some(all.value_at_quantile(0.99)));
    Ok(row)
}

fn change(registry: &dyn Registry, service: &str, weight: u16) -> Result<Lease, RegistryError> {
    let endpoint = Endpoint::new(service, "changing", "10.0.0.1:7000")?.with_weight(weight);
    corewire::block_on(registry.register(Arc::new(endpoint), RegisterOptions::new()))
}

/// The time from the beginning of each change until it is seen, and how many were not.
fn watch(
    registry: &dyn Registry,
    service: &str,
    origin: Instant,
    begun: &[AtomicU64],
    together: &Barrier,
) -> (Latency, u64) {
    let (mut latencies, mut missed) = (latency(), 0);
    let mut watch = corewire::block_on(registry.watch(service)).ok();
    together.wait();
    for weight in 1..=CHANGES {
        let is_it = |change: &Change| match change {
            Change::Added(after) | Change::Updated { after, .. } => after.weight() == weight,
            Change::Reset(all) => all.iter().any(|endpoint| endpoint.weight() == weight),
            _ => false,
        };
        let seen = watch.as_mut().is_some_and(|watch| {
            std::iter::from_fn(|| watch.recv_timeout(PATIENCE)).any(|event| is_it(&event.change))
        });
        if seen {
            let began = begun[usize::from(weight)].load(Ordering::Acquire);
            latencies.saturating_record((origin.elapsed().as_nanos() as u64).saturating_sub(began));
        } else {
            missed += 1;
        }
        together.wait();
    }
    (latencies, missed)
}

fn row(workload: String, pace: Pace, threads: usize, seconds: f64) -> DiscoveryRow {
    DiscoveryRow {
        workload,
        workers: pace.workers,
        threads,
        seconds,
        ops_per_s: 0.0,
        registered: 0,
        discovered: 0,
        deregistered: 0,
        looked_up: 0,
        errors: 0,
        heap_bytes_per_op: 0.0,
        cpu_ns_per_op: None,
        first_call_ms: None,
        heap_bytes_per_endpoint: None,
        p50_ns: None,
        p99_ns: None,
        report_ops_per_s: None,
    }
}
