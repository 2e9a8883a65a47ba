//! `corewire bench`: the library's figures beside the baseline's, from the same cores in the same run.

mod bytes;
mod calls;
mod child;
mod measure;
mod plan;
mod reports;
mod row;
mod stats;
pub(crate) mod table;

use std::io::IsTerminal;
use std::path::Path;

use corewire::runtime::driver::available_cpus;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use calls::latencies;
pub(crate) use child::Process;
pub(crate) use measure::Cores;
pub(crate) use row::{OpenLoad, Row};
pub(crate) use stats::{median, per};
pub(crate) use table::{rate, results};

use crate::args::{BenchArgs, BenchKind, Driver};
use crate::failure::Failure;
use crate::fairness;
use crate::system;
use crate::trend::Trend;
use measure::{Side, measure};
use plan::{Pace, Step};

/// So many failed cells end a benchmark early.
const FAILED_CELLS_MAX: usize = 3;

/// Measures all that is asked for and prints it; whether all rows are free of errors.
pub(crate) fn bench(args: &BenchArgs) -> Result<bool, Failure> {
    let cores = cores(args)?;
    let pace = plan::pace(args);
    if args.report && !matches!(args.kind, BenchKind::Rpc | BenchKind::Stream) {
        return Err(Failure::Setting(
            "--report is for rpc and stream; others have --reference report".into(),
        ));
    }
    if args.rate.is_some() && !matches!(args.kind, BenchKind::Rpc | BenchKind::Srmp | BenchKind::LengthField)
    {
        return Err(Failure::Setting("--rate is for rpc, srmp and length-field".into()));
    }
    let mut steps = plan::steps(args, other_driver());
    leave_out_what_does_not_fit(args, &mut steps)?;
    let runs: usize = steps.iter().map(|s| (s.drivers.len() + 1) * pace.repeats).sum();
    introduce(&steps, cores, &pace, runs);
    let rows = run_all(&steps, cores, &pace, runs);
    present(args, rows)
}

/// Connections that were asked for and do not fit the limit on open files are an error; a row of ours that does not
/// fit is left out, and said to be.
fn leave_out_what_does_not_fit(args: &BenchArgs, steps: &mut Vec<Step>) -> Result<(), Failure> {
    for step in steps.iter() {
        match system::check_fd_limit(step.cell.connections) {
            Err(failure) if args.connections.is_some() => return Err(failure),
            Err(failure) => {
                eprintln!("corewire: left out: {} C={}: {failure}", step.cell.name(), step.cell.connections)
            }
            Ok(()) => {}
        }
    }
    steps.retain(|step| system::check_fd_limit(step.cell.connections).is_ok());
    Ok(())
}

/// Measures all steps. A cell that cannot be measured becomes rows with the failure as their error; after
/// [`FAILED_CELLS_MAX`] of them the rest is left out, since each may have waited for its time-outs.
fn run_all(steps: &[Step], cores: Cores, pace: &Pace, runs: usize) -> Vec<Row> {
    let bar = progress(runs);
    let mut rows = Vec::new();
    let mut failed = 0;
    for step in steps {
        match run(step, cores, pace, &bar) {
            Ok(more) => rows.extend(more),
            Err(failure) => {
                failed += 1;
                let row =
                    |driver: &Driver| Row::failed(&step.cell, driver.name(), pace, &failure.to_string());
                rows.extend(step.drivers.iter().map(row));
            }
        }
        if failed == FAILED_CELLS_MAX {
            eprintln!("corewire: {failed} cells failed; the rest is left out");
            break;
        }
    }
    bar.finish_and_clear();
    rows
}

/// Prints and writes the rows; whether all of them are free of errors.
fn present(args: &BenchArgs, mut rows: Vec<Row>) -> Result<bool, Failure> {
    let is_beside_reports = args.reference.is_some() || args.report;
    if is_beside_reports {
        rows = rows.into_iter().map(Row::with_report).collect();
    }
    print!("{}", table::results(&rows));
    println!(
        "\nns and heap bytes are per message, p50 to p99.9 in µs; share is of the baseline, the median of paired runs"
    );
    let mut more = vec![calls::latencies(&rows), calls::ratios(&rows)];
    if is_beside_reports {
        more.extend([table::reports(&rows), calls::report(&rows)]);
    }
    more.iter().filter(|text| !text.is_empty()).for_each(|text| print!("\n{text}"));
    let fairness = match args.kind {
        BenchKind::All => beside_greedy_ones(args)?,
        _ => vec![],
    };
    if let Some(path) = &args.json {
        let all = (to_values(&rows)?, to_values(&fairness)?);
        write_rows(path, &[all.0, all.1].concat())?;
    }
    let valid = rows.iter().all(|row| row.errors == 0) && fairness.iter().all(|row| row.errors == 0);
    if !valid {
        eprintln!("corewire: some rows saw errors and are not valid");
    }
    Ok(valid)
}

