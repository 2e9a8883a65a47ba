//! The rate of a run by the second: as it goes, and as a small chart at its end. All of it is for standard error.

use std::fmt::Write as _;
use std::io::IsTerminal;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::bench::rate;
use crate::control::Snapshot;

/// Shorter runs show nothing.
const SHORT: Duration = Duration::from_secs(2);
/// What counts as a second: snapshots do not come to the millisecond.
const SECOND_NS: u64 = 950_000_000;
/// The most columns of a chart; of longer runs a column stands for several seconds.
const COLUMNS_MAX: usize = 60;
/// Lines of a chart.
const HEIGHT: usize = 5;
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// The rates of the seconds of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trend {
    last: Option<(u64, u64)>,
    rates: Vec<f64>,
    unit: &'static str,
}

impl Trend {
    /// Takes a snapshot; the rate of the second that has passed since the last one that gave a rate, if it has.
    pub(crate) fn take(&mut self, snapshot: &Snapshot) -> Option<f64> {
        // What goes one way is not counted by message while it runs.
        let (count, unit) = match snapshot.messages {
            0 => (snapshot.sent_bytes, "B/s"),
            messages => (messages, "msg/s"),
        };
        let (at_ns, before) = match self.last {
            Some(last) if unit == self.unit => last,
            _ => {
                (self.last, self.unit) = (Some((snapshot.at_ns, count)), unit);
                return None;
            }
        };
        let passed = snapshot.at_ns.saturating_sub(at_ns);
        if passed < SECOND_NS {
            return None;
        }
        self.last = Some((snapshot.at_ns, count));
        let rate = count.saturating_sub(before) as f64 * 1e9 / passed as f64;
        self.rates.push(rate);
        Some(rate)
    }

    /// The last second in words: `3 s  171k msg/s`.
    pub(crate) fn latest(&self) -> String {
        let last = self.rates.last().copied().unwrap_or_default();
        format!("{} s  {} {}", self.rates.len(), rate(last), self.unit)
    }

    /// One line of blocks, from the least rate to the greatest.
    pub(crate) fn line(&self) -> String {
        let columns = self.columns();
        let blocks: String = columns.iter().map(|rate| EIGHTHS[self.eighths(*rate, 1)]).collect();
        format!("{blocks}  {}", self.range())
    }

    /// A chart of several lines, or nothing for fewer than two seconds.
    pub(crate) fn chart(&self) -> String {
        if self.rates.len() < 2 {
            return String::new();
        }
        let columns = self.columns();
        let (least, greatest) = self.bounds();
        let (top, bottom) = (rate(greatest), rate(least));
        let width = top.len().max(bottom.len());
        let mut text = format!("{} by the second, {}\n", self.unit, self.range());
        for row in (0..HEIGHT).rev() {
            let label = match row {
                0 => &bottom,
                row if row + 1 == HEIGHT => &top,
                _ => "",
            };
            let blocks: String = columns
                .iter()
                .map(|rate| EIGHTHS[self.eighths(*rate, HEIGHT).saturating_sub(row * 8).min(8)])
                .collect();
            let _ = writeln!(text, "{label:>width$} ┤{}", blocks.trim_end());
        }
        let seconds = self.rates.len().to_string();
        let gap = columns.len().saturating_sub(1 + seconds.len());
        let _ = writeln!(text, "{:width$} └{}", "", "─".repeat(columns.len()));
        let _ = writeln!(text, "{:width$}  1{:gap$}{seconds} s", "", "");
        text
    }

    /// How high a rate stands in so many lines: the least shows, the greatest fills them.
    fn eighths(&self, rate: f64, lines: usize) -> usize {
        let (least, greatest) = self.bounds();
        let full = (lines * 8) as f64;
        let share = if greatest > least { (rate - least) / (greatest - least) } else { 1.0 };
        (1.0 + share * (full - 1.0)).round() as usize
    }

    fn bounds(&self) -> (f64, f64) {
        let columns = self.columns();
        let least = columns.iter().copied().fold(f64::INFINITY, f64::min);
        (least.min(f64::MAX), columns.iter().copied().fold(0.0, f64::max))
    }

    fn range(&self) -> String {
        let (least, greatest) = self.bounds();
        format!("min {} max {}", rate(least), rate(greatest))
    }

    /// The rates, or the means of several where there are too many.
    fn columns(&self) -> Vec<f64> {
        let each = self.rates.len().div_ceil(COLUMNS_MAX).max(1);
        self.rates.chunks(each).map(|rates| rates.iter().sum::<f64>() / rates.len() as f64).collect()
    }
}

