//! `corewire bench kcp`: KCP beside TCP over the same simulated path, and KCP by itself.
//!
//! The path is one for IP packets where that can be had: a TUN device in a network namespace of its own, which takes
//! root or unprivileged user namespaces, and `unshare` to get there. Without it KCP goes over a path of datagrams, and
//! TCP, whose packets a program cannot lose otherwise, is left out.

mod measure;
mod path;
mod protocol;
mod row;
mod targets;
#[cfg(target_os = "linux")]
mod tun;

use std::process::{Command, Stdio};
use std::time::Duration;

use corewire_link::link::LinkConfig;

use self::measure::{Endpoints, Work};
use self::path::{Builder, Kind, Path};
use self::protocol::Protocol;
use self::row::Row;
use crate::args::{BenchArgs, Driver};
use crate::bench::write_rows;
use crate::failure::Failure;
use crate::system;

/// Tells a process that it is in a namespace of its own: `probe` or `run`.
const INSIDE: &str = "COREWIRE_BENCH_KCP_INSIDE";
const SIZE: usize = 1024;
/// Conversations whose messages are timed, and how far apart each sends.
const CONVERSATIONS: usize = 64;
const EVERY: Duration = Duration::from_millis(20);
const SESSIONS: usize = 10_000;
/// What the line carries, in bits per second.
const LINE_BPS: u64 = 100_000_000;

/// What is measured, and for how long.
struct Plan {
    losses: &'static [f64],
    round_trips_ms: &'static [u64],
    /// The same of the line, which has a rate.
    line_losses: &'static [f64],
    line_round_trips_ms: &'static [u64],
    /// Time, and round trips, before anything is measured: TCP has to find its pace, and KCP the time of a round trip.
    warm_up: (Duration, u32),
    bulk: Duration,
    messages: Duration,
    /// How long after the last message what is still on its way may arrive.
    patience: Duration,
    sessions: Duration,
    size: usize,
    driver: Driver,
}

impl Plan {
    fn new(args: &BenchArgs) -> Self {
        let quick = args.quick;
        let usual = |quick_s: f64, full_s: f64| {
            args.duration.unwrap_or(Duration::from_secs_f64(if quick { quick_s } else { full_s }))
        };
        Self {
            losses: if quick { &[0.0, 0.1] } else { &[0.0, 0.01, 0.05, 0.1, 0.3] },
            round_trips_ms: &[1, 30, 100],
            line_losses: &[0.0, 0.01, 0.1],
            line_round_trips_ms: if quick { &[30] } else { &[30, 100] },
            warm_up: if quick { (Duration::from_millis(200), 12) } else { (Duration::from_millis(500), 25) },
            bulk: usual(0.5, 2.0),
            messages: usual(1.0, 5.0),
            patience: Duration::from_secs(if quick { 3 } else { 10 }),
            sessions: usual(2.0, 5.0),
            size: args.size.as_ref().and_then(|sizes| sizes.0.first().copied()).unwrap_or(SIZE),
            driver: args.driver.drivers().first().copied().unwrap_or(Driver::Auto),
        }
    }
}

/// Measures and prints; whether every KCP message was delivered once and in order.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    let plan = Plan::new(args);
    match std::env::var(INSIDE).as_deref() {
        Ok("probe") => return Builder::new(Kind::Tun, 0).map(|_| true),
        Ok(_) => return tell(&over_paths(&plan, Kind::Tun)?),
        Err(_) => {}
    }
    let mut rows = match enter() {
        Ok(command) => {
            println!(
                "the path carries IP packets through a TUN device, the same for KCP and TCP ({})\n",
                tcp()
            );
            ask(command)?
        }
        Err(why) => {
            println!("the path carries datagrams; TCP is left out, since no TUN device can be had: {why}\n");
            over_paths(&plan, Kind::Proxy)?
        }
    };
    rows.push(bulk(&plan)?);
    rows.push(many(&plan, SESSIONS.min(system::connections_max().saturating_sub(64)))?);
    present(args, &plan, &rows)
}

fn present(args: &BenchArgs, plan: &Plan, rows: &[Row]) -> Result<bool, Failure> {
    print!("{}", row::table(rows));
    println!("\np50, p99, max: ms from send to arrival of messages of {} B; cpu is of one core", plan.size);
    targets::lines(rows).iter().for_each(|line| println!("{line}"));
    if let Some(path) = &args.json {
        write_rows(path, rows)?;
    }
    let valid = rows.iter().all(Row::is_valid);
    if !valid {
        eprintln!("corewire: some rows saw errors and are not valid");
    }
    Ok(valid)
}