/// The rows of `bench fairness` that the whole suite has; its lists are not for them.
fn beside_greedy_ones(args: &BenchArgs) -> Result<Vec<fairness::Row>, Failure> {
    println!();
    fairness::run(&BenchArgs { connections: None, size: None, quick: true, ..args.clone() })
}

fn to_values(rows: &[impl serde::Serialize]) -> Result<Vec<serde_json::Value>, Failure> {
    let values: Result<_, _> = rows.iter().map(serde_json::to_value).collect();
    values.map_err(Failure::io("cannot write the rows as JSON"))
}

/// Writes rows as one JSON array.
pub(crate) fn write_json(path: &Path, rows: &[Row]) -> Result<(), Failure> {
    write_rows(path, rows)
}

/// Writes rows of any kind as one JSON array.
pub(crate) fn write_rows(path: &Path, rows: &[impl serde::Serialize]) -> Result<(), Failure> {
    let mut text =
        serde_json::to_string_pretty(rows).map_err(Failure::io("cannot write the rows as JSON"))?;
    text.push('\n');
    std::fs::write(path, text).map_err(Failure::io(format!("cannot write {}", path.display())))
}

/// The repeats of one cell: the baseline, then each driver, and again.
fn run(step: &Step, cores: Cores, pace: &Pace, bar: &ProgressBar) -> Result<Vec<Row>, Failure> {
    let mut baselines = Vec::new();
    let mut ours = vec![Vec::new(); step.drivers.len()];
    let cell = &step.cell;
    let title = format!("{} C={} depth {} size {}", cell.name(), cell.connections, cell.depth, cell.size);
    for _ in 0..pace.repeats {
        bar.set_message(title.clone());
        baselines.push(measure(cell, Side::Baseline, cores, pace, &mut |_| ())?);
        bar.inc(1);
        for (ours, &driver) in ours.iter_mut().zip(&step.drivers) {
            let mut trend = Trend::default();
            ours.push(measure(cell, Side::Ours(driver), cores, pace, &mut |snapshot| {
                if trend.take(snapshot).is_some() {
                    say(bar, &format!("{title}, {}: {}", driver.name(), trend.latest()));
                }
            })?);
            bar.inc(1);
            leave(bar, &trend);
        }
    }
    Ok(ours.iter().map(|ours| Row::new(cell, pace, ours, &baselines)).collect())
}

/// The news of a second: beside the bar, or as a line where there is no terminal.
fn say(bar: &ProgressBar, news: &str) {
    if bar.is_hidden() {
        eprintln!("{news}");
    } else {
        bar.set_message(news.to_owned());
    }
}

/// The rates of a run by the second, where it lasted several.
fn leave(bar: &ProgressBar, trend: &Trend) {
    let chart = trend.chart();
    if chart.is_empty() {
        return;
    }
    if bar.is_hidden() {
        eprintln!("{}", trend.line());
    } else {
        bar.suspend(|| eprint!("{chart}"));
    }
}

/// The cores of server and load: those that are asked for, or the first two.
pub(crate) fn cores(args: &BenchArgs) -> Result<Cores, Failure> {
    let allowed = available_cpus();
    let (Some(&first), second) = (allowed.first(), allowed.get(1)) else {
        return Err(Failure::Setting("cannot tell which cores this process may use".into()));
    };
    let server = args.server_cpu.unwrap_or(first);
    let load = args.load_cpu.unwrap_or(*second.unwrap_or(&first));
    for core in [server, load] {
        if !allowed.contains(&core) {
            return Err(Failure::Setting(format!("core {core} is not among those it may use: {allowed:?}")));
        }
    }
    Ok(Cores { server, load })
}

/// The driver that `auto` does not choose here, where there is one.
fn other_driver() -> Option<Driver> {
    crate::serve::other_driver()
}

fn introduce(steps: &[Step], cores: Cores, pace: &Pace, runs: usize) {
    println!(
        "{} cells, {} runs of {:.2} s after {:.2} s of warm-up; server on core {}, load on core {}",
        steps.len(),
        runs,
        pace.duration.as_secs_f64(),
        pace.warmup.as_secs_f64(),
        cores.server,
        cores.load
    );
    if cores.server == cores.load {
        println!("server and load share one core: compare shares, not rates");
    }
    println!();
}

fn progress(runs: usize) -> ProgressBar {
    if !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} {elapsed}/{duration} {msg}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(runs as u64).with_style(style)
}
