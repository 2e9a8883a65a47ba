//! Which cells a benchmark measures.

use std::time::Duration;

use crate::args::{BenchArgs, BenchKind, CallMode, Driver};
use crate::exchange::Exchange;
use crate::load::{rpc_name, stream_name};

/// What moves in a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Workload {
    /// One way, counted where it arrives.
    Receive,
    /// One way, counted where it leaves.
    Send,
    /// Raw echo.
    Echo,
    /// SRMP requests.
    Srmp,
    /// Length-field requests.
    LengthField,
    /// Datagrams echoed.
    Udp,
    /// Datagrams echoed, without offload.
    UdpPlain,
    /// Datagrams one way, counted where they arrive.
    UdpSend,
    /// Datagrams one way, without offload.
    UdpSendPlain,
    /// RPC calls in a mode and a version of the protocol.
    Rpc(CallMode, u8),
    /// Streams of frames in a version of the protocol.
    Stream(u8),
    /// As above, but [`STREAMS`] at a time on each connection.
    ManyStreams(u8),
}

impl Workload {
    /// Whether the server sends back what it receives.
    pub(crate) fn is_echoed(self) -> bool {
        !matches!(self, Self::Receive | Self::Send | Self::UdpSend | Self::UdpSendPlain)
    }

    /// Whether datagrams move.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::UdpPlain | Self::UdpSend | Self::UdpSendPlain)
    }

    /// Whether frames of the RPC protocol move.
    pub(crate) fn is_rpc(self) -> bool {
        matches!(self, Self::Rpc(..) | Self::Stream(_) | Self::ManyStreams(_))
    }

    /// Whether datagrams move one by one.
    pub(crate) fn is_plain(self) -> bool {
        matches!(self, Self::UdpPlain | Self::UdpSendPlain)
    }
}

/// Frames of a stream, as in the report.
pub(crate) const FRAMES: usize = 16;

/// Streams at a time on a connection whose fairness is measured.
pub(crate) const STREAMS: usize = 1000;

/// The workloads of `bench rpc`.
const RPC: [Workload; 8] = [
    Workload::Rpc(CallMode::Unary, 1),
    Workload::Rpc(CallMode::Unary, 2),
    Workload::Rpc(CallMode::ClientStream, 1),
    Workload::Rpc(CallMode::ServerStream, 1),
    Workload::Rpc(CallMode::Bidi, 1),
    Workload::Rpc(CallMode::ClientStream, 2),
    Workload::Rpc(CallMode::ServerStream, 2),
    Workload::Rpc(CallMode::Bidi, 2),
];

/// The workloads of `bench stream`.
const STREAM: [Workload; 4] =
    [Workload::Stream(1), Workload::Stream(2), Workload::ManyStreams(1), Workload::ManyStreams(2)];

/// One row's settings but for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cell {
    pub(crate) workload: Workload,
    pub(crate) connections: usize,
    pub(crate) depth: usize,
    pub(crate) size: usize,
    pub(crate) batch: usize,
}

