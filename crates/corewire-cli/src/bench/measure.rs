//! One measurement: a server process, a load process, and what their snapshots say.

use std::time::{Duration, Instant};

use corewire::runtime::driver::DriverKind;

use super::bytes::{Ends, discrepancy};
use super::child::Process;
use super::plan::{Cell, FRAMES, Pace, STREAMS, Workload};
use super::stats::per;
use crate::args::{CallMode, Driver};
use crate::control::Snapshot;
use crate::failure::Failure;
use crate::percentiles::Percentiles;
use crate::run_control::{CONNECT_TIMEOUT, DRAIN_TIMEOUT, LoadReport};

const START_TIMEOUT: Duration = Duration::from_secs(10);

/// The figures of one measurement.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Measured {
    pub(crate) driver: String,
    pub(crate) msgs_per_s: f64,
    pub(crate) server_cpu_ns: f64,
    pub(crate) client_cpu_ns: f64,
    pub(crate) server_heap: f64,
    pub(crate) client_heap: f64,
    pub(crate) server_heap_per_connection: f64,
    pub(crate) bytes_per_recv: f64,
    pub(crate) latency: Percentiles,
    pub(crate) streams: Percentiles,
    pub(crate) fairness: Option<f64>,
    /// Of an open load.
    pub(crate) late: u64,
    pub(crate) unsent: u64,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
}

/// Who is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// The bare loop.
    Baseline,
    /// The library.
    Ours(Driver),
}

impl Side {
    /// A driver that was named is measured whatever the environment prefers.
    fn foreign_variables(self) -> &'static [&'static str] {
        match self {
            Self::Baseline | Self::Ours(Driver::Auto) => &[],
            Self::Ours(Driver::Uring | Driver::Epoll) => &[DriverKind::ENV],
        }
    }
}

/// The cores of the two processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores {
    pub(crate) server: usize,
    pub(crate) load: usize,
}

/// Measures one cell once.
pub(crate) fn measure(
    cell: &Cell,
    side: Side,
    cores: Cores,
    pace: &Pace,
    watch: &mut dyn FnMut(&Snapshot),
) -> Result<Measured, Failure> {
    let mut server =
        Process::start("server", &server_arguments(cell, side, cores, pace), side.foreign_variables())?;
    let uri = server.line_after("listening on ", START_TIMEOUT)?;
    let empty = server.snapshot()?;
    let mut load =
        Process::start("load", &load_arguments(cell, side, cores, pace, &uri), side.foreign_variables())?;
    load.line_after("ready", CONNECT_TIMEOUT + Duration::from_secs(5))?;
    // A datagram session begins with its first datagram.
    let sessions = if cell.workload.is_udp() { 0 } else { cell.connections as u64 };
    let idle = await_sessions(&mut server, sessions)?;
    let driver = server.driver()?;
    let ready = load.snapshot()?;

    load.tell("start")?;
    std::thread::sleep(pace.warmup);
    load.tell("measure")?;
    let before = both(&mut server, &mut load)?;
    watch(&before.load);
    watch_for(pace.duration, &mut load, watch)?;
    let after = both(&mut server, &mut load)?;
    watch(&after.load);
    load.tell("stop")?;
    let report: LoadReport = load.json(DRAIN_TIMEOUT + Duration::from_secs(5))?;
    load.finish()?;
    let last = await_bytes(&mut server, &report.totals)?;
    server.tell("stop")?;
    server.finish()?;

    let per_connection = idle.heap_live_bytes.saturating_sub(empty.heap_live_bytes) as f64;
    let mut measured = figures(cell, &before, &after, report, &Ends { ready, last });
    measured.driver = driver;
    measured.server_heap_per_connection = per(per_connection, cell.connections as f64);
    Ok(measured)
}

/// Snapshots of server and load, taken at the same time.
#[derive(Debug, Clone, Copy, Default)]
struct Both {
    server: Snapshot,
    load: Snapshot,
}

fn both(server: &mut Process, load: &mut Process) -> Result<Both, Failure> {
    server.tell("snapshot")?;
    let load = load.snapshot()?;
    Ok(Both { server: server.json(START_TIMEOUT)?, load })
}

