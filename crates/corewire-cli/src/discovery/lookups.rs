//! Look-ups and picks on a registry that changes meanwhile.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corewire_rpc::discover::registry::{
    Balancer, Endpoint, LocalLease, LocalRegistry, RegistryError, RoundRobin,
};

use super::{DiscoveryRow, Pace};
use crate::failure::Failure;
use crate::heap;
use crate::percentiles::{Latency, latency};
use crate::system::thread_cpu_ns;

const SERVICES: usize = 1_000;
const ENDPOINTS: usize = 10;
const CHANGES_PER_S: u64 = 1_000;
/// Operations between two looks at the clock.
const TURN: usize = 1_024;

/// What one thread has done.
struct Done {
    looked_up: u64,
    errors: u64,
    heap_bytes: u64,
    cpu_ns: u64,
    seconds: f64,
    latencies: Latency,
}

/// Once at full speed, and once with each operation timed.
pub(super) fn beside_changes(pace: Pace) -> Result<DiscoveryRow, Failure> {
    let failed = |error: RegistryError| Failure::Library(error.to_string());
    let registry = LocalRegistry::new();
    let mut leases = (0..SERVICES * ENDPOINTS)
        .map(|n| registry.register(endpoint(n, 1)?))
        .collect::<Result<Vec<_>, _>>()
        .map_err(failed)?;
    let (stop, changes) = (AtomicBool::new(false), AtomicU64::new(0));
    let start = &Barrier::new(pace.threads);
    let began = Instant::now();
    let (fast, timed) = std::thread::scope(|scope| {
        let changer = scope.spawn(|| change(&registry, &mut leases, &stop, &changes));
        let measure = |is_timed| {
            let threads: Vec<_> = (0..pace.threads)
                .map(|seed| {
                    let registry = &registry;
                    scope.spawn(move || look_up(registry, seed, (start, pace.time), is_timed))
                })
                .collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).collect::<Vec<Done>>()
        };
        let (fast, timed) = (measure(false), measure(true));
        stop.store(true, Ordering::Relaxed);
        (changer.join().is_ok()).then_some((fast, timed))
    })
    .ok_or_else(|| Failure::Library("the thread that makes changes failed".into()))?;
    let rate = changes.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    let mut all = latency();
    for done in &timed {
        all.add(&done.latencies).map_err(|error| Failure::Library(error.to_string()))?;
    }
    let looked_up: u64 = fast.iter().map(|done| done.looked_up).sum();
    let heap_bytes: u64 = fast.iter().map(|done| done.heap_bytes).sum();
    Ok(DiscoveryRow {
        workload: format!("look-up + pick, {rate:.0} changes/s"),
        workers: pace.threads,
        threads: pace.threads,
        seconds: pace.time.as_secs_f64(),
        ops_per_s: fast.iter().map(|done| done.looked_up as f64 / done.seconds).sum(),
        registered: 0,
        discovered: 0,
        deregistered: 0,
        looked_up,
        errors: fast.iter().chain(&timed).map(|done| done.errors).sum(),
        heap_bytes_per_op: heap_bytes as f64 / (looked_up as f64).max(1.0),
        cpu_ns_per_op: Some(
            fast.iter().map(|done| done.cpu_ns).sum::<u64>() as f64 / (looked_up as f64).max(1.0),
        ),
        first_call_ms: None,
        heap_bytes_per_endpoint: None,
        p50_ns: Some(all.value_at_quantile(0.5)),
        p99_ns: Some(all.value_at_quantile(0.99)),
        report_ops_per_s: None,
    })
}

fn service(number: usize) -> String {
    format!("service-{number}")
}

fn endpoint(n: usize, weight: u16) -> Result<Endpoint, RegistryError> {
    let endpoint =
        Endpoint::new(service(n / ENDPOINTS), format!("instance-{}", n % ENDPOINTS), "10.0.0.1:7000");
    Ok(endpoint?.with_weight(weight))
}

/// Changes weights at the set rate until it is told to stop.
fn change(registry: &LocalRegistry, leases: &mut [LocalLease], stop: &AtomicBool, changes: &AtomicU64) {
    let began = Instant::now();
    let mut made = 0_u64;
    while !stop.load(Ordering::Relaxed) {
        let due = began.elapsed().as_micros() as u64 * CHANGES_PER_S / 1_000_000;
        while made < due {
            let n = made as usize * 7_919 % leases.len();
            if let Ok(lease) =
                endpoint(n, (made % 100) as u16 + 2).and_then(|changed| registry.register(changed))
            {
                leases[n] = lease;
            }
            made += 1;
        }
        changes.store(made, Ordering::Relaxed);
        std::thread::sleep(Duration::from_micros(500));
    }
}

fn look_up(
    registry: &LocalRegistry,
    seed: usize,
    (start, time): (&Barrier, Duration),
    is_timed: bool,
) -> Done {
    let names: Vec<String> = (0..SERVICES).map(service).collect();
    let mut balancers: Vec<RoundRobin> = (0..SERVICES).map(RoundRobin::starting_at).collect();
    let mut lookup = registry.catalog().lookup();
    let mut random = spread(seed as u64);
    let mut done =
        Done { looked_up: 0, errors: 0, heap_bytes: 0, cpu_ns: 0, seconds: 0.0, latencies: latency() };
    let mut one = |errors: &mut u64| {
        let number = (random() >> 32) as usize % SERVICES;
        let snapshot = lookup.snapshot(&names[number]);
        let picked = balancers[number].pick(snapshot, None).and_then(|position| snapshot.get(position));
        *errors += u64::from(black_box(picked).is_none());
    };
    // What is remembered of each service is made once.
    (0..SERVICES * 20).for_each(|_| one(&mut done.errors));
    start.wait();
    let (heap_before, cpu_before, began) = (heap::of_this_thread(), thread_cpu_ns(), Instant::now());
    while began.elapsed() < time {
        for _ in 0..TURN {
            if is_timed {
                let began = Instant::now();
                one(&mut done.errors);
                done.latencies.saturating_record(began.elapsed().as_nanos() as u64);
            } else {
                one(&mut done.errors);
            }
        }
        done.looked_up += TURN as u64;
    }
    done.seconds = began.elapsed().as_secs_f64();
    done.cpu_ns = thread_cpu_ns() - cpu_before;
    done.heap_bytes = heap::of_this_thread() - heap_before;
    done
}

/// Numbers that are random enough to spread look-ups, and cost nothing beside them.
fn spread(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed + 1;
    move || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state
    }
}
