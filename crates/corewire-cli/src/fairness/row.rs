//! One row of `bench fairness`.

use serde::Serialize;

use super::plan::{Cell, Pace};
use super::polite::PoliteReport;
use crate::bench::{median, per, table};
use crate::control::Snapshot;
use crate::percentiles::Percentiles;
use crate::run_control::LoadReport;

/// What a polite client may be made to wait, in µs.
pub(super) const P99_MAX_US: f64 = 3_000.0;
pub(super) const P999_MAX_US: f64 = 10_000.0;

/// What one run gave.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    driver: String,
    greedy_msgs_per_s: f64,
    polite: PoliteReport,
    errors: u64,
    first_error: Option<String>,
}

impl Measured {
    pub(super) fn new(
        driver: String,
        [before, after]: [Snapshot; 2],
        greedy: LoadReport,
        polite: PoliteReport,
        server: &Snapshot,
    ) -> Self {
        let seconds = (after.at_ns - before.at_ns) as f64 / 1e9;
        let of_server = (server.errors > 0).then(|| format!("the server counts {} errors", server.errors));
        Self {
            driver,
            greedy_msgs_per_s: per((after.messages - before.messages) as f64, seconds),
            errors: greedy.totals.errors + polite.errors + server.errors,
            first_error: polite.first_error.clone().or(greedy.first_error).or(of_server),
            polite,
        }
    }
}

/// The result of one cell with one server. A figure that was not measured is `null`.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    /// `fairness/` and the protocol of the greedy clients.
    pub(super) workload: String,
    /// The driver, or `baseline`: a bare epoll loop that sends back what it gets.
    pub(super) driver: String,
    /// Greedy ones.
    pub(super) connections: usize,
    /// Payload of a greedy request.
    pub(super) size: usize,
    pub(super) repeats: usize,
    pub(super) duration_s: f64,
    /// Answers that greedy clients read; `null` where they read none.
    pub(super) greedy_msgs_per_s: Option<f64>,
    /// Polite requests that were due, and those of them that were answered; over all repeats.
    pub(super) polite_due: u64,
    pub(super) polite_answered: u64,
    pub(super) polite_p50_us: Option<f64>,
    pub(super) polite_p99_us: Option<f64>,
    pub(super) polite_p999_us: Option<f64>,
    pub(super) polite_max_us: Option<f64>,
    /// How late polite requests were sent because of this machine alone.
    pub(super) own_delay_p99_us: Option<f64>,
    pub(super) own_delay_p999_us: Option<f64>,
    /// Whether p99 and p99.9 are within what a polite client may be made to wait.
    pub(super) is_target_met: Option<bool>,
    pub(crate) errors: u64,
    pub(super) first_error: Option<String>,
    #[serde(skip)]
    pub(super) has_failed: bool,
}

impl Row {
    pub(super) fn new(cell: &Cell, pace: &Pace, runs: &[Measured]) -> Self {
        let over =
            |of: fn(&Measured) -> Percentiles| Percentiles::over(&runs.iter().map(of).collect::<Vec<_>>());
        let polite = over(|run| run.polite.latency);
        let own_delay = over(|run| run.polite.own_delay);
        let rate = median(runs.iter().map(|run| run.greedy_msgs_per_s));
        Self {
            driver: runs.first().map(|run| run.driver.clone()).unwrap_or_default(),
            repeats: runs.len(),
            greedy_msgs_per_s: cell.protocol.is_answered().then_some(rate),
            polite_due: runs.iter().map(|run| run.polite.due).sum(),
            polite_answered: runs.iter().map(|run| run.polite.answered).sum(),
            polite_p50_us: polite.map(|polite| polite.p50_us),
            polite_p99_us: polite.map(|polite| polite.p99_us),
            polite_p999_us: polite.map(|polite| polite.p999_us),
            polite_max_us: polite.map(|polite| polite.max_us),
            own_delay_p99_us: own_delay.map(|own| own.p99_us),
            own_delay_p999_us: own_delay.map(|own| own.p999_us),
            is_target_met: polite.map(|polite| polite.p99_us <= P99_MAX_US && polite.p999_us <= P999_MAX_US),
            errors: runs.iter().map(|run| run.errors).sum(),
            first_error: runs.iter().find_map(|run| run.first_error.clone()),
            ..Self::of(cell, pace)
        }
    }

    /// The row of a cell that could not be measured.
    pub(super) fn failed(cell: &Cell, driver: &str, pace: &Pace, failure: &str) -> Self {
        Self {
            driver: driver.into(),
            errors: 1,
            first_error: Some(failure.into()),
            has_failed: true,
            ..Self::of(cell, pace)
        }
    }

    fn of(cell: &Cell, pace: &Pace) -> Self {
        Self {
            workload: format!("fairness/{}", cell.protocol.name()),
            connections: cell.connections,
            size: cell.size,
            duration_s: pace.duration.as_secs_f64(),
            ..Self::default()
        }
    }
}