/// Waits, and shows the state of the load every second.
fn watch_for(
    duration: Duration,
    load: &mut Process,
    watch: &mut dyn FnMut(&Snapshot),
) -> Result<(), Failure> {
    const STEP: Duration = Duration::from_millis(1000);
    let begun = Instant::now();
    loop {
        let left = duration.saturating_sub(begun.elapsed());
        std::thread::sleep(left.min(STEP));
        if left <= STEP {
            return Ok(());
        }
        watch(&load.snapshot()?);
    }
}

fn figures(cell: &Cell, before: &Both, after: &Both, report: LoadReport, ends: &Ends) -> Measured {
    let size = cell.wire_size();
    let (server, load) = (Delta(&before.server, &after.server), Delta(&before.load, &after.load));
    // Each side's cost is divided by what that side itself moved between its own two snapshots.
    let server_messages = server.of(|s| s.recv_bytes) / size;
    let load_messages =
        if cell.workload.is_echoed() { load.of(|s| s.messages) } else { load.of(|s| s.sent_bytes) / size };
    let msgs_per_s = match cell.workload {
        Workload::Receive | Workload::UdpSend | Workload::UdpSendPlain => {
            per(server_messages, server.seconds())
        }
        _ => per(load_messages, load.seconds()),
    };
    let (lost, story) = discrepancy(cell, &report.totals, ends);
    let errors = report.totals.errors + ends.last.errors + lost;
    Measured {
        driver: String::new(),
        msgs_per_s,
        server_cpu_ns: per(server.of(|s| s.cpu_ns), server_messages),
        client_cpu_ns: per(load.of(|s| s.cpu_ns), load_messages),
        server_heap: per(server.of(|s| s.heap_bytes), server_messages),
        client_heap: per(load.of(|s| s.heap_bytes), load_messages),
        server_heap_per_connection: 0.0,
        bytes_per_recv: per(server.of(|s| s.recv_bytes), server.of(|s| s.recv_calls)),
        latency: report.latency,
        streams: report.streams,
        fairness: report.fairness,
        late: load.of(|s| s.late) as u64,
        unsent: report.unsent,
        errors,
        first_error: report.first_error.or(story).filter(|_| errors > 0),
    }
}

struct Delta<'a>(&'a Snapshot, &'a Snapshot);

impl Delta<'_> {
    fn of(&self, figure: fn(&Snapshot) -> u64) -> f64 {
        figure(self.1).saturating_sub(figure(self.0)) as f64
    }

    fn seconds(&self) -> f64 {
        self.of(|s| s.at_ns) / 1e9
    }
}

fn await_sessions(server: &mut Process, sessions: u64) -> Result<Snapshot, Failure> {
    poll(server, START_TIMEOUT, &|s| s.sessions >= sessions)?.map_err(|last| Failure::TimedOut {
        what: format!("accepting {sessions} connections (the server has {})", last.sessions),
        limit: START_TIMEOUT,
    })
}

/// The server's state once it knows of all bytes that the load knows of, or when time is up.
fn await_bytes(server: &mut Process, load: &Snapshot) -> Result<Snapshot, Failure> {
    let knows = |s: &Snapshot| s.recv_bytes >= load.sent_bytes && s.sent_bytes >= load.recv_bytes;
    Ok(poll(server, DRAIN_TIMEOUT, &knows)?.unwrap_or_else(|last| last))
}