/// What a person sees of a run while it goes.
#[derive(Debug)]
pub(crate) struct Progress {
    trend: Trend,
    /// On a terminal; elsewhere there are plain lines.
    bar: Option<ProgressBar>,
    is_shown: bool,
}

impl Progress {
    /// Of a run of this length, or of one that nobody knows the length of.
    pub(crate) fn new(length: Option<Duration>) -> Self {
        let is_shown = length.is_none_or(|length| length > SHORT);
        let is_bar = is_shown && std::io::stderr().is_terminal();
        let bar = is_bar.then(|| {
            let (bar, style) = match length {
                Some(length) => (ProgressBar::new(length.as_millis() as u64), "{bar:30} {msg}"),
                None => (ProgressBar::new_spinner(), "{spinner} {msg}"),
            };
            bar.with_style(
                ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar()),
            )
        });
        Self { trend: Trend::default(), bar, is_shown }
    }

    /// Whether snapshots are wanted at all.
    pub(crate) fn is_shown(&self) -> bool {
        self.is_shown
    }

    pub(crate) fn take(&mut self, passed: Duration, snapshot: &Snapshot) {
        if let Some(bar) = &self.bar {
            bar.set_position(passed.as_millis() as u64);
        }
        if self.trend.take(snapshot).is_none() {
            return;
        }
        match &self.bar {
            Some(bar) => bar.set_message(format!("{}  {}", self.trend.latest(), self.trend.line())),
            None => eprintln!("{}", self.trend.latest()),
        }
    }

    /// Leaves the chart, or one line of it where there is no terminal.
    pub(crate) fn finish(self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            eprint!("{}", self.trend.chart());
        } else if self.is_shown && self.trend.rates.len() > 1 {
            eprintln!("{}", self.trend.line());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: f64, messages: u64) -> Snapshot {
        Snapshot { at_ns: (seconds * 1e9) as u64, messages, ..Snapshot::default() }
    }

    fn trend(rates: &[f64]) -> Trend {
        Trend { last: None, rates: rates.to_vec(), unit: "msg/s" }
    }

    #[test]
    fn a_rate_is_told_once_a_second_has_passed_and_by_the_time_that_has() {
        let mut trend = Trend::default();
        let told = [at(5.0, 100), at(5.5, 900), at(6.0, 1100), at(6.9, 1200), at(8.0, 5100)];
        assert_eq!(
            told.map(|snapshot| trend.take(&snapshot)),
            [None, None, Some(1000.0), None, Some(2000.0)]
        );
        assert_eq!(trend.latest(), "2 s  2000 msg/s");
    }

    #[test]
    fn what_goes_one_way_is_told_in_bytes() {
        let sent = |seconds: u64, sent_bytes| Snapshot {
            at_ns: seconds * 1_000_000_000,
            sent_bytes,
            ..Snapshot::default()
        };
        let mut trend = Trend::default();
        assert_eq!([sent(1, 0), sent(2, 5_000_000)].map(|s| trend.take(&s)), [None, Some(5e6)]);
        assert_eq!(trend.latest(), "1 s  5.00M B/s");
        // The first message begins a new count.
        assert_eq!(trend.take(&at(3.0, 7)), None);
    }

    #[test]
    fn a_line_goes_from_the_least_to_the_greatest() {
        let line = trend(&[166e3, 180e3, 193e3]).line();
        assert_eq!(line, "▁▅█  min 166k max 193k");
        assert_eq!(trend(&[5.0, 5.0]).line(), "██  min 5.00 max 5.00");
    }

    #[test]
    fn a_chart_has_its_bounds_at_its_sides() {
        let chart = trend(&[150e3, 200e3, 175e3]).chart();
        let lines: Vec<&str> = chart.lines().collect();
        assert_eq!(lines.len(), 1 + HEIGHT + 2, "{chart}");
        assert_eq!(lines[0], "msg/s by the second, min 150k max 200k");
        assert_eq!((lines[1], lines[HEIGHT]), ("200k ┤ █", "150k ┤▁██"), "{chart}");
        assert!(lines[HEIGHT + 2].trim_start().starts_with("1 3 s"), "{chart}");
        assert_eq!(trend(&[1.0]).chart(), "");
    }

    #[test]
    fn a_long_run_is_as_wide_as_a_short_one() {
        let rates: Vec<f64> = (0..3600).map(f64::from).collect();
        let chart = trend(&rates).chart();
        assert!(chart.lines().all(|line| line.chars().count() <= COLUMNS_MAX + 10), "{chart}");
        assert!(chart.contains("3600 s"));
    }
}
