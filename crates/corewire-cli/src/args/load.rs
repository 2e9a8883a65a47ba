//! The options of `corewire load`.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};

use super::{CallMode, TlsArgs, WorkerArgs};
use crate::lists::{count, duration, rate};

/// What a load does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadKind {
    /// One-way: one `send` call per packet; the server counts
    Receive,
    /// Raw packets, sent again when they come back
    Echo,
    /// SRMP requests, matched by sequence
    #[value(alias = "standard")]
    Srmp,
    /// Length-field requests, matched in order
    LengthField,
    /// Datagrams, sent again when they come back; what does not come back is counted as lost
    Udp,
    /// Datagrams one way: at most 8192 more than the server says it has received, if it says so (`serve udp-sink`)
    UdpSend,
    /// RPC calls of `BenchEchoService/echo`; --size is the payload
    Rpc,
    /// Streams of frames on `StreamBenchService/echo`; --size is the payload of a frame, --depth frames are in flight
    Stream,
}

impl LoadKind {
    /// Whether it sends datagrams.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::UdpSend)
    }
}

/// Options of `corewire load`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// The workload
    pub(crate) kind: LoadKind,
    /// The server
    #[arg(long, value_name = "URI", default_value = "tcp://127.0.0.1:7777")]
    pub(crate) target: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
    /// Connections
    #[arg(long, value_name = "N", default_value = "64", value_parser = count, visible_alias = "clients")]
    pub(crate) connections: usize,
    /// Messages in flight per connection (echo, srmp, length-field, rpc; of a stream its frames); with --rate calls
    /// that are due wait for their place among them [default: 1, with --rate 256]
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        default_value_if("rate", ArgPredicate::IsPresent, "256")
    )]
    #[arg(hide_default_value = true, value_parser = count, visible_aliases = ["window", "pipeline"])]
    pub(crate) depth: usize,
    /// Send so many messages a second over all connections, whenever replies come, and measure latencies from the time at
    /// which each was to be sent (rpc, srmp, length-field) [default: as fast as replies come]
    #[arg(long, value_name = "N", value_parser = rate)]
    pub(crate) rate: Option<u64>,
    /// Bytes of a message on the wire, header included, such as 32 or 64K
    #[arg(long, value_name = "BYTES", default_value = "32", value_parser = count)]
    pub(crate) size: usize,
    /// Stop after this many messages in all; none is warm-up
    #[arg(long, value_name = "N", value_parser = count, conflicts_with = "duration")]
    pub(crate) packets: Option<usize>,
    /// Stop after this many messages of each connection
    #[arg(long, value_name = "N", value_parser = count, conflicts_with_all = ["duration", "packets"])]
    pub(crate) messages: Option<usize>,
    /// Measure for this long, such as 10 or 500ms
    #[arg(long, value_name = "S", default_value = "5", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Before it, send for this long without measuring
    #[arg(long, value_name = "S", default_value = "0.5", value_parser = duration)]
    pub(crate) warmup: Duration,
    /// Packets that one `send` call carries (receive)
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub(crate) batch: usize,
    /// Receive and send datagrams one by one, without the kernel's offloads (udp, udp-send)
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// The mode of calls (rpc)
    #[arg(long, default_value = "unary")]
    pub(crate) mode: CallMode,
    /// Frames of a stream (stream)
    #[arg(long, value_name = "N", default_value = "16", value_parser = count)]
    pub(crate) frames: usize,
    /// Streams at a time on each connection, --depth frames of each in flight (stream)
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    pub(crate) streams: usize,
    /// The version of the RPC protocol: 1 (galay-rpc) or 2 (rpc, stream)
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) wire: u8,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Also write the result as a JSON array of one row
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Take control lines on standard input
    #[arg(long, hide = true)]
    pub(crate) control: bool,
}

impl LoadArgs {
    /// Messages of all connections after which to stop.
    pub(crate) fn packets_in_all(&self) -> Option<usize> {
        self.packets.or(self.messages.map(|each| each.saturating_mul(self.connections)))
    }
}
