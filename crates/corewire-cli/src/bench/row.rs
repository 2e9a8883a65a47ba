//! One row of results: what goes into the table and into the JSON file.

use serde::Serialize;

use crate::percentiles::Percentiles;

use super::measure::Measured;
use super::plan::{Cell, Pace};
use super::reports;
use super::stats::{median, range};

/// The result of one cell on one driver.
///
/// Rates and times are medians over the repeats; `_min` and `_max` are the extremes. A figure that was not
/// measured is `null`.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Row {
    pub(crate) workload: String,
    pub(crate) driver: String,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    /// Bytes of a message on the wire, header included.
    pub(crate) size: usize,
    /// Packets that one `send` call carried.
    pub(crate) batch: usize,
    pub(crate) repeats: usize,
    pub(crate) duration_s: f64,
    pub(crate) msgs_per_s: f64,
    pub(crate) msgs_per_s_min: f64,
    pub(crate) msgs_per_s_max: f64,
    /// Headers and payload, one direction.
    pub(crate) mbit_per_s: f64,
    pub(crate) ns_per_msg: f64,
    pub(crate) server_cpu_ns_per_msg: Option<f64>,
    pub(crate) client_cpu_ns_per_msg: f64,
    /// Server and client together.
    pub(crate) heap_bytes_per_msg: f64,
    pub(crate) server_heap_bytes_per_msg: Option<f64>,
    pub(crate) client_heap_bytes_per_msg: f64,
    /// Live heap of the server that the idle connections added, per connection.
    pub(crate) server_heap_bytes_per_idle_connection: Option<f64>,
    pub(crate) bytes_per_recv: Option<f64>,
    pub(crate) mean_us: Option<f64>,
    pub(crate) p50_us: Option<f64>,
    pub(crate) p90_us: Option<f64>,
    pub(crate) p95_us: Option<f64>,
    pub(crate) p99_us: Option<f64>,
    pub(crate) p999_us: Option<f64>,
    pub(crate) max_us: Option<f64>,
    /// Of whole streams, from the opening to the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream_latency: Option<Percentiles>,
    /// The 99th percentile by the mean of whole streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) stream_p99_by_mean: Option<f64>,
    /// Of a load that sends at a rate.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<OpenLoad>,
    /// Of streams side by side on a connection: the frames of the slowest by the mean; the least of the repeats.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fairness: Option<f64>,
    pub(crate) errors: u64,
    pub(crate) first_error: Option<String>,
    pub(crate) baseline_msgs_per_s: Option<f64>,
    pub(crate) baseline_msgs_per_s_min: Option<f64>,
    pub(crate) baseline_msgs_per_s_max: Option<f64>,
    pub(crate) baseline_server_cpu_ns_per_msg: Option<f64>,
    pub(crate) baseline_bytes_per_recv: Option<f64>,
    pub(crate) baseline_p50_us: Option<f64>,
    pub(crate) baseline_p99_us: Option<f64>,
    /// Median of the ratios of neighbouring runs.
    pub(crate) share_of_baseline: Option<f64>,
    pub(crate) share_of_baseline_min: Option<f64>,
    pub(crate) share_of_baseline_max: Option<f64>,
    /// Datagrams that a load sent, warm-up included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datagrams_sent: Option<u64>,
    /// Those of them that did not come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) datagrams_lost: Option<u64>,
    /// The number of the report whose figure follows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report_msgs_per_s: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report_heap_bytes_per_msg: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report_factor: Option<f64>,
    /// Of calls, or of whole streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) report_p99_us: Option<f64>,
}

/// What was to be sent, and what of it was not sent when it was to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct OpenLoad {
    /// Messages a second, over all connections.
    pub(crate) rate: u64,
    /// Messages sent over 1 ms after they were due; over all repeats.
    pub(crate) late: u64,
    /// Messages that were due before the end and never sent; over all repeats.
    pub(crate) unsent: u64,
}