impl Cell {
    /// The workload's name in tables and JSON.
    pub(crate) fn name(&self) -> &'static str {
        match self.workload {
            Workload::Receive if self.batch == 1 => "receive/single",
            Workload::Receive => "receive/batch",
            Workload::Send if self.batch == 1 => "send/single",
            Workload::Send => "send/batch",
            Workload::Echo => "echo",
            Workload::Srmp if self.depth == 1 => "srmp/single",
            Workload::Srmp => "srmp/pipelined",
            Workload::LengthField if self.depth == 1 => "length-field/single",
            Workload::LengthField => "length-field/pipelined",
            Workload::Udp => "udp/echo",
            Workload::UdpPlain => "udp/echo/plain",
            Workload::UdpSend => "udp/send",
            Workload::UdpSendPlain => "udp/send/plain",
            Workload::Rpc(mode, wire) => rpc_name(mode, wire),
            Workload::Stream(wire) => stream_name(wire, false),
            Workload::ManyStreams(wire) => stream_name(wire, true),
        }
    }

    /// What moves on each connection, where it comes back.
    pub(crate) fn exchange(&self) -> Exchange {
        let size = self.size as u64;
        match self.workload {
            Workload::Rpc(_, wire) => Exchange::calls(size, wire),
            Workload::Stream(wire) | Workload::ManyStreams(wire) => {
                Exchange::streams(size, FRAMES as u64, wire)
            }
            _ => Exchange::endless(size, size),
        }
    }

    /// What the baseline moves: of many streams at a time it keeps as many frames in flight, and spreads over them what
    /// opens and closes streams.
    pub(crate) fn baseline_exchange(&self) -> Exchange {
        let (request, response) = self.exchange().per_message();
        match self.workload {
            Workload::ManyStreams(_) => Exchange::endless(request.round() as u64, response.round() as u64),
            _ => self.exchange(),
        }
    }

    /// Messages that are in flight on a connection.
    pub(crate) fn in_flight(&self) -> usize {
        match self.workload {
            Workload::ManyStreams(_) => self.depth * STREAMS,
            _ => self.depth,
        }
    }

    /// Bytes of a message on the wire in the direction of the server, its share of what goes around messages included.
    pub(crate) fn wire_size(&self) -> f64 {
        self.exchange().per_message().0
    }
}

/// How long, how often and with which settings each cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Pace {
    pub(crate) warmup: Duration,
    pub(crate) duration: Duration,
    pub(crate) repeats: usize,
    /// The size of our server's receive block, if not the library's own.
    pub(crate) receive_buffer: Option<usize>,
    /// Messages a second of our load, if not as fast as replies come.
    pub(crate) rate: Option<u64>,
}

/// One cell and the drivers that are measured in it, in turn, against the same runs of the baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) cell: Cell,
    pub(crate) drivers: Vec<Driver>,
}

/// Everything that the arguments ask for, in the order of measuring.
pub(crate) fn steps(args: &BenchArgs, other: Option<Driver>) -> Vec<Step> {
    let workloads: &[Workload] = match args.kind {
        BenchKind::Receive => &[Workload::Receive],
        BenchKind::Send => &[Workload::Send],
        BenchKind::Echo => &[Workload::Echo],
        BenchKind::Srmp => &[Workload::Srmp],
        BenchKind::LengthField => &[Workload::LengthField],
        // It has rows of its own.
        BenchKind::Discovery | BenchKind::Fairness | BenchKind::Wake | BenchKind::Tls => &[],
        BenchKind::Udp => &[Workload::UdpPlain, Workload::Udp, Workload::UdpSendPlain, Workload::UdpSend],
        BenchKind::Rpc => &RPC,
        BenchKind::Stream => &STREAM,
        BenchKind::Kcp => &[],
        BenchKind::All => {
            &[Workload::Echo, Workload::Receive, Workload::Send, Workload::Srmp, Workload::LengthField]
        }
    };
    let cells = workloads.iter().flat_map(|&workload| cells(workload, args));
    let suite = args.quick && args.kind == BenchKind::All;
    cells
        .map(|cell| {
            let mut drivers = args.driver.drivers().to_vec();
            // In the quick suite the other driver is shown where the two differ most.
            if let Some(other) = other.filter(|_| suite && is_telling(&cell)) {
                drivers.push(other);
            }
            Step { cell, drivers }
        })
        .collect()
}

/// The pace that the arguments ask for.
pub(crate) fn pace(args: &BenchArgs) -> Pace {
    let (warmup, duration, repeats) = if args.quick { (150, 300, 3) } else { (500, 2000, 3) };
    Pace {
        warmup: args.warmup.unwrap_or(Duration::from_millis(warmup)),
        duration: args.duration.unwrap_or(Duration::from_millis(duration)),
        repeats: args.repeats.unwrap_or(repeats),
        receive_buffer: args.receive_buffer,
        rate: args.rate,
    }
}

