//! The tables that only calls and streams have.

use super::row::Row;
use super::stats::per;
use super::table::{Line, print, rate, short, size};
use crate::percentiles::Percentiles;

/// The 99th percentile of whole streams may be so many times their mean.
const P99_BY_MEAN_MAX: f64 = 5.0;
/// The slowest of streams side by side is to come so far, by the mean.
const FAIRNESS_MIN: f64 = 0.5;

/// The distributions of calls and streams in µs; empty where no row is of them.
pub(crate) fn latencies(rows: &[Row]) -> String {
    let head = [
        "latency, µs",
        "driver",
        "conns",
        "depth",
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
    for row in rows.iter().filter(|row| row.is_of_rpc()) {
        let Some(messages) = row.latency() else { continue };
        lines.push(line(row, row.workload.clone(), &messages));
        if let Some(fairness) = row.fairness {
            let verdict =
                if fairness < FAIRNESS_MIN { format!(", below {FAIRNESS_MIN}") } else { String::new() };
            lines.push(Line::Title(format!(
                "  ^ fairness: the slowest stream had {fairness:.2} of the mean{verdict}"
            )));
        }
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

/// Ours beside the figures of report 003; empty where no row has one.
pub(crate) fn report(rows: &[Row]) -> String {
    let head = [
        "report 003",
        "driver",
        "conns",
        "depth",
        "size",
        "msg/s",
        "report's",
        "factor",
        "MiB/s",
        "report's",
        "p99",
        "report's",
    ];
    let mut lines = vec![Line::Cells(head.map(String::from).to_vec())];
    for row in rows.iter().filter(|row| row.is_of_rpc()) {
        let (Some(figure), Some(factor)) = (row.report_msgs_per_s, row.report_factor) else { continue };
        // As the report counts: payload there and back.
        let mib_per_s = |msgs_per_s: f64| short(msgs_per_s * 2.0 * row.size as f64 / f64::from(1 << 20));
        let p99_us = row.stream_latency.map(|streams| streams.p99_us).or(row.p99_us);
        let us = |p99_us: Option<f64>| p99_us.map_or("-".into(), short);
        let mut cells = lead(row, row.workload.clone());
        cells.extend([rate(row.msgs_per_s), rate(figure), format!("{factor:.1}x")]);
        cells.extend([mib_per_s(row.msgs_per_s), mib_per_s(figure), us(p99_us), us(row.report_p99_us)]);
        lines.push(Line::Cells(cells));
    }
    if lines.len() == 1 {
        return String::new();
    }
    print(&lines) + "MiB/s is payload in both directions; p99 in µs, of streams that of whole ones\n"
}

/// Modes by unary calls, and version 2 by version 1, of rows that are otherwise alike; empty where there are none.
pub(crate) fn ratios(rows: &[Row]) -> String {
    let mut lines = vec![];
    for row in rows.iter().filter(|row| row.is_of_rpc()) {
        let Some(base) =
            base_of(&row.workload).and_then(|base| rows.iter().find(|r| is_alike(r, row, &base)))
        else {
            continue;
        };
        // Shares of the baseline where there are some: it was measured beside each of the two.
        let ratio = match (row.share_of_baseline, base.share_of_baseline) {
            (Some(share), Some(base_share)) => per(share, base_share),
            _ => per(row.msgs_per_s, base.msgs_per_s),
        };
        let mut cells = lead(row, row.workload.clone());
        cells.push(format!("{ratio:.2} of {}", base.workload));
        lines.push(Line::Cells(cells));
    }
    print(&lines)
}

/// The workload that another is compared with.
fn base_of(workload: &str) -> Option<String> {
    if let Some(mode) = workload.strip_prefix("rpc2/") {
        return Some(format!("rpc/{mode}"));
    }
    if let Some(rest) = workload.strip_prefix("stream2") {
        return Some(format!("stream{rest}"));
    }
    (workload.starts_with("rpc/") && workload != "rpc/unary").then(|| "rpc/unary".into())
}

fn is_alike(row: &Row, other: &Row, workload: &str) -> bool {
    row.workload == workload
        && (&row.driver, row.connections, row.depth, row.size)
            == (&other.driver, other.connections, other.depth, other.size)
}

/// What says which row it is.
fn lead(row: &Row, name: String) -> Vec<String> {
    vec![name, row.driver.clone(), row.connections.to_string(), row.depth.to_string(), size(row.size)]
}

fn line(row: &Row, name: String, latency: &Percentiles) -> Line {
    let mut cells = lead(row, name);
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
    fn fairness_is_said_and_the_lack_of_it_pointed_out() {
        let told = |fairness| latencies(&[row("stream/many", None).with_fairness(Some(fairness))]);
        assert!(told(0.5).contains("the slowest stream had 0.50 of the mean\n"), "{}", told(0.5));
        assert!(told(0.3).contains("0.30 of the mean, below 0.5"), "{}", told(0.3));
    }

    fn call(workload: &str, share: f64) -> Row {
        let (driver, share_of_baseline) = ("uring".into(), Some(share));
        let workload = workload.into();
        Row { workload, driver, connections: 200, depth: 4, size: 47, share_of_baseline, ..Row::default() }
    }

    #[test]
    fn modes_are_compared_with_unary_and_version_2_with_version_1() {
        let mut other = call("rpc2/bidi", 0.1);
        other.connections = 7;
        let rows = [
            call("rpc/unary", 0.8),
            call("rpc/bidi", 0.76),
            call("rpc2/unary", 0.84),
            call("echo", 1.0),
            other,
        ];
        let text = ratios(&rows);
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("0.95 of rpc/unary") && text.contains("1.05 of rpc/unary"), "{text}");
    }

    #[test]
    fn the_report_counts_payload_in_both_directions() {
        let mut row = call("rpc/unary", 0.5);
        (row.connections, row.depth, row.size, row.msgs_per_s) = (100, 1, 256, 183_338.0);
        let text = report(&[row.with_report()]);
        // Both rates are the report's, which gives 89.52 MiB/s and a P99 of 1,824 µs.
        assert!(text.contains("1.0x   89.5      89.5    -      1824"), "{text}");
        assert_eq!(report(&[call("rpc2/unary", 0.5).with_report()]), "");
    }

    #[test]
    fn other_workloads_have_no_such_table() {
        assert_eq!(latencies(&[row("echo", None)]), "");
    }
}
