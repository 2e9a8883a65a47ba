//! The figures of the performance reports, for `--reference report`.
//!
//! Reports 000 and 002 were made on Windows 10 with an i9-10900K (20 threads), report 001 on Linux with an EPYC 7763
//! (4 threads); client and server shared the machine. Report 001 does not say how many packets were in flight, so
//! its figures stand beside every depth of the same number of connections. Report 003 was made on macOS with an Apple
//! M4; its rows are told apart by connections, depth, and payload. Report 004 (UDP, 100 clients with
//! 100 messages of 1024 bytes each, Linux) counts what each side sent; at most that many datagrams came back in a second.

/// One figure of a report.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Figure {
    /// The report's number.
    pub(crate) report: &'static str,
    /// Messages per second.
    pub(crate) msgs_per_s: f64,
    /// Heap bytes per message, where the report gives them.
    pub(crate) heap_bytes_per_msg: Option<f64>,
    /// The 99th percentile of calls or of whole streams, where the report gives it.
    pub(crate) p99_us: Option<f64>,
}

/// Bytes of a datagram in report 004.
const UDP_SIZE: usize = 1024;

/// The historic goal of the reports for one-way 32 B packets, packets per second.
pub(crate) const HISTORIC_GOAL: f64 = 22_600_000.0;

/// The report's figure for a row; of two reports, or two runs of one, the higher figure.
pub(crate) fn figure(workload: &str, connections: usize, depth: usize, size: usize) -> Option<Figure> {
    if workload.starts_with("udp/") && size != UDP_SIZE {
        return None;
    }
    let of_others =
        FIGURES.iter().filter(|(name, c, _)| (*name, *c) == (workload, connections)).map(|row| row.2);
    let of_calls = REPORT_003
        .iter()
        .filter(|row| (row.0, row.1, row.2, row.3) == (workload, connections, depth, size))
        .map(|row| calls(row.4, row.5));
    of_others.chain(of_calls).max_by(|a, b| a.msgs_per_s.total_cmp(&b.msgs_per_s))
}

const fn calls(msgs_per_s: u32, p99_us: Option<u32>) -> Figure {
    let p99_us = match p99_us {
        Some(us) => Some(us as f64),
        None => None,
    };
    Figure { report: "003", msgs_per_s: msgs_per_s as f64, heap_bytes_per_msg: None, p99_us }
}

const fn rate(report: &'static str, msgs_per_s: u32) -> Figure {
    Figure { report, msgs_per_s: msgs_per_s as f64, heap_bytes_per_msg: None, p99_us: None }
}

const fn full(report: &'static str, msgs_per_s: u32, heap: u32) -> Figure {
    Figure { report, msgs_per_s: msgs_per_s as f64, heap_bytes_per_msg: Some(heap as f64), p99_us: None }
}

const FIGURES: &[(&str, usize, Figure)] = &[
    ("receive/single", 1, full("000", 148_740, 85)),
    ("receive/single", 4, full("000", 1_211_387, 5)),
    ("receive/single", 16, full("000", 1_899_335, 3)),
    ("receive/single", 64, full("000", 1_915_342, 0)),
    ("receive/single", 256, full("000", 1_884_257, 1)),
    ("receive/single", 1, full("002", 129_957, 38)),
    ("receive/single", 4, full("002", 1_083_020, 4)),
    ("receive/single", 16, full("002", 1_895_536, 1)),
    ("receive/single", 64, full("002", 1_884_672, 0)),
    ("receive/single", 256, full("002", 1_860_966, 0)),
    ("receive/single", 1024, full("002", 1_788_657, 1)),
    ("receive/batch", 1, rate("002", 21_293_660)),
    ("receive/batch", 4, rate("002", 99_246_232)),
    ("receive/batch", 16, rate("002", 100_150_225)),
    ("receive/batch", 256, rate("002", 69_108_290)),
    ("receive/batch", 1024, rate("002", 77_279_752)),
    ("echo", 1, full("001", 171_110, 30)),
    ("echo", 1000, full("001", 1_730_403, 2)),
    ("echo", 10_000, full("001", 289_905, 19)),
    ("udp/echo/plain", 100, rate("004", 1_869)),
    ("udp/echo", 100, rate("004", 1_869)),
    ("srmp/single", 1, full("002", 30_478, 1_216)),
    ("srmp/single", 4, full("002", 100_705, 1_216)),
    ("srmp/single", 16, full("002", 174_643, 1_216)),
    ("srmp/single", 64, full("002", 248_261, 1_216)),
    ("srmp/single", 256, full("002", 257_932, 1_217)),
    ("srmp/single", 1024, full("002", 214_362, 1_221)),
    ("srmp/pipelined", 1, full("002", 104_767, 1_011)),
    ("srmp/pipelined", 4, full("002", 338_179, 937)),
    ("srmp/pipelined", 16, full("002", 437_253, 988)),
    ("srmp/pipelined", 64, full("002", 457_247, 955)),
    ("srmp/pipelined", 256, full("002", 441_306, 913)),
    ("srmp/pipelined", 1024, full("002", 395_885, 906)),
    ("length-field/single", 1, full("002", 30_807, 1_040)),
    ("length-field/single", 4, full("002", 92_506, 1_040)),
    ("length-field/single", 16, full("002", 174_703, 1_040)),
    ("length-field/single", 64, full("002", 243_428, 1_040)),
    ("length-field/single", 256, full("002", 258_868, 1_041)),
    ("length-field/single", 1024, full("002", 213_858, 1_045)),
    ("length-field/pipelined", 1, full("002", 105_574, 867)),
    ("length-field/pipelined", 4, full("002", 284_253, 819)),
    ("length-field/pipelined", 16, full("002", 424_448, 859)),
    ("length-field/pipelined", 64, full("002", 451_467, 849)),
    ("length-field/pipelined", 256, full("002", 445_434, 819)),
    ("length-field/pipelined", 1024, full("002", 418_760, 803)),
];