fn cells(workload: Workload, args: &BenchArgs) -> Vec<Cell> {
    if args.report {
        return report_cells(workload);
    }
    let own = default_cells(workload, args.quick);
    if args.connections.is_none() && args.depth.is_none() && args.size.is_none() && args.batch.is_none() {
        return own;
    }
    // A list given for one axis is crossed with the workload's usual values of the others.
    let axis = |given: &Option<crate::lists::Counts>, usual: &[usize]| {
        given.as_ref().map_or_else(|| usual.to_vec(), |list| list.0.clone())
    };
    let connections = axis(&args.connections, &[64]);
    let depths = match workload {
        Workload::Receive | Workload::Send | Workload::UdpSend | Workload::UdpSendPlain => vec![1],
        Workload::Udp => axis(&args.depth, &[64]),
        Workload::UdpPlain => axis(&args.depth, &[1]),
        Workload::Echo => axis(&args.depth, &[1, 64]),
        Workload::Srmp => axis(&args.depth, &[1, 255]),
        Workload::LengthField => axis(&args.depth, &[1, 128]),
        Workload::Rpc(..) => axis(&args.depth, &[4]),
        Workload::Stream(_) => axis(&args.depth, &[1, 8, 16]),
        Workload::ManyStreams(_) => axis(&args.depth, &[1]),
    };
    let sizes = match workload {
        Workload::Rpc(..) => axis(&args.size, &[47]),
        Workload::Stream(_) | Workload::ManyStreams(_) => axis(&args.size, &[128]),
        _ => axis(&args.size, &[32]),
    };
    let batches = match workload {
        Workload::Receive => axis(&args.batch, &[1, 256]),
        Workload::Send => axis(&args.batch, &[1]),
        _ => vec![1],
    };
    let mut cells = Vec::new();
    for &batch in &batches {
        for &depth in &depths {
            for &size in &sizes {
                for &connections in &connections {
                    cells.push(Cell { workload, connections, depth, size, batch });
                }
            }
        }
    }
    cells
}

/// The parameter sets of report 003.
fn report_cells(workload: Workload) -> Vec<Cell> {
    let cell = |connections, depth, size| Cell { workload, connections, depth, size, batch: 1 };
    match workload {
        Workload::Rpc(CallMode::Unary, 1) => vec![
            cell(50, 1, 256),
            cell(100, 1, 256),
            cell(200, 1, 256),
            cell(100, 1, 1024),
            cell(100, 1, 4096),
            cell(20, 1, 65_536),
            cell(50, 1, 65_536),
            cell(100, 1, 65_536),
            cell(200, 1, 65_536),
            cell(400, 1, 65_536),
            cell(100, 4, 65_536),
            cell(200, 4, 47),
        ],
        Workload::Rpc(_, 1) => vec![cell(200, 4, 47), cell(100, 1, 65_536)],
        Workload::Stream(1) => [1, 2, 4, 8, 16].map(|depth| cell(100, depth, 128)).to_vec(),
        _ => vec![],
    }
}

