//! `corewire bench discovery`: how fast services are registered, found and taken out again, and looked up beside changes.

mod channel;
mod lookups;
mod rounds;
mod watchers;

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use crate::args::BenchArgs;
use crate::failure::Failure;
use crate::lists::count;

/// Options of `corewire bench discovery` alone.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Of discovery alone")]
pub(crate) struct DiscoveryArgs {
    /// Workers that register, discover and deregister [default: 100]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) workers: Option<usize>,
    /// All workers on one registry, instead of each on its own
    #[arg(long)]
    pub(crate) shared: bool,
    /// A registry elsewhere, such as rpc://127.0.0.1:7400 or etcd://127.0.0.1:2379/prefix; local is one in this process
    #[arg(long, value_name = "URI")]
    pub(crate) registry: Option<String>,
}

/// One measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct DiscoveryRow {
    pub(crate) workload: String,
    pub(crate) workers: usize,
    pub(crate) threads: usize,
    pub(crate) seconds: f64,
    /// Of all kinds.
    pub(crate) ops_per_s: f64,
    pub(crate) registered: u64,
    pub(crate) discovered: u64,
    pub(crate) deregistered: u64,
    pub(crate) looked_up: u64,
    pub(crate) errors: u64,
    /// Heap bytes that the measuring threads asked for, per operation.
    pub(crate) heap_bytes_per_op: f64,
    /// Processor time of the measuring threads, per operation: where others use the machine too, it tells more than the
    /// rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cpu_ns_per_op: Option<f64>,
    /// From making a channel until its first call was answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_call_ms: Option<f64>,
    /// Heap that the channel holds after it, for each endpoint.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heap_bytes_per_endpoint: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p50_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) p99_ns: Option<u64>,
    /// Of report 003 (B3), made on an Apple M4 with 10 cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report_ops_per_s: Option<f64>,
}

/// The figure of report 003, table B3: 100 workers, each on a registry of its own.
const REPORT_B3: f64 = 5_432_424.0;

/// What the rows have in common.
#[derive(Debug, Clone, Copy)]
struct Pace {
    workers: usize,
    threads: usize,
    time: Duration,
}

/// Measures and prints; whether there were no errors.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    let quick = if args.quick { Duration::from_millis(300) } else { Duration::from_secs(2) };
    let threads = corewire::runtime::driver::available_cpus().len().max(1);
    let workers = args.discovery.workers.unwrap_or(100);
    let pace = Pace { workers, threads, time: args.duration.unwrap_or(quick) };
    println!("{workers} workers on {threads} threads, {:.2} s each row\n", pace.time.as_secs_f64());
    let local = args.discovery.registry.as_deref().is_none_or(|registry| registry == "local");
    let rows = match &args.discovery.registry {
        Some(registry) if !local => {
            let endpoints = if args.quick { 1_000 } else { 10_000 };
            let listed = watchers::listed(registry, endpoints, pace)?;
            vec![rounds::elsewhere(registry, pace)?, watchers::told(registry, pace)?, listed]
        }
        _ => {
            let mut rows = rounds::here(args.discovery.shared, pace)?;
            rows.push(lookups::beside_changes(pace)?);
            let many = if args.quick { 10_000 } else { 100_000 };
            rows.extend([channel::of(10, pace)?, channel::of(many, pace)?]);
            rows
        }
    };
    rows.iter().for_each(print);
    if let Some(path) = &args.json {
        let text =
            serde_json::to_string_pretty(&rows).map_err(Failure::io("cannot write the rows as JSON"))?;
        let written = std::fs::write(path, text + "\n");
        written.map_err(Failure::io(format!("cannot write {}", path.display())))?;
    }
    Ok(rows.iter().all(|row| row.errors == 0))
}

fn print(row: &DiscoveryRow) {
    let (rate, unit) =
        if row.ops_per_s < 1e6 { (row.ops_per_s / 1e3, "k") } else { (row.ops_per_s / 1e6, "M") };
    println!("{:46} {rate:>9.3} {unit} op/s", row.workload);
    if row.registered > 0 {
        println!(
            "    registered {}  discovered {}  deregistered {}  errors {}",
            row.registered, row.discovered, row.deregistered, row.errors
        );
    }
    if let (Some(p50), Some(p99)) = (row.p50_ns, row.p99_ns) {
        println!("    p50 {:.3} µs  p99 {:.3} µs", p50 as f64 / 1e3, p99 as f64 / 1e3);
    }
    if row.report_ops_per_s.is_some() || row.workload.starts_with("look-up") {
        println!("    heap {:.3} B/op", row.heap_bytes_per_op);
    }
    if let Some(cpu) = row.cpu_ns_per_op {
        println!("    CPU {cpu:.1} ns/op");
    }
    if let (Some(first), Some(heap)) = (row.first_call_ms, row.heap_bytes_per_endpoint) {
        println!("    first call after {first:.1} ms  heap {heap:.0} B/endpoint");
    }
    if let Some(report) = row.report_ops_per_s {
        println!(
            "    report 003: {:.1} M op/s, ours {:.1} times as many",
            report / 1e6,
            row.ops_per_s / report
        );
    }
}
