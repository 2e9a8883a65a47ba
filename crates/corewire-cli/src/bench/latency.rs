//! The table of latencies.

use super::row::Row;
use super::table::{Line, print, short, size};
use crate::percentiles::Percentiles;

/// The 99th percentile of whole streams may be so many times their mean.
const P99_BY_MEAN_MAX: f64 = 5.0;

/// The distributions of calls and streams in µs; empty where no row is of them.
pub(crate) fn latencies(rows: &[Row]) -> String {
    let head = [
        "latency, µs",
        "driver",
        "conns",
        "win",
        "size",
        "avg",
        "p50",
        "p90",
        "p95",
        "p99",
        "p99.9",
        "max",
        "p99/avg",
        "err",
    ];
    let mut lines = vec![Line::Cells(head.map(String::from).to_vec())];
    for row in rows.iter().filter(|row| is_of_rpc(row)) {
        let Some(messages) = row.latency() else { continue };
        lines.push(line(row, row.workload.clone(), &messages));
        let Some(streams) = &row.stream_latency else { continue };
        lines.push(line(row, format!("{} whole", row.workload), streams));
        if streams.p99_by_mean() > P99_BY_MEAN_MAX {
            lines.push(Line::Title(format!(
                "  ^ the p99 of whole streams is {:.1} times their mean, over {P99_BY_MEAN_MAX}",
                streams.p99_by_mean()
            )));
        }
    }
    if lines.len() == 1 { String::new() } else { print(&lines) }
}

fn is_of_rpc(row: &Row) -> bool {
    row.workload.starts_with("rpc") || row.workload.starts_with("stream")
}

fn line(row: &Row, name: String, latency: &Percentiles) -> Line {
    let mut cells =
        vec![name, row.driver.clone(), row.connections.to_string(), row.window.to_string(), size(row.size)];
    let Percentiles { mean_us, p50_us, p90_us, p95_us, p99_us, p999_us, max_us, .. } = *latency;
    cells.extend([mean_us, p50_us, p90_us, p95_us, p99_us, p999_us, max_us].map(short));
    cells.extend([format!("{:.1}", latency.p99_by_mean()), row.errors.to_string()]);
    Line::Cells(cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn percentiles(p99_us: f64) -> Percentiles {
        Percentiles {
            samples: 100,
            mean_us: 100.0,
            p50_us: 90.0,
            p90_us: 150.0,
            p95_us: 200.0,
            p99_us,
            p999_us: 123_456.0,
            max_us: 1_234_567.0,
        }
    }

    fn row(workload: &str, streams: Option<Percentiles>) -> Row {
        let row =
            Row { workload: workload.into(), driver: "uring".into(), connections: 10_000, ..Row::default() };
        row.with_latency(Some(percentiles(300.0)), streams)
    }

    #[test]
    fn calls_have_one_line_and_streams_two_within_120_columns() {
        let text = latencies(&[row("rpc2/client-stream", None), row("stream", Some(percentiles(499.0)))]);
        assert_eq!(text.lines().count(), 4, "{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
        assert!(text.contains("stream whole") && !text.contains('^'), "{text}");
    }

    #[test]
    fn a_long_tail_of_whole_streams_is_said() {
        let text = latencies(&[row("stream", Some(percentiles(510.0)))]);
        assert!(text.contains("the p99 of whole streams is 5.1 times their mean, over 5"), "{text}");
    }

    #[test]
    fn other_workloads_have_no_such_table() {
        assert_eq!(latencies(&[row("echo", None)]), "");
    }
}