fn default_cells(workload: Workload, quick: bool) -> Vec<Cell> {
    const REPORT: &[usize] = &[1, 4, 16, 64, 256, 1024];
    let cell = |connections, depth, size, batch| Cell { workload, connections, depth, size, batch };
    let connections = |quick_ones: &'static [usize]| if quick { quick_ones } else { REPORT };
    let mut cells = Vec::new();
    match workload {
        Workload::Receive => {
            cells.extend(connections(&[1, 64]).iter().map(|&c| cell(c, 1, 32, 1)));
            cells.extend(connections(&[1, 16]).iter().map(|&c| cell(c, 1, 32, 256)));
        }
        Workload::Send => {
            let sizes: &[usize] = if quick { &[1024] } else { &[32, 1024, 65_536] };
            let counts: &[usize] = if quick { &[1] } else { &[1, 64] };
            cells.extend(counts.iter().flat_map(|&c| sizes.iter().map(move |&s| cell(c, 1, s, 1))));
        }
        Workload::Echo => {
            for depth in [1, 64] {
                cells.extend([1, 64, 256, 1000].map(|c| cell(c, depth, 32, 1)));
            }
            cells.extend([cell(100, 1, 64 << 10, 1), cell(10, 1, 1 << 20, 1), cell(10_000, 1, 32, 1)]);
        }
        // The report's: 100 clients, 1024 bytes.
        Workload::UdpPlain => cells.extend([cell(100, 1, 1024, 1), cell(100, 1, 32, 1)]),
        Workload::Udp => cells.extend([cell(100, 64, 1024, 1), cell(100, 64, 32, 1)]),
        Workload::UdpSend | Workload::UdpSendPlain => {
            cells.extend([cell(1, 1, 32, 1), cell(1, 1, 1024, 1)]);
        }
        Workload::Rpc(_, 2) if quick && workload != RPC[1] => {}
        Workload::Rpc(CallMode::Unary, wire) if !quick || wire == 1 => {
            cells.extend([cell(200, 4, 47, 1), cell(100, 1, 256, 1), cell(100, 1, 4096, 1)]);
            cells.extend([cell(100, 1, 65_536, 1), cell(64, 64, 47, 1)]);
        }
        Workload::Rpc(..) => cells.push(cell(200, 4, 47, 1)),
        Workload::Stream(2) if quick => cells.push(cell(100, 8, 128, 1)),
        Workload::Stream(_) => cells.extend([1, 8, 16].map(|depth| cell(100, depth, 128, 1))),
        Workload::ManyStreams(2) if quick => {}
        Workload::ManyStreams(_) => cells.push(cell(1, 1, 128, 1)),
        Workload::Srmp | Workload::LengthField => {
            let depth = if workload == Workload::Srmp { 255 } else { 128 };
            for depth in [1, depth] {
                cells.extend(connections(&[64]).iter().map(|&c| cell(c, depth, 32, 1)));
            }
        }
    }
    cells
}