/// How TCP answers to loss on this machine.
fn tcp() -> String {
    let found = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_congestion_control");
    found.map_or_else(|_| "TCP as the system sets it".to_owned(), |name| format!("TCP with {}", name.trim()))
}

/// Writes rows for the process that has started this one.
fn tell(rows: &[Row]) -> Result<bool, Failure> {
    let text = serde_json::to_string(rows).map_err(Failure::io("cannot write the rows as JSON"))?;
    println!("{text}");
    Ok(true)
}

fn ask(mut command: Command) -> Result<Vec<Row>, Failure> {
    let output = command.env(INSIDE, "run").stderr(Stdio::inherit()).output();
    let output = output.map_err(Failure::io("cannot run unshare"))?;
    if !output.status.success() {
        return Err(Failure::Library(format!("the measuring over the path ended with {}", output.status)));
    }
    serde_json::from_slice(&output.stdout).map_err(Failure::io("cannot read the rows of the path"))
}

/// A command that runs this one again where it can make a TUN device; or why there is none.
fn enter() -> Result<Command, String> {
    let here = std::env::current_exe().map_err(|error| error.to_string())?;
    let command = |flags: &str| {
        let mut command = Command::new("unshare");
        command.arg(flags).arg("--").arg(&here).args(std::env::args_os().skip(1));
        command
    };
    let mut why = String::new();
    // As root; or as root of a user namespace, which is nobody outside.
    for flags in ["-n", "-rn"] {
        let output = command(flags).env(INSIDE, "probe").output();
        match output {
            Ok(output) if output.status.success() => return Ok(command(flags)),
            Ok(output) => why = String::from_utf8_lossy(&output.stderr).trim().to_owned(),
            Err(error) => why = format!("cannot run unshare: {error}"),
        }
    }
    Err(why)
}

fn over_paths(plan: &Plan, kind: Kind) -> Result<Vec<Row>, Failure> {
    let mut rows = Vec::new();
    for &round_trip_ms in plan.round_trips_ms {
        for &loss in plan.losses {
            for protocol in
                protocols(kind, &[Protocol::Kcp, Protocol::KcpBbr, Protocol::KcpFec, Protocol::Tcp])
            {
                rows.push(over_path(plan, kind, protocol, loss, round_trip_ms)?);
            }
        }
    }
    for &round_trip_ms in plan.line_round_trips_ms {
        for &loss in plan.line_losses {
            let path = line(loss, round_trip_ms);
            for protocol in protocols(kind, &[Protocol::KcpBbr, Protocol::TcpBbr, Protocol::TcpCubic]) {
                if is_available(protocol) {
                    let mut row = Row::new("line", protocol.name(), plan.driver, loss, round_trip_ms);
                    goodput(plan, kind, protocol, &path, &mut row)?;
                    rows.push(row);
                }
            }
        }
    }
    Ok(rows)
}

/// A line that carries 100 Mbit/s and holds as much before it as is under way on it.
fn line(loss: f64, round_trip_ms: u64) -> LinkConfig {
    LinkConfig {
        bandwidth_bps: Some(LINE_BPS),
        queue_bytes: (LINE_BPS / 8 * round_trip_ms / 1000) as usize,
        ..LinkConfig::lossy(loss, round_trip_ms * 1000)
    }
}

/// Those of them whose packets a path of this kind can lose.
fn protocols(kind: Kind, all: &'static [Protocol]) -> impl Iterator<Item = Protocol> {
    all.iter().copied().filter(move |protocol| kind == Kind::Tun || protocol.is_kcp())
}

/// The kernel has the congestion control that TCP is to use.
fn is_available(protocol: Protocol) -> bool {
    const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
    let Some(name) = protocol.tcp_congestion() else { return true };
    let available = std::fs::read_to_string(AVAILABLE).unwrap_or_default();
    let is_known = available.split_whitespace().any(|known| known == name);
    if !is_known {
        eprintln!("corewire: no rows of {}: this kernel has only {}", protocol.name(), available.trim());
    }
    is_known
}

/// How long a protocol gets to find its pace on a path.
fn warm_up(plan: &Plan, round_trip_ms: u64) -> Duration {
    let (time, round_trips) = plan.warm_up;
    time + Duration::from_millis(round_trip_ms) * round_trips
}