/// Takes snapshots until one will do; the outer error is the process's, the inner one the last snapshot in vain.
fn poll(
    server: &mut Process,
    limit: Duration,
    will_do: &dyn Fn(&Snapshot) -> bool,
) -> Result<Result<Snapshot, Snapshot>, Failure> {
    let begun = Instant::now();
    loop {
        let snapshot = server.snapshot()?;
        if will_do(&snapshot) {
            return Ok(Ok(snapshot));
        }
        if begun.elapsed() > limit {
            return Ok(Err(snapshot));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn server_arguments(cell: &Cell, side: Side, cores: Cores, pace: &Pace) -> Vec<String> {
    let kind = match (cell.workload.is_udp(), cell.workload.is_echoed()) {
        (false, true) => "echo",
        (false, false) => "sink",
        (true, true) => "udp-echo",
        (true, false) => "udp-sink",
    };
    let listen = if cell.workload.is_udp() { "udp://127.0.0.1:0" } else { "tcp://127.0.0.1:0" };
    let cpu = cores.server.to_string();
    let mut common = vec!["--listen", listen, "--control", "--cpus", &cpu];
    common.extend(cell.workload.is_plain().then_some("--no-offload"));
    match side {
        Side::Baseline => {
            let mut arguments = with_exchange(strings(&["baseline-serve", kind], &common), cell);
            if cell.workload.is_udp() {
                arguments.extend(["--size".to_owned(), cell.size.to_string()]);
            }
            arguments
        }
        Side::Ours(driver) if cell.workload.is_rpc() => {
            strings(&["serve", "rpc", "--driver", driver.name(), "--threads", "1"], &common)
        }
        Side::Ours(driver) => {
            let codec = match cell.workload {
                Workload::Srmp => "srmp",
                Workload::LengthField => "length-field",
                _ => "none",
            };
            let lead = ["serve", kind, "--codec", codec, "--driver", driver.name(), "--threads", "1"];
            let mut arguments = strings(&lead, &common);
            if let Some(bytes) = pace.receive_buffer {
                arguments.extend(["--receive-buffer".to_owned(), bytes.to_string()]);
            }
            arguments
        }
    }
}

fn load_arguments(cell: &Cell, side: Side, cores: Cores, pace: &Pace, uri: &str) -> Vec<String> {
    let (connections, depth) = (cell.connections.to_string(), cell.depth.to_string());
    let in_flight = cell.in_flight().to_string();
    let depth = if side == Side::Baseline { in_flight } else { depth };
    let (size, batch, cpu) = (cell.size.to_string(), cell.batch.to_string(), cores.load.to_string());
    let mut common = vec![
        "--target",
        uri,
        "--connections",
        &connections,
        "--depth",
        &depth,
        "--size",
        &size,
        "--cpus",
        &cpu,
    ];
    common.extend(cell.workload.is_plain().then_some("--no-offload"));
    let kind = match cell.workload {
        Workload::Receive | Workload::Send => "receive",
        Workload::Echo => "echo",
        Workload::Srmp => "srmp",
        Workload::LengthField => "length-field",
        Workload::Udp | Workload::UdpPlain => "udp",
        Workload::UdpSend | Workload::UdpSendPlain => "udp-send",
        Workload::Rpc(..) => "rpc",
        Workload::Stream(_) | Workload::ManyStreams(_) => "stream",
    };
    match side {
        Side::Baseline => {
            let kind = match (cell.workload.is_udp(), cell.workload.is_echoed()) {
                (true, _) => kind,
                (false, true) => "echo",
                (false, false) => "sink",
            };
            with_exchange(strings(&["baseline-load", kind], &common), cell)
        }
        Side::Ours(driver) => {
            let (mode, wire) = match cell.workload {
                Workload::Rpc(mode, wire) => (mode, wire),
                Workload::Stream(wire) | Workload::ManyStreams(wire) => (CallMode::Unary, wire),
                _ => (CallMode::Unary, 1),
            };
            let streams = if matches!(cell.workload, Workload::ManyStreams(_)) { STREAMS } else { 1 };
            let (wire, frames, streams) = (wire.to_string(), FRAMES.to_string(), streams.to_string());
            let lead = [
                "load",
                kind,
                "--driver",
                driver.name(),
                "--threads",
                "1",
                "--batch",
                &batch,
                "--mode",
                mode.name(),
                "--wire",
                &wire,
                "--frames",
                &frames,
                "--streams",
                &streams,
                "--control",
            ];
            let mut arguments = strings(&lead, &common);
            if let Some(rate) = pace.rate {
                arguments.extend(["--rate".to_owned(), rate.to_string()]);
            }
            arguments
        }
    }
}

/// Tells the baseline what is to move, where it does not simply echo.
fn with_exchange(mut arguments: Vec<String>, cell: &Cell) -> Vec<String> {
    if cell.workload.is_rpc() {
        arguments.extend(["--exchange".to_owned(), cell.baseline_exchange().to_string()]);
    }
    arguments
}

fn strings(lead: &[&str], rest: &[&str]) -> Vec<String> {
    lead.iter().chain(rest).map(|s| (*s).to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ECHO: Cell = Cell { workload: Workload::Echo, connections: 4, depth: 1, size: 32, batch: 1 };

    #[test]
    fn rates_and_costs_come_from_the_deltas_of_each_side() {
        let at = |seconds: u64, messages: u64| Both {
            server: Snapshot {
                at_ns: seconds * 1_000_000_000,
                cpu_ns: messages * 500,
                heap_bytes: 7_000 + messages * 2,
                recv_calls: messages / 2,
                recv_bytes: messages * 32,
                ..Snapshot::default()
            },
            load: Snapshot {
                at_ns: seconds * 1_000_000_000,
                cpu_ns: messages * 300,
                messages,
                sent_bytes: messages * 32,
                ..Snapshot::default()
            },
        };
        let last = Snapshot { recv_bytes: 9600, sent_bytes: 9600, ..Snapshot::default() };
        let ends = Ends { last, ..Ends::default() };
        let totals = Snapshot { sent_bytes: 9600, recv_bytes: 9600, ..Snapshot::default() };
        let report = LoadReport { totals, ..LoadReport::default() };
        let measured = figures(&ECHO, &at(1, 100), &at(3, 300), report, &ends);
        assert_eq!(measured.msgs_per_s, 100.0);
        assert_eq!((measured.server_cpu_ns, measured.client_cpu_ns), (500.0, 300.0));
        assert_eq!((measured.server_heap, measured.client_heap), (2.0, 0.0));
        assert_eq!((measured.bytes_per_recv, measured.errors), (64.0, 0));
    }

    const CALLS: Cell =
        Cell { workload: Workload::Rpc(CallMode::Unary, 1), connections: 4, depth: 1, size: 47, batch: 1 };

    const PACE: Pace = Pace {
        warmup: Duration::ZERO,
        duration: Duration::ZERO,
        repeats: 1,
        receive_buffer: Some(65_536),
        rate: None,
    };

    #[test]
    fn a_receive_buffer_is_a_setting_of_our_server_alone() {
        let cores = Cores { server: 0, load: 1 };
        let ours = server_arguments(&ECHO, Side::Ours(Driver::Auto), cores, &PACE).join(" ");
        assert!(ours.contains("--receive-buffer 65536"));
        let baseline = server_arguments(&ECHO, Side::Baseline, cores, &PACE).join(" ");
        assert!(!baseline.contains("--receive-buffer"));
    }

    #[test]
    fn the_baseline_moves_what_calls_move() {
        let cores = Cores { server: 0, load: 1 };
        let streams = Cell { workload: Workload::Stream(2), size: 128, ..CALLS };
        for (cell, exchange) in [(CALLS, "--exchange 87:65"), (streams, "--exchange 18:16,16x144:144,16:16")]
        {
            let server = server_arguments(&cell, Side::Baseline, cores, &PACE).join(" ");
            let load = load_arguments(&cell, Side::Baseline, cores, &PACE, "tcp://127.0.0.1:1").join(" ");
            assert!(server.ends_with(exchange) && load.ends_with(exchange), "{server} / {load}");
        }
        assert!(!server_arguments(&ECHO, Side::Baseline, cores, &PACE).join(" ").contains("--exchange"));
    }

    #[test]
    fn a_rate_is_a_setting_of_our_load_alone() {
        let (cores, pace) = (Cores { server: 0, load: 1 }, Pace { rate: Some(5000), ..PACE });
        let arguments = |side| load_arguments(&CALLS, side, cores, &pace, "tcp://127.0.0.1:1").join(" ");
        assert!(arguments(Side::Ours(Driver::Auto)).ends_with("--rate 5000"));
        assert!(!arguments(Side::Baseline).contains("--rate"));
    }

    #[test]
    fn the_baseline_and_ours_are_bound_to_the_same_cores() {
        let cores = Cores { server: 3, load: 5 };
        for side in [Side::Baseline, Side::Ours(Driver::Auto)] {
            let pace = Pace { receive_buffer: None, ..PACE };
            let server = server_arguments(&ECHO, side, cores, &pace).join(" ");
            let load = load_arguments(&ECHO, side, cores, &pace, "tcp://127.0.0.1:1").join(" ");
            assert!(server.contains("--cpus 3") && load.contains("--cpus 5"), "{server} / {load}");
        }
    }
}