fn is_telling(cell: &Cell) -> bool {
    match cell.workload {
        Workload::Echo => cell.connections == 64 || cell.size > 32,
        Workload::Receive => cell.connections == 64,
        Workload::Srmp => cell.depth > 1,
        Workload::Send | Workload::LengthField => false,
        Workload::Rpc(..) | Workload::Stream(_) | Workload::ManyStreams(_) => false,
        Workload::Udp | Workload::UdpPlain | Workload::UdpSend | Workload::UdpSendPlain => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lists::Counts;

    #[test]
    fn the_quick_suite_shows_each_row_of_the_target_table_and_both_drivers() {
        let steps = steps(&BenchArgs::quick_suite(), Some(Driver::Epoll));
        let has = |name: &str, connections, depth, size| {
            steps.iter().any(|s| {
                (s.cell.name(), s.cell.connections, s.cell.depth, s.cell.size)
                    == (name, connections, depth, size)
            })
        };
        for connections in [1, 64, 256, 1000] {
            assert!(has("echo", connections, 1, 32) && has("echo", connections, 64, 32));
        }
        assert!(has("echo", 100, 1, 65_536) && has("echo", 10, 1, 1 << 20) && has("echo", 10_000, 1, 32));
        assert!(has("receive/single", 64, 1, 32) && has("receive/batch", 16, 1, 32));
        assert!(has("srmp/single", 64, 1, 32) && has("srmp/pipelined", 64, 255, 32));
        assert!(has("length-field/single", 64, 1, 32) && has("length-field/pipelined", 64, 128, 32));
        assert!(steps.iter().any(|s| s.drivers == [Driver::Auto, Driver::Epoll]));
    }

    #[test]
    fn the_quick_suite_fits_its_time() {
        let args = BenchArgs::quick_suite();
        let (steps, pace) = (steps(&args, Some(Driver::Epoll)), pace(&args));
        let runs: usize = steps.iter().map(|s| (s.drivers.len() + 1) * pace.repeats).sum();
        // Starting, connecting, draining and stopping take some 0.05 s beside the clock.
        let seconds = (pace.warmup + pace.duration).as_secs_f64() + 0.07;
        assert!(runs as f64 * seconds < 80.0, "{runs} runs of {seconds} s");
    }

    fn has(steps: &[Step], name: &str, connections: usize, depth: usize, size: usize) -> bool {
        let wanted = (name, connections, depth, size);
        steps.iter().any(|s| (s.cell.name(), s.cell.connections, s.cell.depth, s.cell.size) == wanted)
    }

    #[test]
    fn the_full_plans_of_calls_and_streams_have_each_row_of_the_target_table() {
        let args = |kind| BenchArgs { kind, quick: false, ..BenchArgs::quick_suite() };
        let (calls, streams) = (steps(&args(BenchKind::Rpc), None), steps(&args(BenchKind::Stream), None));
        for version in ["rpc", "rpc2"] {
            let unary = format!("{version}/unary");
            assert!(has(&calls, &unary, 200, 4, 47) && has(&calls, &unary, 64, 64, 47), "{unary}");
            for size in [256, 4096, 65_536] {
                assert!(has(&calls, &unary, 100, 1, size), "{unary} {size}");
            }
            for mode in ["client-stream", "server-stream", "bidi"] {
                assert!(has(&calls, &format!("{version}/{mode}"), 200, 4, 47), "{version}/{mode}");
            }
        }
        for version in ["stream", "stream2"] {
            for depth in [1, 8, 16] {
                assert!(has(&streams, version, 100, depth, 128), "{version} {depth}");
            }
            assert!(has(&streams, &format!("{version}/many"), 1, 1, 128), "{version}");
        }
    }

    #[test]
    fn every_parameter_set_of_report_003_runs_in_one_go_and_has_its_figure() {
        for (kind, count) in [(BenchKind::Rpc, 18), (BenchKind::Stream, 5)] {
            let args = BenchArgs { kind, report: true, ..BenchArgs::quick_suite() };
            let steps = steps(&args, None);
            assert_eq!(steps.len(), count);
            for Step { cell, .. } in steps {
                let figure =
                    super::super::reports::figure(cell.name(), cell.connections, cell.depth, cell.size);
                assert_eq!(figure.map(|figure| figure.report), Some("003"), "{cell:?}");
            }
        }
    }

    #[test]
    fn the_baseline_of_many_streams_moves_nearly_the_same_bytes() {
        let cell = Cell { workload: Workload::ManyStreams(1), connections: 1, depth: 2, size: 128, batch: 1 };
        assert_eq!((cell.baseline_exchange(), cell.in_flight()), (Exchange::endless(148, 146), 2000));
        let (request, response) = cell.exchange().per_message();
        assert!((request / 148.0 - 1.0).abs() < 0.005 && (response / 146.0 - 1.0).abs() < 0.005);
    }

    #[test]
    fn lists_are_crossed_and_the_other_axes_keep_their_usual_values() {
        let args = BenchArgs {
            kind: BenchKind::LengthField,
            connections: Some(Counts(vec![1, 2])),
            quick: false,
            ..BenchArgs::quick_suite()
        };
        let steps = steps(&args, None);
        let cells: Vec<_> = steps.iter().map(|s| (s.cell.connections, s.cell.depth, s.cell.size)).collect();
        assert_eq!(cells, [(1, 1, 32), (2, 1, 32), (1, 128, 32), (2, 128, 32)]);
    }

    #[test]
    fn options_override_the_pace_of_quick() {
        let args = BenchArgs { repeats: Some(9), ..BenchArgs::quick_suite() };
        assert_eq!(pace(&args).repeats, 9);
        assert!(pace(&args).duration < Duration::from_secs(1));
    }
}