impl Row {
    /// The row of the repeats of one cell; `baselines[i]` was measured right before `ours[i]`.
    pub(crate) fn new(cell: &Cell, pace: &Pace, ours: &[Measured], baselines: &[Measured]) -> Self {
        let of = |figure: fn(&Measured) -> f64| median(ours.iter().map(figure));
        let of_baseline = |figure: fn(&Measured) -> f64| Some(median(baselines.iter().map(figure)));
        let latencies =
            |runs: &[Measured]| Percentiles::over(&runs.iter().map(|m| m.latency).collect::<Vec<_>>());
        let streams = Percentiles::over(&ours.iter().map(|m| m.streams).collect::<Vec<_>>());
        let baseline_latency = latencies(baselines);
        let shares =
            || ours.iter().zip(baselines).map(|(o, l)| super::stats::per(o.msgs_per_s, l.msgs_per_s));
        let msgs_per_s = of(|m| m.msgs_per_s);
        let (msgs_per_s_min, msgs_per_s_max) = range(ours.iter().map(|m| m.msgs_per_s)).unwrap_or_default();
        let baselines_range = range(baselines.iter().map(|m| m.msgs_per_s));
        let shares_range = range(shares());
        let (server_heap, client_heap) = (of(|m| m.server_heap), of(|m| m.client_heap));
        Self {
            workload: cell.name().into(),
            driver: ours.first().map(|m| m.driver.clone()).unwrap_or_default(),
            connections: cell.connections,
            depth: cell.depth,
            size: cell.size,
            batch: cell.batch,
            repeats: ours.len(),
            duration_s: pace.duration.as_secs_f64(),
            msgs_per_s,
            msgs_per_s_min,
            msgs_per_s_max,
            mbit_per_s: msgs_per_s * cell.wire_size() * 8.0 / 1e6,
            ns_per_msg: super::stats::per(1e9, msgs_per_s),
            server_cpu_ns_per_msg: Some(of(|m| m.server_cpu_ns)),
            client_cpu_ns_per_msg: of(|m| m.client_cpu_ns),
            heap_bytes_per_msg: server_heap + client_heap,
            server_heap_bytes_per_msg: Some(server_heap),
            client_heap_bytes_per_msg: client_heap,
            server_heap_bytes_per_idle_connection: Some(of(|m| m.server_heap_per_connection)),
            bytes_per_recv: Some(of(|m| m.bytes_per_recv)),
            errors: ours.iter().chain(baselines).map(|m| m.errors).sum(),
            first_error: ours.iter().chain(baselines).find_map(|m| m.first_error.clone()),
            baseline_msgs_per_s: of_baseline(|m| m.msgs_per_s),
            baseline_msgs_per_s_min: baselines_range.map(|r| r.0),
            baseline_msgs_per_s_max: baselines_range.map(|r| r.1),
            baseline_server_cpu_ns_per_msg: of_baseline(|m| m.server_cpu_ns),
            baseline_bytes_per_recv: of_baseline(|m| m.bytes_per_recv),
            baseline_p50_us: baseline_latency.map(|latency| latency.p50_us),
            baseline_p99_us: baseline_latency.map(|latency| latency.p99_us),
            share_of_baseline: Some(median(shares())),
            share_of_baseline_min: shares_range.map(|r| r.0),
            share_of_baseline_max: shares_range.map(|r| r.1),
            ..Self::default()
        }
        .with_latency(latencies(ours), streams)
        .with_fairness(ours.iter().filter_map(|m| m.fairness).reduce(f64::min))
        .with_open(pace.rate.map(|rate| OpenLoad {
            rate,
            late: ours.iter().map(|m| m.late).sum(),
            unsent: ours.iter().map(|m| m.unsent).sum(),
        }))
    }

    /// Sets what was to be sent at a rate.
    pub(crate) fn with_open(mut self, open: Option<OpenLoad>) -> Self {
        self.open = open;
        self
    }

    /// Sets how far the slowest of streams side by side came, by the mean.
    pub(crate) fn with_fairness(mut self, fairness: Option<f64>) -> Self {
        self.fairness = fairness;
        self
    }

    /// Whether it is of calls or streams.
    pub(crate) fn is_of_rpc(&self) -> bool {
        self.workload.starts_with("rpc") || self.workload.starts_with("stream")
    }

    /// The latencies of messages, where they were taken.
    pub(crate) fn latency(&self) -> Option<Percentiles> {
        Some(Percentiles {
            samples: 1,
            mean_us: self.mean_us?,
            p50_us: self.p50_us?,
            p90_us: self.p90_us?,
            p95_us: self.p95_us?,
            p99_us: self.p99_us?,
            p999_us: self.p999_us?,
            max_us: self.max_us?,
        })
    }

    /// Sets the latencies of messages and of whole streams.
    pub(crate) fn with_latency(
        mut self,
        messages: Option<Percentiles>,
        streams: Option<Percentiles>,
    ) -> Self {
        let of = |figure: fn(&Percentiles) -> f64| messages.as_ref().map(figure);
        self.mean_us = of(|latency| latency.mean_us);
        self.p50_us = of(|latency| latency.p50_us);
        self.p90_us = of(|latency| latency.p90_us);
        self.p95_us = of(|latency| latency.p95_us);
        self.p99_us = of(|latency| latency.p99_us);
        self.p999_us = of(|latency| latency.p999_us);
        self.max_us = of(|latency| latency.max_us);
        self.stream_latency = streams;
        self.stream_p99_by_mean = streams.map(|streams| streams.p99_by_mean());
        self
    }

