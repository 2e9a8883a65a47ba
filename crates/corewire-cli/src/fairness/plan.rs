//! Which cells `bench fairness` measures.

use std::time::Duration;

use clap::ValueEnum;

use crate::args::{BenchArgs, Driver};

/// What greedy clients do. The polite client speaks the same, but for streams: beside those it makes calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Protocol {
    /// Raw bytes, one message in each `send`
    Echo,
    /// SRMP requests
    Srmp,
    /// Unary RPC calls
    Rpc,
    /// Frames of an RPC stream without end
    Stream,
    /// Datagrams
    Udp,
    /// Length-field requests over KCP
    Kcp,
    /// SRMP requests whose replies are never read
    NeverReads,
    /// A byte of an SRMP request each second
    OneByte,
}

impl Protocol {
    const ALL: [Self; 8] = [
        Self::Echo,
        Self::Srmp,
        Self::Rpc,
        Self::Stream,
        Self::Udp,
        Self::Kcp,
        Self::NeverReads,
        Self::OneByte,
    ];

    /// As it is written on the command line, in tables and in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Echo => "echo",
            Self::Srmp => "srmp",
            Self::Rpc => "rpc",
            Self::Stream => "stream",
            Self::Udp => "udp",
            Self::Kcp => "kcp",
            Self::NeverReads => "never-reads",
            Self::OneByte => "one-byte",
        }
    }

    /// Whether it is SRMP on the wire.
    pub(super) fn is_srmp(self) -> bool {
        matches!(self, Self::Srmp | Self::NeverReads | Self::OneByte)
    }

    /// Whether clients take the answers.
    pub(super) fn is_answered(self) -> bool {
        !matches!(self, Self::NeverReads | Self::OneByte)
    }

    /// Whether a server that sends back what it receives serves both clients, so that there is a baseline.
    pub(super) fn has_baseline(self) -> bool {
        matches!(self, Self::Echo | Self::Srmp | Self::Udp)
    }

    /// Payloads of the greedy requests.
    fn sizes(self) -> &'static [usize] {
        match self {
            Self::Echo | Self::Srmp | Self::Stream => &[4, 28, 1024, 65_536],
            Self::Rpc => &[1, 28, 1024, 65_536],
            Self::Udp | Self::Kcp => &[28, 1024],
            Self::NeverReads | Self::OneByte => &[28],
        }
    }
}

/// One row's settings but for the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cell {
    pub(super) protocol: Protocol,
    pub(super) connections: usize,
    /// Payload of a greedy request.
    pub(super) size: usize,
}

/// How long and how often each cell is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pace {
    pub(super) warmup: Duration,
    pub(super) duration: Duration,
    pub(super) repeats: usize,
    /// From one polite request to the next.
    pub(super) period: Duration,
}

/// What serves the clients of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Server {
    /// The bare epoll loop.
    Baseline,
    /// The library.
    Ours(Driver),
}

/// The cells that the arguments ask for.
pub(super) fn cells(args: &BenchArgs) -> Vec<Cell> {
    let protocols =
        if args.fairness.protocol.is_empty() { &Protocol::ALL[..] } else { &args.fairness.protocol };
    let has_lists = args.connections.is_some() || args.size.is_some() || !args.fairness.protocol.is_empty();
    if args.quick && !has_lists {
        let cell = |protocol, connections, size| Cell { protocol, connections, size };
        return vec![
            cell(Protocol::Echo, 8, 65_536),
            cell(Protocol::Srmp, 1, 4),
            cell(Protocol::Srmp, 64, 28),
            cell(Protocol::Rpc, 1, 1),
            cell(Protocol::Stream, 8, 28),
            cell(Protocol::Udp, 8, 28),
            cell(Protocol::Kcp, 8, 28),
        ];
    }
    let mut cells = Vec::new();
    for &protocol in protocols {
        let connections = args.connections.as_ref().map_or(&[1, 8, 64][..], |list| &list.0);
        let sizes = args.size.as_ref().map_or(protocol.sizes(), |list| &list.0);
        for &size in sizes {
            cells.extend(connections.iter().map(|&connections| Cell { protocol, connections, size }));
        }
    }
    cells
}

/// The servers that are measured in a cell, in order.
pub(super) fn servers(cell: &Cell, args: &BenchArgs) -> Vec<Server> {
    let baseline = (cfg!(target_os = "linux") && cell.protocol.has_baseline()).then_some(Server::Baseline);
    baseline.into_iter().chain(args.driver.drivers().iter().copied().map(Server::Ours)).collect()
}

/// The pace that the arguments ask for.
pub(super) fn pace(args: &BenchArgs) -> Pace {
    let (warmup, duration) = if args.quick { (150, 700) } else { (300, 2000) };
    Pace {
        warmup: args.warmup.unwrap_or(Duration::from_millis(warmup)),
        duration: args.duration.unwrap_or(Duration::from_millis(duration)),
        repeats: args.repeats.unwrap_or(1),
        period: Duration::from_millis(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{BenchDriver, BenchKind};
    use crate::lists::Counts;

    fn args(quick: bool) -> BenchArgs {
        BenchArgs { kind: BenchKind::Fairness, quick, ..BenchArgs::quick_suite() }
    }

    #[test]
    fn the_full_plan_has_each_protocol_beside_1_8_and_64_greedy_connections() {
        let cells = cells(&args(false));
        for protocol in Protocol::ALL {
            for connections in [1, 8, 64] {
                assert!(cells.iter().any(|c| (c.protocol, c.connections) == (protocol, connections)));
            }
        }
        for size in [4, 28, 1024, 65_536] {
            assert!(cells.contains(&Cell { protocol: Protocol::Srmp, connections: 1, size }));
        }
    }

    #[test]
    fn the_quick_plan_has_each_protocol_and_is_short() {
        let args = args(true);
        let (cells, pace) = (cells(&args), pace(&args));
        for protocol in Protocol::ALL.into_iter().filter(|protocol| protocol.is_answered()) {
            assert!(cells.iter().any(|cell| cell.protocol == protocol), "{protocol:?}");
        }
        let runs: usize = cells.iter().map(|cell| servers(cell, &args).len()).sum();
        assert!((pace.warmup + pace.duration).as_secs_f64() * runs as f64 <= 12.0, "{runs} runs");
    }

    #[test]
    fn lists_are_crossed() {
        let args = BenchArgs {
            connections: Some(Counts(vec![1, 2])),
            size: Some(Counts(vec![1])),
            fairness: super::super::FairnessArgs { protocol: vec![Protocol::Rpc] },
            ..args(true)
        };
        let cell = |connections| Cell { protocol: Protocol::Rpc, connections, size: 1 };
        assert_eq!(cells(&args), [cell(1), cell(2)]);
    }

    #[test]
    fn the_baseline_comes_first_where_an_echo_serves_the_protocol() {
        let both = BenchArgs { driver: BenchDriver::Both, ..args(false) };
        let servers = |protocol| servers(&Cell { protocol, connections: 1, size: 28 }, &both);
        let ours = [Server::Ours(Driver::Uring), Server::Ours(Driver::Epoll)];
        assert_eq!(servers(Protocol::Rpc), ours);
        if cfg!(target_os = "linux") {
            assert_eq!(servers(Protocol::Srmp)[0], Server::Baseline);
        }
    }
}
