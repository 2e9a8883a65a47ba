//! The options of `corewire bench`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::Driver;
use crate::discovery::DiscoveryArgs;
use crate::fairness::FairnessArgs;
use crate::lists::{Counts, count, counts, duration, rate, receive_buffer};

/// What `corewire bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchKind {
    /// One-way packets of 32 B by single calls and by batches, counted where they arrive
    Receive,
    /// One-way packets of several sizes, one call each, counted where they leave
    Send,
    /// Raw packets echoed
    Echo,
    /// SRMP requests and matched replies
    #[value(alias = "standard")]
    Srmp,
    /// Length-field requests and replies matched in order
    LengthField,
    /// RPC calls in the four modes; --size is the payload
    Rpc,
    /// Streams of 16 frames on one route; --size is the payload of a frame
    Stream,
    /// All of the above but rpc and stream, and the short rows of fairness
    All,
    /// Datagrams echoed and one way, with and without the kernel's offloads; errors are datagrams lost
    Udp,
    /// Registering, discovering and deregistering services, and look-ups beside changes; in this process, or with
    /// --registry in one elsewhere
    Discovery,
    /// KCP beside TCP over a path that loses and delays: goodput, and latency of messages; many sessions on one port
    Kcp,
    /// Clients that send without end beside a polite one, on one worker: what the polite one has to wait; --connections are
    /// the greedy ones, --size is the payload of their requests
    Fairness,
    /// TLS beside a bare loop of rustls over epoll: echoes, handshakes, heap; and what a plain connection of the same worker
    /// waits during handshakes
    Tls,
    /// Handing work to a worker from another thread: the time of a push, and the wake-ups that it took
    Wake,
}

/// Which driver or drivers `corewire bench` measures.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BenchDriver {
    /// The one that `auto` chooses
    Auto,
    /// `io_uring`
    Uring,
    /// Readiness (epoll)
    Epoll,
    /// `io_uring` and epoll in turn, against the same runs of the baseline
    Both,
}

impl BenchDriver {
    /// The drivers to measure, in order.
    pub(crate) fn drivers(self) -> &'static [Driver] {
        match self {
            Self::Auto => &[Driver::Auto],
            Self::Uring => &[Driver::Uring],
            Self::Epoll => &[Driver::Epoll],
            Self::Both => &[Driver::Uring, Driver::Epoll],
        }
    }
}

/// Where `--reference` takes figures from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Reference {
    /// The performance reports 000 to 004
    Report,
}

/// Options of `corewire bench`.
///
/// A row is measured --repeats times in turn with the baseline (baseline, ours, baseline, ours, …): one server process and
/// one load process, bound to different cores where there are two, the same cores for the baseline and for ours. The
/// baseline is a bare epoll loop that moves the same bytes with no framing and no work per message.
///
/// Figures are medians. `msg/s` counts messages completed (echo, srmp, length-field), arrived (receive) or
/// handed to the kernel (send). `Mbit/s` is headers and payload in one direction. `srv ns` is CPU
/// time of the whole process per message; `heap B` is the heap bytes that both processes asked for per message.
/// Latencies are in µs; at depth 1 each message is timed, at larger depths one in 64 of a connection, so that the
/// clock does not become the work. `share` is the median of the ratios of neighbouring runs to the baseline.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// The workload
    pub(crate) kind: BenchKind,
    /// Numbers of connections, such as 1,64,1000 [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts)]
    pub(crate) connections: Option<Counts>,
    /// Messages in flight per connection [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts, visible_aliases = ["window", "pipeline"], alias = "depths", alias = "windows")]
    pub(crate) depth: Option<Counts>,
    /// Bytes of a message on the wire, header included [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts, visible_alias = "sizes")]
    pub(crate) size: Option<Counts>,
    /// Packets that one `send` call carries (receive, send) [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts)]
    pub(crate) batch: Option<Counts>,
    /// Send so many messages a second over all connections, and measure latencies from the time at which each was to be
    /// sent; the baseline goes as fast as it can (rpc, srmp, length-field) [default: as fast as replies come]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// The driver or drivers
    #[arg(long, default_value = "auto")]
    pub(crate) driver: BenchDriver,
    /// Fewer and shorter rows
    #[arg(long)]
    pub(crate) quick: bool,
    /// Length of one measurement [default: 2, quick 0.3]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) duration: Option<Duration>,
    /// Warm-up before it, not measured [default: 0.5, quick 0.15]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) warmup: Option<Duration>,
    /// Measurements of each row [default: 3]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) repeats: Option<usize>,
    /// Bytes of the block that the server receives into, such as 64K [default: the library's, 640K]
    #[arg(long, value_name = "BYTES", value_parser = receive_buffer)]
    pub(crate) receive_buffer: Option<usize>,
    /// Core of the server process [default: the first this process may use]
    #[arg(long, value_name = "CORE")]
    pub(crate) server_cpu: Option<usize>,
    /// Core of the load process [default: the second, or the first where there is one]
    #[arg(long, value_name = "CORE")]
    pub(crate) load_cpu: Option<usize>,
    /// Measure the parameter sets of report 003, and print its figures beside ours (rpc, stream)
    #[arg(long, conflicts_with_all = ["connections", "depth", "size", "batch"])]
    pub(crate) report: bool,
    /// Also print the figures of the performance reports beside ours
    #[arg(long, value_name = "SOURCE", visible_alias = "baseline")]
    pub(crate) reference: Option<Reference>,
    #[command(flatten)]
    pub(crate) discovery: DiscoveryArgs,
    #[command(flatten)]
    pub(crate) fairness: FairnessArgs,
    /// Also write all rows as one JSON array
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

impl BenchArgs {
    /// What `corewire` without a subcommand does.
    pub(crate) fn quick_suite() -> Self {
        Self {
            kind: BenchKind::All,
            connections: None,
            depth: None,
            size: None,
            batch: None,
            rate: None,
            driver: BenchDriver::Auto,
            quick: true,
            duration: None,
            warmup: None,
            repeats: None,
            receive_buffer: None,
            server_cpu: None,
            load_cpu: None,
            report: false,
            reference: None,
            discovery: DiscoveryArgs::default(),
            fairness: FairnessArgs::default(),
            json: None,
        }
    }
}
