//! What the rows are to reach, beside what they do.

use super::protocol::Protocol;
use super::row::Row;

/// One figure that a target is set for.
#[derive(Debug)]
struct Target {
    what: String,
    bound: Bound,
    found: Option<f64>,
}

#[derive(Debug, Clone, Copy)]
enum Bound {
    AtLeast(f64),
    AtMostMs(f64),
}

impl Target {
    fn line(&self) -> String {
        let Self { what, bound, found } = self;
        let Some(found) = found else { return format!("{what}: not measured") };
        let (text, is_met) = match bound {
            Bound::AtLeast(least) => (format!("{found:.2} (target: >= {least})"), found >= least),
            Bound::AtMostMs(most) => (format!("{found:.1} ms (target: <= {most} ms)"), found <= most),
        };
        format!("{what}: {text}{}", if is_met { "" } else { ", MISSED" })
    }
}

/// A line of text for each target that these rows have something to say of.
pub(super) fn lines(rows: &[Row]) -> Vec<String> {
    let mut targets = Vec::new();
    for ours in rows.iter().filter(|row| is(row, "line", Protocol::KcpBbr)) {
        let path = format!("{} ms, loss {:.0}%", ours.round_trip_ms, ours.loss * 100.0);
        let share_of = |other: Protocol| {
            let other = rows.iter().find(|row| is(row, "line", other) && is_same_path(row, ours))?;
            Some(ours.goodput_mbit_per_s? / other.goodput_mbit_per_s?)
        };
        targets.push(Target {
            what: format!("bulk, {path}: kcp bbr / tcp bbr"),
            bound: Bound::AtLeast(0.95),
            found: share_of(Protocol::TcpBbr),
        });
        if ours.loss == 0.01 {
            targets.push(Target {
                what: format!("bulk, {path}: kcp bbr / tcp cubic"),
                bound: Bound::AtLeast(3.0),
                found: share_of(Protocol::TcpCubic),
            });
        }
    }
    for (protocol, most_ms) in [(Protocol::Kcp, 100.0), (Protocol::KcpFec, 75.0)] {
        let of_path = |row: &&Row| is(row, "path", protocol) && row.round_trip_ms == 30 && row.loss == 0.1;
        targets.extend(rows.iter().find(of_path).map(|row| Target {
            what: format!("messages, 30 ms, loss 10%: p99 of {}", protocol.name()),
            bound: Bound::AtMostMs(most_ms),
            found: row.p99_ms,
        }));
    }
    targets.iter().map(Target::line).collect()
}

fn is(row: &Row, workload: &str, protocol: Protocol) -> bool {
    row.workload == workload && row.protocol == protocol.name()
}

fn is_same_path(a: &Row, b: &Row) -> bool {
    (a.loss, a.round_trip_ms) == (b.loss, b.round_trip_ms)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Driver;

    #[test]
    fn a_target_stands_beside_what_was_found() {
        let line = |protocol: Protocol, loss, goodput| Row {
            goodput_mbit_per_s: Some(goodput),
            ..Row::new("line", protocol.name(), Driver::Auto, loss, 30)
        };
        let path = |protocol: Protocol, p99_ms| Row {
            p99_ms: Some(p99_ms),
            ..Row::new("path", protocol.name(), Driver::Auto, 0.1, 30)
        };
        let rows = [
            line(Protocol::KcpBbr, 0.01, 90.0),
            line(Protocol::TcpBbr, 0.01, 90.0),
            line(Protocol::TcpCubic, 0.01, 45.0),
            line(Protocol::KcpBbr, 0.1, 80.0),
            path(Protocol::Kcp, 65.5),
            path(Protocol::KcpFec, 75.1),
        ];
        assert_eq!(
            lines(&rows),
            [
                "bulk, 30 ms, loss 1%: kcp bbr / tcp bbr: 1.00 (target: >= 0.95)",
                "bulk, 30 ms, loss 1%: kcp bbr / tcp cubic: 2.00 (target: >= 3), MISSED",
                "bulk, 30 ms, loss 10%: kcp bbr / tcp bbr: not measured",
                "messages, 30 ms, loss 10%: p99 of kcp: 65.5 ms (target: <= 100 ms)",
                "messages, 30 ms, loss 10%: p99 of kcp fec: 75.1 ms (target: <= 75 ms), MISSED",
            ]
        );
    }
}
