//! `corewire bench tls`: the library beside a bare loop of rustls over epoll, with the same client.

mod bare;
mod client;
mod handshakes;

use std::path::PathBuf;
use std::time::Duration;

use corewire::DriverKind;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde::Serialize;

pub(crate) use self::bare::{TlsBaselineArgs, serve};
use self::client::Client;
use crate::args::BenchArgs;
use crate::bench::{Cores, Process, cores, median, per, table, write_rows};
use crate::failure::Failure;
use crate::serve::driver_name;

const START_TIMEOUT: Duration = Duration::from_secs(10);
const IDLE_CONNECTIONS: usize = 200;

/// One figure of the library, and that of the bare loop where there is one.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) driver: String,
    pub(super) figure: f64,
    pub(super) unit: &'static str,
    pub(super) baseline: Option<f64>,
    /// Of the pairs of runs, the median; by the processor time of the server where that is what is compared.
    pub(super) share: Option<f64>,
    pub(super) share_by_cpu: Option<f64>,
    pub(super) target: &'static str,
}

/// What a server is asked to do.
#[derive(Debug, Clone, Copy)]
enum Work {
    Echo { size: usize, depth: usize },
    Handshakes { resumed: bool },
}

impl Work {
    fn name(self) -> String {
        match self {
            Self::Echo { size, depth } => format!("echo {size} B, depth {depth}"),
            Self::Handshakes { resumed: false } => "handshakes, full".to_owned(),
            Self::Handshakes { resumed: true } => "handshakes, resumed".to_owned(),
        }
    }
}

/// What one run came to.
#[derive(Debug, Clone, Copy, Default)]
struct Run {
    per_second: f64,
    cpu_ns: f64,
    heap_bytes: f64,
}

/// Certificates for the run, in a directory that goes with it.
struct Certificates(PathBuf);

