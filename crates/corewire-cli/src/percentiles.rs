//! What is told of a histogram of latencies.

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::bench::{median, per};

/// Latencies of one thread or one run, in nanoseconds.
pub(crate) type Latency = Histogram<u32>;

/// A histogram from 1 ns to a minute with three digits; what is longer counts as a minute.
pub(crate) fn latency() -> Latency {
    Histogram::new_with_bounds(1, 60_000_000_000, 3)
        .unwrap_or_else(|_| unreachable!("the bounds are constants"))
}

/// The distribution of some latencies in µs; all 0 when none was taken.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Percentiles {
    /// How many were taken.
    pub(crate) samples: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p90_us: f64,
    pub(crate) p95_us: f64,
    pub(crate) p99_us: f64,
    pub(crate) p999_us: f64,
    pub(crate) max_us: f64,
}

impl Percentiles {
    pub(crate) fn of(latency: &Latency) -> Self {
        if latency.is_empty() {
            return Self::default();
        }
        let us = |quantile| latency.value_at_quantile(quantile) as f64 / 1e3;
        Self {
            samples: latency.len(),
            mean_us: latency.mean() / 1e3,
            p50_us: us(0.5),
            p90_us: us(0.9),
            p95_us: us(0.95),
            p99_us: us(0.99),
            p999_us: us(0.999),
            max_us: latency.max() as f64 / 1e3,
        }
    }

    /// The median of each figure by itself over the runs of a row, and the greatest of the greatest; `None` where a run
    /// took none.
    pub(crate) fn over(runs: &[Self]) -> Option<Self> {
        if runs.is_empty() || runs.iter().any(|run| run.samples == 0) {
            return None;
        }
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure));
        Some(Self {
            samples: runs.iter().map(|run| run.samples).sum(),
            mean_us: of(|run| run.mean_us),
            p50_us: of(|run| run.p50_us),
            p90_us: of(|run| run.p90_us),
            p95_us: of(|run| run.p95_us),
            p99_us: of(|run| run.p99_us),
            p999_us: of(|run| run.p999_us),
            max_us: runs.iter().map(|run| run.max_us).fold(0.0, f64::max),
        })
    }

    /// How many times the mean the 99th percentile is.
    pub(crate) fn p99_by_mean(&self) -> f64 {
        per(self.p99_us, self.mean_us)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_percentiles_of_known_latencies() {
        let mut histogram = latency();
        (1..=1000).for_each(|us| histogram.record(us * 1000).unwrap());
        let told = Percentiles::of(&histogram);
        let near = |told: f64, us: f64| (told / us - 1.0).abs() < 0.002;
        assert_eq!(told.samples, 1000);
        assert!(
            near(told.mean_us, 500.5) && near(told.p50_us, 500.0) && near(told.p90_us, 900.0),
            "{told:?}"
        );
        assert!(
            near(told.p95_us, 950.0) && near(told.p99_us, 990.0) && near(told.p999_us, 999.0),
            "{told:?}"
        );
        assert!(near(told.max_us, 1000.0) && near(told.p99_by_mean(), 990.0 / 500.5), "{told:?}");
    }

    #[test]
    fn nothing_taken_is_all_zero_and_spoils_the_row() {
        let none = Percentiles::of(&latency());
        assert_eq!((none, none.p99_by_mean()), (Percentiles::default(), 0.0));
        let some = Percentiles { samples: 1, ..none };
        assert_eq!(Percentiles::over(&[some, none]), None);
        assert_eq!(Percentiles::over(&[]), None);
    }

    #[test]
    fn over_several_runs_the_medians_and_the_greatest_are_told() {
        let run = |us: f64| Percentiles { samples: 5, p99_us: us, max_us: us, ..Percentiles::default() };
        let told = Percentiles::over(&[run(1.0), run(9.0), run(2.0)]).unwrap();
        assert_eq!((told.samples, told.p99_us, told.max_us), (15, 2.0, 9.0));
    }
}