/// Workload, connections, depth, payload, calls or frames a second, P99 in µs.
type Row003 = (&'static str, usize, usize, usize, u32, Option<u32>);

const REPORT_003: &[Row003] = &[
    ("rpc/unary", 50, 1, 256, 170_629, Some(1_165)),
    ("rpc/unary", 100, 1, 256, 183_338, Some(1_824)),
    ("rpc/unary", 200, 1, 256, 169_673, Some(3_812)),
    ("rpc/unary", 100, 1, 1024, 178_606, Some(1_933)),
    ("rpc/unary", 100, 1, 4096, 155_697, Some(4_010)),
    ("rpc/unary", 20, 1, 65_536, 7_232, None),
    ("rpc/unary", 50, 1, 65_536, 6_606, None),
    ("rpc/unary", 100, 1, 65_536, 88_892, None),
    ("rpc/unary", 100, 1, 65_536, 87_572, Some(12_252)),
    ("rpc/unary", 100, 1, 65_536, 87_055, Some(15_522)),
    ("rpc/unary", 200, 1, 65_536, 83_015, Some(36_727)),
    ("rpc/unary", 400, 1, 65_536, 6_550, None),
    ("rpc/unary", 100, 4, 65_536, 8_497, None),
    ("rpc/unary", 200, 4, 47, 317_774, None),
    ("rpc/unary", 200, 4, 47, 324_686, Some(43_574)),
    ("rpc/unary", 200, 4, 47, 345_965, Some(40_811)),
    ("rpc/client-stream", 200, 4, 47, 277_020, Some(53_104)),
    ("rpc/server-stream", 200, 4, 47, 293_926, Some(50_927)),
    ("rpc/bidi", 200, 4, 47, 283_218, Some(71_229)),
    ("rpc/client-stream", 100, 1, 65_536, 85_434, Some(14_911)),
    ("rpc/server-stream", 100, 1, 65_536, 83_592, Some(15_271)),
    ("rpc/bidi", 100, 1, 65_536, 84_188, Some(14_649)),
    ("stream", 100, 1, 128, 29_840, Some(1_204_192)),
    ("stream", 100, 2, 128, 25_332, Some(977_529)),
    ("stream", 100, 4, 128, 76_374, Some(657_909)),
    ("stream", 100, 8, 128, 90_325, Some(626_780)),
    ("stream", 100, 16, 128, 90_571, Some(625_961)),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_reports_the_higher_figure_is_taken() {
        assert_eq!(figure("receive/single", 64, 1, 32).unwrap().report, "000");
        assert_eq!(figure("receive/single", 1024, 1, 32).unwrap().report, "002");
    }

    #[test]
    fn what_no_report_has_is_none() {
        assert_eq!(figure("receive/batch", 64, 1, 32), None);
        assert_eq!(figure("echo", 64, 1, 32), None);
        assert_eq!(figure("udp/echo/plain", 100, 1, 32), None);
        assert_eq!(figure("udp/echo/plain", 100, 1, 1024).unwrap().report, "004");
    }

    #[test]
    fn calls_and_streams_are_told_apart_by_their_parameters() {
        assert_eq!(figure("rpc/unary", 200, 4, 47).unwrap().msgs_per_s, 345_965.0);
        assert_eq!(figure("stream", 100, 8, 128).unwrap().p99_us, Some(626_780.0));
        assert_eq!(figure("rpc/unary", 200, 8, 47), None);
        assert_eq!(figure("rpc2/unary", 200, 4, 47), None);
    }
}
