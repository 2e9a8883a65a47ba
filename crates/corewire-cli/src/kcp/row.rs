//! One row of `bench kcp`.

use serde::{Deserialize, Serialize};

use super::CONVERSATIONS;
use super::measure::{Cost, Tally};
use crate::args::Driver;
use crate::bench::{per, table};
use crate::serve::driver_name;

/// What one protocol did over one path. A figure that was not measured is `null`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Row {
    pub(super) workload: String,
    pub(super) protocol: String,
    pub(super) driver: String,
    pub(super) loss: f64,
    pub(super) round_trip_ms: u64,
    pub(super) connections: usize,
    pub(super) goodput_mbit_per_s: Option<f64>,
    pub(super) sent: u64,
    pub(super) delivered: u64,
    /// Messages that came twice, out of order or changed.
    pub(super) errors: u64,
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
    pub(super) max_ms: Option<f64>,
    /// Of the whole core of its worker, 0 to 1.
    pub(super) server_cpu: Option<f64>,
    pub(super) client_cpu: Option<f64>,
    /// Of both ends and the measuring itself, per KiB (bulk) or message (sessions).
    pub(super) heap_bytes: Option<f64>,
}

impl Row {
    pub(super) fn new(workload: &str, protocol: &str, driver: Driver, loss: f64, round_trip_ms: u64) -> Self {
        Self {
            workload: workload.to_owned(),
            protocol: protocol.to_owned(),
            driver: driver_name(driver),
            loss,
            round_trip_ms,
            connections: if workload == "path" { CONVERSATIONS } else { 1 },
            goodput_mbit_per_s: None,
            sent: 0,
            delivered: 0,
            errors: 0,
            p50_ms: None,
            p99_ms: None,
            max_ms: None,
            server_cpu: None,
            client_cpu: None,
            heap_bytes: None,
        }
    }

    pub(super) fn bulk(&mut self, bytes: u64, cost: &Cost) {
        self.goodput_mbit_per_s = Some(per(bytes as f64 * 8.0 / 1e6, cost.seconds));
        self.cost(cost, bytes / 1024);
    }

    pub(super) fn cost(&mut self, cost: &Cost, units: u64) {
        let core = cost.seconds * 1e9;
        self.server_cpu = Some(per(cost.server_cpu_ns as f64, core));
        self.client_cpu = Some(per(cost.client_cpu_ns as f64, core));
        self.heap_bytes = Some(per(cost.heap_bytes as f64, units as f64));
    }

    pub(super) fn messages(&mut self, sent: u64, tally: &Tally) {
        (self.sent, self.delivered, self.errors) = (sent, tally.delivered, tally.errors);
        let at = |share: f64| tally.latencies.value_at_quantile(share) as f64 / 1e6;
        if tally.delivered > 0 {
            (self.p50_ms, self.p99_ms) = (Some(at(0.5)), Some(at(0.99)));
            self.max_ms = Some(tally.latencies.max() as f64 / 1e6);
        }
    }

    /// KCP has delivered everything. What TCP does over a bad path is a figure, not an error.
    pub(super) fn is_valid(&self) -> bool {
        self.errors == 0 && (self.protocol.starts_with("tcp") || self.delivered == self.sent)
    }
}

/// The rows as a table of 120 columns at the most.
pub(super) fn table(rows: &[Row]) -> String {
    let head = [
        "", "driver", "loss", "RTT ms", "conns", "Mbit/s", "p50", "p99", "max", "sent", "lost", "err",
        "srv cpu", "cli cpu", "heap B",
    ];
    let mut lines = vec![table::Line::Cells(head.map(String::from).to_vec())];
    let mut workload = "";
    for row in rows {
        if row.workload != workload {
            workload = &row.workload;
            let what = match workload {
                "path" => "goodput of one connection, then messages of each of 64 every 20 ms",
                "line" => "goodput of one connection over a line of 100 Mbit/s; heap B is per KiB",
                "bulk" => "one connection over the loopback; heap B is per KiB",
                _ => "a message a second and its echo on each connection; heap B is per message",
            };
            lines.push(table::Line::Title(format!("{workload}: {what}")));
        }
        lines.push(table::Line::Cells(cells(row)));
        if !row.is_valid() {
            lines.push(table::Line::Title("  ^ NOT VALID: not every message came once and in order".into()));
        }
    }
    table::print(&lines)
}

fn cells(row: &Row) -> Vec<String> {
    let some = |value: Option<f64>| value.map_or("-".into(), table::short);
    let share = |value: Option<f64>| value.map_or("-".into(), |share| format!("{:.0}%", share * 100.0));
    vec![
        row.protocol.clone(),
        row.driver.clone(),
        format!("{:.0}%", row.loss * 100.0),
        row.round_trip_ms.to_string(),
        row.connections.to_string(),
        some(row.goodput_mbit_per_s),
        some(row.p50_ms),
        some(row.p99_ms),
        some(row.max_ms),
        row.sent.to_string(),
        (row.sent - row.delivered.min(row.sent)).to_string(),
        row.errors.to_string(),
        share(row.server_cpu),
        share(row.client_cpu),
        some(row.heap_bytes),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_kcp_does_not_deliver_makes_a_row_invalid() {
        let row = |protocol, delivered| Row {
            sent: 10,
            delivered,
            ..Row::new("path", protocol, Driver::Auto, 0.1, 30)
        };
        assert!(row("kcp", 10).is_valid() && row("tcp", 9).is_valid() && !row("kcp", 9).is_valid());
        let text = table(&[row("kcp", 9), row("tcp", 10)]);
        assert!(text.contains("NOT VALID"), "{text}");
        assert!(text.lines().all(|line| line.len() <= 120), "{text}");
    }
}