/// Goodput of one connection. It is made before the path begins to lose, but with its delay: BBR takes the shortest round
/// trip that it has seen for the true one.
fn goodput(
    plan: &Plan,
    kind: Kind,
    protocol: Protocol,
    bad: &LinkConfig,
    row: &mut Row,
) -> Result<(), Failure> {
    let path = Builder::new(kind, 1)?;
    let endpoints = Endpoints::new(protocol, Path::server_ip(kind), Work::Count, plan.driver)?;
    let path = path.to(endpoints.address()?)?;
    path.set_config(LinkConfig { loss: 0.0, ..bad.clone() });
    if let Some(name) = protocol.tcp_congestion() {
        path.set_tcp_congestion(name)?;
    }
    let client = endpoints.connect(&uri(protocol, &path, &endpoints)?, 1, Work::Count)?;
    path.set_config(bad.clone());
    client.into_iter().try_for_each(|client| endpoints.send_bulk(client))?;
    std::thread::sleep(warm_up(plan, row.round_trip_ms));
    endpoints.take();
    let cost = endpoints.cost_of(|| std::thread::sleep(plan.bulk))?;
    row.bulk(endpoints.take().bytes, &cost);
    Ok(())
}

/// Goodput, and then the latency of messages at a fixed pace.
fn over_path(
    plan: &Plan,
    kind: Kind,
    protocol: Protocol,
    loss: f64,
    round_trip_ms: u64,
) -> Result<Row, Failure> {
    let bad = LinkConfig::lossy(loss, round_trip_ms * 1000);
    let warm_up = warm_up(plan, round_trip_ms);
    let mut row = Row::new("path", protocol.name(), plan.driver, loss, round_trip_ms);
    goodput(plan, kind, protocol, &bad, &mut row)?;
    let path = Builder::new(kind, 1)?;
    let endpoints = Endpoints::new(protocol, Path::server_ip(kind), Work::Check, plan.driver)?;
    let path = path.to(endpoints.address()?)?;
    path.set_config(LinkConfig { loss: 0.0, ..bad.clone() });
    let clients = endpoints.connect(&uri(protocol, &path, &endpoints)?, CONVERSATIONS, Work::Check)?;
    let sent = endpoints.send_messages(clients, plan.size, EVERY, warm_up + plan.messages)?;
    std::thread::sleep(warm_up);
    let before = endpoints.take().delivered;
    path.set_config(bad);
    std::thread::sleep(plan.messages);
    endpoints.await_delivered(sent - before, plan.patience);
    row.messages(sent - before, &endpoints.take());
    Ok(row)
}

fn uri(protocol: Protocol, path: &Path, endpoints: &Endpoints) -> Result<String, Failure> {
    Ok(format!("{}://{}", protocol.scheme(), path.entrance(endpoints.address()?)))
}

/// One conversation over the loopback, as fast as it goes.
fn bulk(plan: &Plan) -> Result<Row, Failure> {
    let endpoints = Endpoints::new(Protocol::Kcp, "127.0.0.1", Work::Count, plan.driver)?;
    let uri = format!("kcp://{}", endpoints.address()?);
    endpoints
        .connect(&uri, 1, Work::Count)?
        .into_iter()
        .try_for_each(|client| endpoints.send_bulk(client))?;
    std::thread::sleep(Duration::from_millis(300));
    endpoints.take();
    let cost = endpoints.cost_of(|| std::thread::sleep(plan.bulk.max(Duration::from_secs(1))))?;
    let mut row = Row::new("bulk", "kcp", plan.driver, 0.0, 0);
    row.bulk(endpoints.take().bytes, &cost);
    Ok(row)
}

/// Many conversations on one port, a message a second each, echoed.
fn many(plan: &Plan, sessions: usize) -> Result<Row, Failure> {
    let endpoints = Endpoints::new(Protocol::Kcp, "127.0.0.1", Work::Echo, plan.driver)?;
    let uri = format!("kcp://{}", endpoints.address()?);
    let clients = endpoints.connect(&uri, sessions, Work::Echo)?;
    let second = Duration::from_secs(1);
    let sent = endpoints.send_messages(clients, plan.size, second, plan.sessions + second)?;
    std::thread::sleep(second);
    let warm_up = endpoints.take();
    let cost = endpoints.cost_of(|| std::thread::sleep(plan.sessions))?;
    let mut row = Row::new("sessions", "kcp", plan.driver, 0.0, 0);
    row.connections = endpoints.sessions();
    endpoints.await_delivered(sent - warm_up.delivered, plan.patience);
    let tally = endpoints.take();
    row.messages(sent - warm_up.delivered, &tally);
    row.cost(&cost, tally.delivered);
    Ok(row)
}
