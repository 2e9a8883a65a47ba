//! Tables for a terminal of 120 columns.

use super::reports::HISTORIC_GOAL;
use super::row::{OpenLoad, Row};

const GAP: &str = "  ";

/// The results, one block for each workload.
pub(crate) fn results(rows: &[Row]) -> String {
    let head = [
        "driver", "conns", "depth", "size", "msg/s", "Mbit/s", "ns/msg", "srv ns", "heap B", "p50", "p99",
        "p99.9", "B/recv", "err", "base", "share",
    ];
    let mut lines = vec![Line::Cells(head.map(String::from).to_vec())];
    let mut workload = "";
    for row in rows {
        if row.workload != workload {
            workload = &row.workload;
            lines.push(Line::Title(workload.to_owned()));
        }
        lines.push(Line::Cells(cells(row)));
        if let (Some(sent), Some(lost)) = (row.datagrams_sent, row.datagrams_lost) {
            let share = 100.0 * lost as f64 / sent.max(1) as f64;
            lines.push(Line::Title(format!(
                "  {sent} datagrams sent, {lost} did not come back ({share:.2} %)"
            )));
        }
        if let Some(open) = &row.open {
            lines.push(Line::Title(at_a_rate(row, open)));
        }
        if row.errors > 0 {
            let story = row.first_error.as_deref().unwrap_or("no story");
            lines.push(Line::Title(format!("  ^ NOT VALID: {} errors, the first: {story}", row.errors)));
        }
    }
    print(&lines)
}

/// Ours beside the figures of the performance reports; empty where no row has one.
pub(crate) fn reports(rows: &[Row]) -> String {
    let head = [
        "workload", "driver", "conns", "depth", "msg/s", "report's", "factor", "heap B", "report's", "report",
    ];
    let mut lines = vec![Line::Cells(head.map(String::from).to_vec())];
    for row in rows.iter().filter(|row| !row.is_of_rpc()) {
        let (Some(report), Some(figure), Some(factor)) =
            (row.report, row.report_msgs_per_s, row.report_factor)
        else {
            continue;
        };
        lines.push(Line::Cells(vec![
            row.workload.clone(),
            row.driver.clone(),
            row.connections.to_string(),
            row.depth.to_string(),
            rate(row.msgs_per_s),
            rate(figure),
            format!("{factor:.1}x"),
            short(row.heap_bytes_per_msg),
            row.report_heap_bytes_per_msg.map_or("-".into(), short),
            report.into(),
        ]));
    }
    if lines.len() == 1 {
        return String::new();
    }
    let mut text = print(&lines);
    if let Some(best) =
        rows.iter().filter(|r| r.workload == "receive/single").map(|r| r.msgs_per_s).reduce(f64::max)
    {
        text += &format!(
            "historic goal of the reports, receive/single: {} packets/s; ours at best {} ({:.2}x)\n",
            rate(HISTORIC_GOAL),
            rate(best),
            best / HISTORIC_GOAL
        );
    }
    text
}

/// A line of a table.
pub(crate) enum Line {
    Title(String),
    Cells(Vec<String>),
}

/// A target that answers less than this share of the rate did not keep up.
const KEPT_UP: f64 = 0.99;

fn at_a_rate(row: &Row, open: &OpenLoad) -> String {
    let messages = row.msgs_per_s * row.duration_s * row.repeats as f64;
    let late = super::stats::per(open.late as f64, messages);
    let did_keep_up = row.msgs_per_s >= KEPT_UP * open.rate as f64;
    format!(
        "  ^ {}{} a second were to be sent; {} ({:.2} %) were sent over 1 ms late, {} never",
        if did_keep_up { "" } else { "DID NOT KEEP UP: " },
        open.rate,
        open.late,
        late * 100.0,
        open.unsent
    )
}

fn cells(row: &Row) -> Vec<String> {
    let us = |value: Option<f64>| value.map_or("-".into(), short);
    vec![
        row.driver.clone(),
        row.connections.to_string(),
        row.depth.to_string(),
        size(row.size),
        rate(row.msgs_per_s),
        short(row.mbit_per_s),
        short(row.ns_per_msg),
        us(row.server_cpu_ns_per_msg),
        short(row.heap_bytes_per_msg),
        us(row.p50_us),
        us(row.p99_us),
        us(row.p999_us),
        us(row.bytes_per_recv),
        row.errors.to_string(),
        row.baseline_msgs_per_s.map_or("-".into(), rate),
        row.share_of_baseline.map_or("-".into(), |share| format!("{share:.2}")),
    ]
}