impl Certificates {
    fn new() -> Result<Self, Failure> {
        let directory = std::env::temp_dir().join(format!("corewire-bench-tls-{}", std::process::id()));
        std::fs::create_dir_all(&directory)
            .map_err(Failure::io("cannot make a directory for certificates"))?;
        let made = Self(directory);
        let failed = |error: rcgen::Error| Failure::Library(format!("cannot make certificates: {error}"));
        let mut params = CertificateParams::new(Vec::new()).map_err(failed)?;
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer =
            CertifiedIssuer::self_signed(params, KeyPair::generate().map_err(failed)?).map_err(failed)?;
        let key = KeyPair::generate().map_err(failed)?;
        let params = CertificateParams::new(vec!["localhost".to_owned()]).map_err(failed)?;
        let certificate = params.signed_by(&key, &issuer).map_err(failed)?;
        for (name, content) in
            [("ca.pem", issuer.pem()), ("cert.pem", certificate.pem()), ("key.pem", key.serialize_pem())]
        {
            std::fs::write(made.0.join(name), content).map_err(Failure::io("cannot write certificates"))?;
        }
        Ok(made)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        // Of no use to anybody if it stays.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Measures and prints.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    let cores = cores(args)?;
    let certificates = Certificates::new()?;
    let duration = Duration::from_millis(if args.quick { 300 } else { 1500 });
    let duration = args.duration.unwrap_or(duration);
    let pairs = if args.quick { 1 } else { 5 };
    let mut rows = Vec::new();
    for &driver in args.driver.drivers() {
        let ours = ["serve", "echo", "--threads", "1", "--driver", driver.name()];
        let bare = ["tls-baseline"];
        for work in [
            Work::Echo { size: 32, depth: 64 },
            Work::Echo { size: 65_536, depth: 1 },
            Work::Handshakes { resumed: false },
            Work::Handshakes { resumed: true },
        ] {
            let (mut of_ours, mut of_bare) = (Vec::new(), Vec::new());
            for pair in 0..pairs {
                let mut sides = [(true, &ours[..]), (false, &bare[..])];
                sides.rotate_left(pair % 2);
                for (is_ours, arguments) in sides {
                    let run = measure(arguments, work, cores, duration, &certificates)?;
                    if is_ours { of_ours.push(run) } else { of_bare.push(run) }
                }
            }
            rows.extend(compared(work, driver_name(driver), &of_ours, &of_bare));
        }
        rows.push(idle(&ours, cores, &certificates, driver_name(driver))?);
        rows.push(handshakes::polite(driver, cores, duration.max(Duration::from_secs(1)), &certificates.0)?);
    }
    let head =
        ["tls", "driver", "figure", "", "baseline", "share", "share by cpu", "target"].map(String::from);
    let mut lines = vec![table::Line::Cells(head.to_vec())];
    lines.extend(rows.iter().map(|row| {
        let share = |share: Option<f64>| share.map_or("-".into(), |share| format!("{share:.2}"));
        table::Line::Cells(vec![
            row.workload.clone(),
            row.driver.clone(),
            table::short(row.figure),
            row.unit.into(),
            row.baseline.map_or("-".into(), table::short),
            share(row.share),
            share(row.share_by_cpu),
            row.target.into(),
        ])
    }));
    print!("{}", table::print(&lines));
    if let Some(path) = &args.json {
        write_rows(path, &rows)?;
    }
    Ok(true)
}

fn compared(work: Work, driver: String, ours: &[Run], bare: &[Run]) -> Vec<Row> {
    let shares = |of: fn(&Run, &Run) -> f64| median(ours.iter().zip(bare).map(|(ours, bare)| of(ours, bare)));
    let figure = |runs: &[Run]| median(runs.iter().map(|run| run.per_second));
    let unit = if matches!(work, Work::Echo { .. }) { "messages/s" } else { "handshakes/s" };
    let mut rows = vec![Row {
        workload: work.name(),
        driver: driver.clone(),
        figure: figure(ours),
        unit,
        baseline: Some(figure(bare)),
        share: Some(shares(|ours, bare| per(ours.per_second, bare.per_second))),
        share_by_cpu: Some(shares(|ours, bare| per(bare.cpu_ns, ours.cpu_ns))),
        target: ">= 0.9",
    }];
    if matches!(work, Work::Echo { .. }) {
        let heap = |runs: &[Run]| median(runs.iter().map(|run| run.heap_bytes));
        rows.push(Row {
            workload: format!("{}, heap", work.name()),
            driver,
            figure: heap(ours),
            unit: "B/message",
            baseline: Some(heap(bare)),
            share: None,
            share_by_cpu: None,
            target: "0",
        });
    }
    rows
}

fn start(lead: &[&str], cores: Cores, certificates: &Certificates) -> Result<(Process, String), Failure> {
    let mut arguments: Vec<String> = lead.iter().map(|argument| (*argument).to_owned()).collect();
    let cpu = cores.server.to_string();
    let (cert, key) = (certificates.path("cert.pem"), certificates.path("key.pem"));
    for argument in
        ["--listen", "tls://127.0.0.1:0", "--control", "--cpus", &cpu, "--cert", &cert, "--key", &key]
    {
        arguments.push(argument.to_owned());
    }
    let mut server = Process::start("server", &arguments, &[DriverKind::ENV])?;
    let uri = server.line_after("listening on tls://", START_TIMEOUT)?;
    Ok((server, uri))
}

fn measure(
    lead: &[&str],
    work: Work,
    cores: Cores,
    duration: Duration,
    certificates: &Certificates,
) -> Result<Run, Failure> {
    let (mut server, address) = start(lead, cores, certificates)?;
    let client = Client::new(&address, &certificates.path("ca.pem"), cores.load)?;
    let mut before = server.snapshot()?;
    let mut snapshot = || server.snapshot();
    let (done, seconds) = match work {
        Work::Echo { size, depth } => client.echo(size, depth, duration, &mut || {
            before = snapshot()?;
            Ok(())
        })?,
        Work::Handshakes { resumed } => client.handshakes(resumed, duration)?,
    };
    let after = server.snapshot()?;
    server.tell("stop")?;
    server.finish()?;
    let of = |figure: u64, before: u64| figure.saturating_sub(before) as f64;
    Ok(Run {
        per_second: per(done as f64, seconds),
        cpu_ns: per(of(after.cpu_ns, before.cpu_ns), done as f64),
        heap_bytes: per(of(after.heap_bytes, before.heap_bytes), done as f64),
    })
}

/// What the server holds for a connection that has nothing to say.
fn idle(lead: &[&str], cores: Cores, certificates: &Certificates, driver: String) -> Result<Row, Failure> {
    let (mut server, address) = start(lead, cores, certificates)?;
    let client = Client::new(&address, &certificates.path("ca.pem"), cores.load)?;
    let held = |count: usize| (0..count).map(|_| client.connect()).collect::<Result<Vec<_>, _>>();
    // What is made once is not counted.
    let first = held(8)?;
    let empty = server.snapshot()?;
    let connections = held(IDLE_CONNECTIONS)?;
    let full = server.snapshot()?;
    drop((first, connections));
    server.tell("stop")?;
    server.finish()?;
    Ok(Row {
        workload: "an idle connection, heap".to_owned(),
        driver,
        figure: full.heap_live_bytes.saturating_sub(empty.heap_live_bytes) as f64 / IDLE_CONNECTIONS as f64,
        unit: "B",
        baseline: None,
        share: None,
        share_by_cpu: None,
        target: "<= 12,288",
    })
}