/// The rows, one block for each protocol.
pub(super) fn table(rows: &[Row]) -> String {
    let head = [
        "driver",
        "greedy",
        "size",
        "greedy msg/s",
        "p50",
        "p99",
        "p99.9",
        "max",
        "answered",
        "due",
        "own",
        "err",
        "target",
    ];
    let mut lines = vec![table::Line::Cells(head.map(String::from).to_vec())];
    let mut workload = "";
    for row in rows {
        if row.workload != workload {
            workload = &row.workload;
            lines.push(table::Line::Title(workload.to_owned()));
        }
        lines.push(table::Line::Cells(cells(row)));
        if row.errors > 0 {
            let story = row.first_error.as_deref().unwrap_or("no story");
            lines.push(table::Line::Title(format!(
                "  ^ NOT VALID: {} errors, the first: {story}",
                row.errors
            )));
        }
    }
    table::print(&lines)
}

fn cells(row: &Row) -> Vec<String> {
    let some = |value: Option<f64>| value.map_or("-".into(), table::short);
    let target = match row.is_target_met {
        // The bare loop is there to be compared with.
        _ if row.driver == "baseline" => "",
        None => "-",
        Some(true) => "met",
        Some(false) => "NOT MET",
    };
    vec![
        row.driver.clone(),
        row.connections.to_string(),
        table::size(row.size),
        row.greedy_msgs_per_s.map_or("-".into(), table::rate),
        some(row.polite_p50_us),
        some(row.polite_p99_us),
        some(row.polite_p999_us),
        some(row.polite_max_us),
        row.polite_answered.to_string(),
        row.polite_due.to_string(),
        some(row.own_delay_p99_us),
        row.errors.to_string(),
        target.into(),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::plan::Protocol;
    use super::*;

    fn plain() -> (Cell, Pace) {
        let second = std::time::Duration::from_secs(1);
        let pace = Pace { warmup: second, duration: second, repeats: 1, period: second };
        (Cell { protocol: Protocol::Srmp, connections: 64, size: 28 }, pace)
    }

    fn measured(p99_us: f64, p999_us: f64) -> Measured {
        let latency = Percentiles {
            samples: 2000,
            p50_us: 50.0,
            p99_us,
            p999_us,
            max_us: 5e6,
            ..Percentiles::default()
        };
        let own_delay = Percentiles { samples: 2000, p99_us: 90.0, ..Percentiles::default() };
        let polite =
            PoliteReport { due: 2000, answered: 1999, latency, own_delay, ..PoliteReport::default() };
        let greedy_msgs_per_s = 12_345_678.0;
        Measured { driver: "uring".into(), greedy_msgs_per_s, polite, ..Measured::default() }
    }

    fn row(p99_us: f64, p999_us: f64) -> Row {
        let (cell, pace) = plain();
        Row::new(&cell, &pace, &[measured(p99_us, p999_us)])
    }

    #[test]
    fn the_target_has_two_sides() {
        assert_eq!(row(3_000.0, 10_000.0).is_target_met, Some(true));
        assert_eq!(row(3_001.0, 5_000.0).is_target_met, Some(false));
        assert_eq!(row(1_000.0, 10_001.0).is_target_met, Some(false));
    }

    #[test]
    fn a_table_of_rows_is_aligned_within_120_columns_and_says_what_missed() {
        let (cell, pace) = plain();
        let baseline = Row { driver: "baseline".into(), ..row(9e3, 9e5) };
        let rows = [baseline, row(1.0, 2.0), row(2e6, 3e6), Row::failed(&cell, "epoll", &pace, "it broke")];
        let text = table(&rows);
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert_eq!(text.matches("NOT MET").count(), 1, "{text}");
        assert!(text.contains("NOT VALID: 1 errors, the first: it broke"), "{text}");
        assert_eq!(text.matches("fairness/srmp").count(), 1, "{text}");
    }

    #[test]
    fn errors_of_any_of_the_three_processes_spoil_the_row() {
        let greedy = |errors| LoadReport {
            totals: Snapshot { errors, ..Snapshot::default() },
            first_error: (errors > 0).then(|| "greedy".into()),
            ..LoadReport::default()
        };
        let polite = |errors| PoliteReport { errors, ..PoliteReport::default() };
        let server = |errors| Snapshot { errors, ..Snapshot::default() };
        let of = |g, p, s| Measured::new(String::new(), Default::default(), greedy(g), polite(p), &server(s));
        assert_eq!((of(1, 0, 0).errors, of(0, 1, 0).errors, of(0, 0, 1).errors), (1, 1, 1));
        assert_eq!(of(1, 0, 1).first_error.as_deref(), Some("greedy"));
        assert_eq!(of(0, 0, 2).first_error.as_deref(), Some("the server counts 2 errors"));
    }
}