    /// The row of a cell that could not be measured.
    pub(crate) fn failed(cell: &Cell, driver: &str, pace: &Pace, failure: &str) -> Self {
        Self {
            workload: cell.name().into(),
            driver: driver.into(),
            connections: cell.connections,
            depth: cell.depth,
            size: cell.size,
            batch: cell.batch,
            duration_s: pace.duration.as_secs_f64(),
            errors: 1,
            first_error: Some(failure.into()),
            ..Self::default()
        }
    }

    /// Sets the figure of the performance reports beside ours, where a report has one.
    pub(crate) fn with_report(mut self) -> Self {
        let figure = reports::figure(&self.workload, self.connections, self.depth, self.size);
        if let Some(figure) = figure {
            self.report = Some(figure.report);
            self.report_msgs_per_s = Some(figure.msgs_per_s);
            self.report_heap_bytes_per_msg = figure.heap_bytes_per_msg;
            self.report_p99_us = figure.p99_us;
            self.report_factor = Some(super::stats::per(self.msgs_per_s, figure.msgs_per_s));
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::plan::Workload;
    use super::*;

    fn measured(msgs_per_s: f64) -> Measured {
        let latency = Percentiles { samples: 10, p50_us: 5.0, ..Percentiles::default() };
        Measured { msgs_per_s, latency, driver: "uring".into(), ..Measured::default() }
    }

    fn row(ours: &[f64], baselines: &[f64]) -> Row {
        let cell = Cell { workload: Workload::Echo, connections: 1000, depth: 1, size: 32, batch: 1 };
        let pace = Pace {
            warmup: Duration::ZERO,
            duration: Duration::from_millis(500),
            repeats: ours.len(),
            receive_buffer: None,
            rate: None,
        };
        let all = |rates: &[f64]| rates.iter().copied().map(measured).collect::<Vec<_>>();
        Row::new(&cell, &pace, &all(ours), &all(baselines))
    }

    #[test]
    fn the_share_is_the_median_of_the_pairs_not_the_ratio_of_the_medians() {
        // The machine was slow during the second pair; the pairs agree all the same.
        let row = row(&[900.0, 90.0, 950.0], &[1000.0, 100.0, 1000.0]);
        assert_eq!(row.share_of_baseline, Some(0.9));
        assert_eq!((row.share_of_baseline_min, row.share_of_baseline_max), (Some(0.9), Some(0.95)));
        assert_eq!((row.msgs_per_s, row.msgs_per_s_min, row.msgs_per_s_max), (900.0, 90.0, 950.0));
    }

    #[test]
    fn json_rows_carry_the_agreed_keys() {
        let value = serde_json::to_value(row(&[1e6], &[2e6])).unwrap();
        for key in [
            "workload",
            "driver",
            "connections",
            "depth",
            "size",
            "msgs_per_s",
            "mbit_per_s",
            "server_cpu_ns_per_msg",
            "heap_bytes_per_msg",
            "bytes_per_recv",
            "p50_us",
            "p99_us",
            "errors",
            "baseline_msgs_per_s",
            "share_of_baseline",
        ] {
            assert!(value.get(key).is_some(), "{key}");
        }
        assert_eq!(value["mbit_per_s"], 256.0);
        assert_eq!(value["driver"], "uring");
        assert!(value.get("report").is_none());
    }

    #[test]
    fn errors_of_the_baseline_spoil_the_row_too() {
        let mut bad = measured(1.0);
        bad.errors = 3;
        bad.first_error = Some("lost".into());
        let cell = Cell { workload: Workload::Echo, connections: 1, depth: 1, size: 32, batch: 1 };
        let pace = Pace {
            warmup: Duration::ZERO,
            duration: Duration::from_secs(1),
            repeats: 1,
            receive_buffer: None,
            rate: None,
        };
        let row = Row::new(&cell, &pace, &[measured(1.0)], &[bad]);
        assert_eq!((row.errors, row.first_error.as_deref()), (3, Some("lost")));
    }

    #[test]
    fn a_cell_that_failed_is_a_row_with_an_error() {
        let cell = Cell { workload: Workload::Echo, connections: 7, depth: 1, size: 32, batch: 1 };
        let pace = Pace {
            warmup: Duration::ZERO,
            duration: Duration::from_secs(1),
            repeats: 1,
            receive_buffer: None,
            rate: None,
        };
        let row = Row::failed(&cell, "uring", &pace, "the server process ended early");
        assert_eq!((row.errors, row.connections, row.share_of_baseline), (1, 7, None));
        assert_eq!(row.first_error.as_deref(), Some("the server process ended early"));
    }

    #[test]
    fn the_report_stands_beside_ours_with_the_factor() {
        let row = row(&[17_304_030.0], &[2e7]).with_report();
        assert_eq!((row.report, row.report_factor), (Some("001"), Some(10.0)));
    }
}
