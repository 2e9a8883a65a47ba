//! `corewire bench wake`: what it costs a thread to hand work to a worker, and whether the worker has to be woken for it.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use corewire::runtime::{Runtime, yield_now};
use corewire::{DriverKind, spawn_local};
use serde::Serialize;

use crate::args::{BenchArgs, BenchDriver, Driver};
use crate::bench::{Cores, cores, per, table, write_rows};
use crate::failure::Failure;
use crate::serve::{driver_kind, driver_name};
use crate::system;

/// Pushes that the worker may be behind.
const BEHIND_MAX: u64 = 1024;
/// How long the busy worker works from one tick to the next.
const WORK: Duration = Duration::from_micros(20);
/// How long a worker without work is left alone, so that it sleeps.
const REST: Duration = Duration::from_millis(1);
/// How long a push may take to be seen.
const SEEN_TIMEOUT: Duration = Duration::from_secs(10);

/// What was measured on a worker that is busy, or asleep.
#[derive(Debug, Clone, Serialize)]
struct Row {
    workload: &'static str,
    driver: String,
    pushes: u64,
    /// Of the pushing thread.
    ns_per_push: f64,
    /// System calls that write, of the whole process; `null` where the system does not count them.
    writes_per_push: Option<f64>,
    errors: u64,
}

/// Measures and prints.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    if args.driver != BenchDriver::Auto && std::env::var_os(DriverKind::ENV).is_some() {
        return without_preference();
    }
    let cores = cores(args)?;
    let duration = Duration::from_millis(if args.quick { 200 } else { 1000 });
    let duration = args.duration.unwrap_or(duration);
    let mut rows = Vec::new();
    for &driver in args.driver.drivers() {
        rows.push(measure(driver, cores, duration, true)?);
        rows.push(measure(driver, cores, duration, false)?);
    }
    let head = ["wake", "driver", "pushes", "ns/push", "writes/push"].map(String::from);
    let mut lines = vec![table::Line::Cells(head.to_vec())];
    lines.extend(rows.iter().map(|row| {
        let writes = row.writes_per_push.map_or("-".into(), |writes| format!("{writes:.3}"));
        let (pushes, cost) = (row.pushes.to_string(), table::short(row.ns_per_push));
        table::Line::Cells(vec![row.workload.into(), row.driver.clone(), pushes, cost, writes])
    }));
    print!("{}", table::print(&lines));
    if let Some(path) = &args.json {
        write_rows(path, &rows)?;
    }
    Ok(true)
}

/// Runs this command again: a driver that was named is measured whatever the environment prefers.
fn without_preference() -> Result<bool, Failure> {
    let program = std::env::current_exe().map_err(Failure::io("cannot find the path of this program"))?;
    let mut command = Command::new(program);
    let status = command.args(std::env::args_os().skip(1)).env_remove(DriverKind::ENV).status();
    Ok(status.map_err(Failure::io("cannot run this program again"))?.success())
}

fn measure(driver: Driver, cores: Cores, duration: Duration, is_busy: bool) -> Result<Row, Failure> {
    let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
    system::pin_to(cores.load)?;
    let runtime =
        Runtime::builder().workers(1).cpus([cores.server]).driver(driver_kind(driver)).name("woken");
    let runtime = runtime.build().map_err(|error| library(&error))?;
    let is_over = Arc::new(AtomicBool::new(false));
    if is_busy {
        let is_over = Arc::clone(&is_over);
        let begun = runtime.handle().run_on(0, move || drop(spawn_local(keep_busy(is_over))));
        begun.map_err(|error| library(&error))?;
    }
    let seen = Arc::new(AtomicU64::new(0));
    let push = || {
        let seen = Arc::clone(&seen);
        let pushed = runtime.handle().run_on(0, move || {
            seen.fetch_add(1, Ordering::Release);
        });
        pushed.map_err(|error| library(&error))
    };
    // What is made once is not measured.
    push()?;
    await_seen(&seen, 1)?;
    let (writes, begun) = (writes(), Instant::now());
    let (mut pushes, mut pushing) = (0, Duration::ZERO);
    while begun.elapsed() < duration {
        if !is_busy {
            std::thread::sleep(REST);
        }
        let batch = if is_busy { BEHIND_MAX / 2 } else { 1 };
        let started = Instant::now();
        for _ in 0..batch {
            push()?;
        }
        pushing += started.elapsed();
        pushes += batch;
        let behind = if is_busy { BEHIND_MAX / 2 } else { 0 };
        await_seen(&seen, 1 + pushes - behind)?;
    }
    let writes =
        self::writes().zip(writes).map(|(after, before)| per((after - before) as f64, pushes as f64));
    is_over.store(true, Ordering::Release);
    let workload = if is_busy { "wake/busy" } else { "wake/asleep" };
    let ns_per_push = per(pushing.as_nanos() as f64, pushes as f64);
    Ok(Row { workload, driver: driver_name(driver), pushes, ns_per_push, writes_per_push: writes, errors: 0 })
}

async fn keep_busy(is_over: Arc<AtomicBool>) {
    while !is_over.load(Ordering::Acquire) {
        let begun = Instant::now();
        while begun.elapsed() < WORK {
            std::hint::spin_loop();
        }
        yield_now().await;
    }
}

fn await_seen(seen: &AtomicU64, pushes: u64) -> Result<(), Failure> {
    let begun = Instant::now();
    while seen.load(Ordering::Acquire) < pushes {
        if begun.elapsed() > SEEN_TIMEOUT {
            return Err(Failure::TimedOut { what: "taking a push".into(), limit: SEEN_TIMEOUT });
        }
        std::thread::yield_now();
    }
    Ok(())
}

/// System calls of this process that write, such as the wake-ups of a worker.
fn writes() -> Option<u64> {
    let counts = std::fs::read_to_string("/proc/self/io").ok()?;
    counts.lines().find_map(|line| line.strip_prefix("syscw:"))?.trim().parse().ok()
}
