//! The workers of a load: made, connected, woken, ended.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use corewire::NetUri;
use corewire::runtime::Runtime;

use super::worker_state::WorkerState;
use super::{connect, payload_size};
use crate::args::{LoadArgs, LoadKind};
use crate::failure::Failure;
use crate::run_control::{Latency, Shared, Workers, latency};
use crate::serve::{driver_kind, driver_name};

const JOIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts the workers; each connects its share of the connections at once and waits for its phase.
pub(crate) fn start(args: &LoadArgs) -> Result<Workers, Failure> {
    let target = args.tls.apply(&args.target)?;
    let uri =
        NetUri::parse(&target).map_err(|error| Failure::Target { target, reason: error.to_string() })?;
    let (cpus, workers) = (args.workers.cores(), args.workers.of_load(args.connections));
    let mut builder =
        Runtime::builder().workers(workers).driver(driver_kind(args.workers.driver)).name("load");
    if !cpus.is_empty() {
        builder = builder.cpus(cpus);
    }
    if let Some(bytes) = args.workers.receive_buffer {
        builder = builder.receive_block_size(bytes);
    }
    let runtime = builder.build().map_err(|error| Failure::Library(error.to_string()))?;
    let shared = Arc::new(Shared::new(workers));
    let payload = payload_size(args.kind, args.size)?;
    let args = Arc::new(args.clone());
    for worker in 0..workers {
        let (args, shared, uri) = (Arc::clone(&args), Arc::clone(&shared), uri.clone());
        on(&runtime, worker, move || {
            let mine = (worker..args.connections).step_by(workers);
            connect::connect(&WorkerState::open(worker, args, shared, payload), &uri, mine);
        })?;
    }
    let runtime = Arc::new(runtime);
    let (waker, stopped, counted) = (Arc::clone(&runtime), Arc::clone(&shared), Arc::clone(&runtime));
    let (counters, is_rpc) = (Arc::clone(&shared), is_rpc(&args));
    Ok(Workers {
        connections: args.connections,
        driver: driver_name(args.workers.driver),
        wake: Box::new(move || {
            for worker in 0..workers {
                // A worker that has stopped needs no waking.
                let _ = on(&waker, worker, wake_here);
            }
        }),
        // A worker that has not seen the end may be about to send.
        ended: Box::new(move || stopped.have_seen_the_end() >= workers && stopped.in_flight() == 0),
        calls: Box::new(move || {
            if is_rpc {
                count_bytes(&counted, &counters);
            }
            let stats = counted.handle().stats();
            (stats.receives, stats.sends)
        }),
        join: {
            let shared = Arc::clone(&shared);
            Box::new(move || {
                let latency = gather(&runtime, workers, &shared)?;
                if is_rpc {
                    await_the_end(&runtime);
                    count_bytes(&runtime, &shared);
                }
                Ok(latency)
            })
        },
        shared,
    })
}

/// Whether bytes go around the messages, so that only the workers know how many there are.
fn is_rpc(args: &LoadArgs) -> bool {
    matches!(args.kind, LoadKind::Rpc | LoadKind::Stream)
}

/// Tells the bytes that the workers counted, in place of bytes counted by message.
fn count_bytes(runtime: &Runtime, shared: &Shared) {
    let stats = runtime.handle().stats();
    shared.traffic(0).sent_bytes.set(stats.sent_bytes);
    shared.traffic(0).recv_bytes.set(stats.received_bytes);
}

/// Waits until the connections have sent their last bytes: version 2 takes its leave. One that does not end shows in
/// the comparison of bytes.
fn await_the_end(runtime: &Runtime) {
    let begun = std::time::Instant::now();
    let is_open = || {
        let stats = runtime.handle().stats();
        stats.closed < stats.connected
    };
    while is_open() && begun.elapsed() < JOIN_TIMEOUT {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Runs a closure on a worker.
fn on(runtime: &Runtime, worker: usize, call: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    runtime.handle().run_on(worker, call).map_err(|error| Failure::Library(error.to_string()))
}

/// Sending begins with the first wake-up; later ones end the worker's wait, and say that it has seen the end.
fn wake_here() {
    let state = WorkerState::here();
    if state.may_send() {
        state.start();
    } else {
        state.shared.has_seen_the_end();
    }
}

/// Ends every worker's connections and merges the latencies.
fn gather(runtime: &Runtime, workers: usize, shared: &Shared) -> Result<Latency, Failure> {
    let merged = Arc::new(Mutex::new(latency()));
    let left = Arc::new(AtomicU64::new(workers as u64));
    for worker in 0..workers {
        let (merged, left) = (Arc::clone(&merged), Arc::clone(&left));
        on(runtime, worker, move || {
            let own = WorkerState::close();
            let added = merged.lock().unwrap_or_else(PoisonError::into_inner).add(own);
            debug_assert!(added.is_ok(), "all histograms have the same bounds");
            left.fetch_sub(1, Ordering::Release);
        })?;
    }
    let begun = std::time::Instant::now();
    while left.load(Ordering::Acquire) > 0 {
        if begun.elapsed() > JOIN_TIMEOUT {
            return Err(Failure::TimedOut { what: "the end of the load".into(), limit: JOIN_TIMEOUT });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let missing = shared.in_flight();
    shared.errors(missing, || format!("{missing} messages or senders never came to an end"));
    let merged = merged.lock().unwrap_or_else(PoisonError::into_inner).clone();
    Ok(merged)
}
