//! `corewire bench fairness`: what greedy clients do to a polite one on the same worker.
//!
//! The server has one worker on a core of its own. The greedy clients and the polite one are two processes on another; the
//! polite one tells how late this machine lets it send.

mod args;
mod frames;
mod greedy;
mod plan;
mod polite;
mod row;

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::Duration;

use corewire::DriverKind;

pub(crate) use args::{FairnessArgs, GreedyArgs, PoliteArgs};
pub(crate) use greedy::greedy;
pub(crate) use polite::polite;

use crate::args::{BenchArgs, Driver};
use crate::bench::{Cores, Process, cores, write_rows};
use crate::control::Snapshot;
use crate::failure::Failure;
use crate::run_control::{CONNECT_TIMEOUT, DRAIN_TIMEOUT, LoadReport};
use plan::{Cell, Pace, Protocol, Server};
use polite::PoliteReport;
use row::Measured;
pub(crate) use row::Row;

/// How long a process may take to start or to answer.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// How long a polite client may take beyond its measurement.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// So many failed rows end the benchmark early.
const FAILED_ROWS_MAX: usize = 3;
/// Requests in flight of all greedy clients whose protocol bounds them.
const IN_FLIGHT: usize = 1024;
/// The most on one connection.
const DEPTH_MAX: usize = 256;

/// Measures all cells, prints and writes them; whether all rows are free of errors.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    let rows = run(args)?;
    if let Some(path) = &args.json {
        write_rows(path, &rows)?;
    }
    Ok(are_valid(&rows))
}

/// Whether all rows are free of errors; says so where they are not.
pub(crate) fn are_valid(rows: &[Row]) -> bool {
    let are_valid = rows.iter().all(|row| row.errors == 0);
    if !are_valid {
        eprintln!("corewire: some rows saw errors and are not valid");
    }
    are_valid
}

/// Measures all cells and prints them.
pub(crate) fn run(args: &BenchArgs) -> Result<Vec<Row>, Failure> {
    let (cells, pace, cores) = (plan::cells(args), plan::pace(args), cores(args)?);
    println!(
        "fairness: {} cells; greedy clients beside one polite client with a request each {:?}; \
         {:.2} s after {:.2} s of warm-up; one worker on core {}, clients on core {}\n",
        cells.len(),
        pace.period,
        pace.duration.as_secs_f64(),
        pace.warmup.as_secs_f64(),
        cores.server,
        cores.load
    );
    let mut rows = Vec::new();
    for cell in &cells {
        for server in plan::servers(cell, args) {
            if rows.iter().filter(|row: &&Row| row.has_failed).count() == FAILED_ROWS_MAX {
                eprintln!("corewire: {FAILED_ROWS_MAX} rows failed; the rest is left out");
                break;
            }
            let runs: Result<Vec<_>, _> =
                (0..pace.repeats).map(|_| measure(cell, server, cores, &pace)).collect();
            rows.push(match runs {
                Ok(runs) => Row::new(cell, &pace, &runs),
                Err(failure) => Row::failed(cell, server_name(server), &pace, &failure.to_string()),
            });
        }
    }
    print!("{}", row::table(&rows));
    println!(
        "\np50 to max in µs, from when a polite request was due to its answer; own: how late this machine let it send, \
         p99; target: p99 ≤ {} ms, p99.9 ≤ {} ms",
        row::P99_MAX_US / 1e3,
        row::P999_MAX_US / 1e3
    );
    Ok(rows)
}

fn server_name(server: Server) -> &'static str {
    match server {
        Server::Baseline => "baseline",
        Server::Ours(driver) => driver.name(),
    }
}

/// One run: the server, the clients, both at once for the time of the measurement, the end.
fn measure(cell: &Cell, server: Server, cores: Cores, pace: &Pace) -> Result<Measured, Failure> {
    let foreign: &[&str] = match server {
        Server::Ours(Driver::Uring | Driver::Epoll) => &[DriverKind::ENV],
        _ => &[],
    };
    let mut serving = Process::start("server", &server_arguments(cell, server, cores), foreign)?;
    let uri = serving.line_after("listening on ", START_TIMEOUT)?;
    let driver = serving.driver()?;
    let mut greedy = Process::start("greedy", &greedy_arguments(cell, cores, &uri), &[])?;
    greedy.line_after("ready", CONNECT_TIMEOUT + REPORT_TIMEOUT)?;
    let mut polite = Process::start("polite", &polite_arguments(cell, server, cores, pace, &uri), &[])?;
    polite.line_after("ready", START_TIMEOUT)?;

    greedy.tell("start")?;
    polite.tell("start")?;
    std::thread::sleep(pace.warmup);
    let before = greedy.snapshot()?;
    std::thread::sleep(pace.duration);
    let after = greedy.snapshot()?;
    greedy.tell("stop")?;
    let load: LoadReport = greedy.json(DRAIN_TIMEOUT + REPORT_TIMEOUT)?;
    greedy.finish()?;
    let report: PoliteReport = polite.json(REPORT_TIMEOUT)?;
    polite.finish()?;
    let last: Snapshot = serving.snapshot()?;
    serving.tell("stop")?;
    serving.finish()?;
    Ok(Measured::new(driver, [before, after], load, report, &last))
}