/// The first column to the left, the others to the right, as wide as their widest cell.
pub(crate) fn print(lines: &[Line]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        let Line::Cells(cells) = line else { continue };
        widths.resize(widths.len().max(cells.len()), 0);
        for (width, cell) in widths.iter_mut().zip(cells) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        match line {
            Line::Title(title) => text += title,
            Line::Cells(cells) => {
                for (at, (cell, width)) in cells.iter().zip(&widths).enumerate() {
                    text += if at == 0 { "" } else { GAP };
                    text += &if at == 0 { format!("{cell:<width$}") } else { format!("{cell:>width$}") };
                }
            }
        }
        text.truncate(text.trim_end_matches(' ').len());
        text.push('\n');
    }
    text
}

/// A rate with a unit and about three digits: `171k`, `1.73M`, `22.6M`.
pub(crate) fn rate(value: f64) -> String {
    match value {
        v if v >= 999.5e6 => format!("{}G", digits(v / 1e9)),
        v if v >= 999.5e3 => format!("{}M", digits(v / 1e6)),
        v if v >= 9_999.5 => format!("{}k", digits(v / 1e3)),
        v => short(v),
    }
}

/// A plain number with about three digits, whole from 100 on; `0` only for nothing at all.
pub(crate) fn short(value: f64) -> String {
    match value {
        0.0 => "0".into(),
        v if v.abs() < 0.005 => "<.01".into(),
        v => digits(v),
    }
}

fn digits(value: f64) -> String {
    match value.abs() {
        v if v >= 99.95 => format!("{value:.0}"),
        v if v >= 9.995 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

pub(crate) fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{}M", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{}K", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            workload: "echo".into(),
            driver: "uring".into(),
            connections: 10_000,
            depth: 255,
            size: 32,
            msgs_per_s: 123_456_789.0,
            mbit_per_s: 99_999.0,
            ns_per_msg: 12_345.6,
            server_cpu_ns_per_msg: Some(12_345.6),
            heap_bytes_per_msg: 1_216.0,
            p50_us: Some(12_345.6),
            p99_us: Some(123_456.0),
            p999_us: Some(123_456.0),
            bytes_per_recv: Some(65_536.0),
            baseline_msgs_per_s: Some(123_456_789.0),
            share_of_baseline: Some(0.954),
            ..Row::default()
        }
    }

    #[test]
    fn a_full_row_fits_120_columns_and_all_lines_are_aligned() {
        let text = results(&[row()]);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines.iter().all(|line| line.len() <= 120), "{text}");
        assert_eq!(lines[0].len(), lines[2].len(), "{text}");
        assert_eq!(lines[1], "echo");
        assert!(lines[2].ends_with("0.95"), "{text}");
    }

    #[test]
    fn a_row_with_errors_says_that_it_is_not_valid() {
        let bad = Row { errors: 2, first_error: Some("reply 7 is wrong".into()), ..row() };
        let text = results(&[bad]);
        assert!(text.contains("NOT VALID: 2 errors, the first: reply 7 is wrong"), "{text}");
        assert!(!results(&[row()]).contains("NOT VALID"));
    }

    #[test]
    fn a_target_that_did_not_keep_up_is_said_to_have_not() {
        let row = |msgs_per_s, late, unsent| {
            let open = Some(OpenLoad { rate: 1000, late, unsent });
            results(&[Row { msgs_per_s, duration_s: 2.0, repeats: 1, open, ..row() }])
        };
        let text = row(1000.0, 20, 0);
        assert!(
            text.contains("^ 1000 a second were to be sent; 20 (1.00 %) were sent over 1 ms late, 0 never"),
            "{text}"
        );
        assert!(row(980.0, 0, 40).contains("DID NOT KEEP UP: 1000 a second"));
    }

    #[test]
    fn each_workload_is_named_once() {
        let other = Row { workload: "receive/single".into(), ..row() };
        let text = results(&[row(), row(), other]);
        assert_eq!(text.matches("echo").count(), 1);
        assert_eq!(text.matches("receive/single").count(), 1);
    }

    #[test]
    fn numbers_keep_about_three_digits() {
        assert_eq!(rate(171_110.0), "171k");
        assert_eq!(rate(1_730_403.0), "1.73M");
        assert_eq!(rate(22_600_000.0), "22.6M");
        assert_eq!(rate(4_300.0), "4300");
        assert_eq!(rate(999_900.0), "1.00M");
        assert_eq!(short(0.0), "0");
        assert_eq!(short(0.0001), "<.01");
        assert_eq!(short(3.456), "3.46");
        assert_eq!(size(1 << 20), "1M");
        assert_eq!(size(1500), "1500");
    }

    #[test]
    fn the_reports_table_holds_only_rows_that_a_report_has() {
        let with = Row { workload: "receive/single".into(), connections: 64, ..row() }.with_report();
        let text = reports(&[row(), with]);
        assert!(text.contains("000") && text.contains("historic goal"), "{text}");
        assert_eq!(reports(&[Row { connections: 3, ..row() }.with_report()]), "");
    }
}