fn server_arguments(cell: &Cell, server: Server, cores: Cores) -> Vec<String> {
    let cpu = cores.server.to_string();
    let (kind, codec, scheme) = match cell.protocol {
        Protocol::Echo => ("echo", "none", "tcp"),
        Protocol::Srmp | Protocol::NeverReads | Protocol::OneByte => ("echo", "srmp", "tcp"),
        Protocol::Rpc | Protocol::Stream => ("rpc", "none", "tcp"),
        Protocol::Udp => ("udp-echo", "none", "udp"),
        Protocol::Kcp => ("echo", "length-field", "kcp"),
    };
    let listen = format!("{scheme}://127.0.0.1:0");
    let common = ["--listen", &listen, "--cpus", &cpu, "--control"];
    match server {
        Server::Baseline => {
            let size = cell.size.to_string();
            strings(&["baseline-serve", kind, "--size", &size], &common)
        }
        Server::Ours(driver) => {
            strings(&["serve", kind, "--codec", codec, "--driver", driver.name(), "--threads", "1"], &common)
        }
    }
}

/// Datagrams and KCP have flow control of their own in `load`; there the pipeline is as deep as it may be.
fn greedy_arguments(cell: &Cell, cores: Cores, uri: &str) -> Vec<String> {
    let (connections, cpu) = (cell.connections.to_string(), cores.load.to_string());
    let common = ["--target", uri, "--connections", &connections, "--cpus", &cpu];
    let depth = (IN_FLIGHT / cell.connections).clamp(1, DEPTH_MAX).to_string();
    let size = cell.size.to_string();
    let framed = (cell.size + 2).to_string();
    let load = |kind, size| strings(&["load", kind, "--size", size, "--depth", &depth, "--control"], &common);
    match cell.protocol {
        Protocol::Udp => load("udp", &size),
        // With the header.
        Protocol::Kcp => load("length-field", &framed),
        protocol => strings(&["greedy", protocol.name(), "--size", &size], &common),
    }
}

fn polite_arguments(cell: &Cell, server: Server, cores: Cores, pace: &Pace, uri: &str) -> Vec<String> {
    let cpu = cores.load.to_string();
    let time = |duration: Duration| format!("{}ms", duration.as_millis());
    let (warmup, duration, period) = (time(pace.warmup), time(pace.duration), time(pace.period));
    let mut arguments = strings(
        &["polite", cell.protocol.name(), "--target", uri, "--cpus", &cpu],
        &["--warmup", &warmup, "--duration", &duration, "--period", &period],
    );
    arguments.extend((server == Server::Baseline).then(|| "--echo".to_owned()));
    arguments
}

fn strings(lead: &[&str], rest: &[&str]) -> Vec<String> {
    lead.iter().chain(rest).map(|s| (*s).to_owned()).collect()
}

/// The address in a URI with a host and a port.
fn address(uri: &str) -> Result<SocketAddr, Failure> {
    let bad = |reason: String| Failure::Target { target: uri.into(), reason };
    let (_, host) = uri.split_once("://").ok_or_else(|| bad("it has no scheme".into()))?;
    let mut found = host.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("the host has no address".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CORES: Cores = Cores { server: 3, load: 5 };
    const PACE: Pace = Pace {
        warmup: Duration::from_millis(10),
        duration: Duration::from_millis(250),
        repeats: 1,
        period: Duration::from_millis(1),
    };

    fn cell(protocol: Protocol) -> Cell {
        Cell { protocol, connections: 64, size: 28 }
    }

    #[test]
    fn the_server_has_a_core_of_its_own_and_the_clients_another() {
        for server in [Server::Baseline, Server::Ours(Driver::Epoll)] {
            let cell = cell(Protocol::Srmp);
            assert!(server_arguments(&cell, server, CORES).join(" ").contains("--cpus 3"));
            assert!(greedy_arguments(&cell, CORES, "tcp://a:1").join(" ").contains("--cpus 5"));
            let polite = polite_arguments(&cell, server, CORES, &PACE, "tcp://a:1").join(" ");
            assert!(polite.contains("--cpus 5") && polite.contains("--duration 250ms --period 1ms"));
            assert_eq!(polite.contains("--echo"), server == Server::Baseline);
        }
    }

    #[test]
    fn what_has_flow_control_of_its_own_is_loaded_with_a_deep_pipeline() {
        let of = |protocol| greedy_arguments(&cell(protocol), CORES, "x").join(" ");
        assert!(of(Protocol::Udp).starts_with("load udp --size 28 --depth 16 --control"));
        assert!(of(Protocol::Kcp).starts_with("load length-field --size 30 --depth 16 --control"));
        assert!(of(Protocol::Rpc).starts_with("greedy rpc --size 28"));
    }
}
