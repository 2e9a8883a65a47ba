//! The options of `corewire serve`.

use std::time::Duration;

use clap::{Args, ValueEnum};

use super::{ServeTlsArgs, WorkerArgs};
use crate::lists::{count, duration};

/// What a server does with what it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ServeKind {
    /// Send it back
    Echo,
    /// Count it
    Sink,
    /// Send datagrams back: `echo`, but over UDP unless --listen says otherwise
    UdpEcho,
    /// Count datagrams, over UDP unless --listen says otherwise, and tell each peer the count (8 bytes, little-endian) once
    /// in 1024
    UdpSink,
    /// The services of galay's RPC benchmarks: `BenchEchoService/echo` and `EchoService/echo` in all four modes, and the
    /// stream route `StreamBenchService/echo`; both versions of the protocol
    Rpc,
}

impl ServeKind {
    /// Whether what is received is sent back.
    pub(crate) fn is_echo(self) -> bool {
        matches!(self, Self::Echo | Self::UdpEcho)
    }

    /// Whether it listens on UDP where nothing else is said.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::UdpEcho | Self::UdpSink)
    }
}

/// How the bytes of a connection are cut into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CodecKind {
    /// Not at all: bytes as they come
    None,
    /// SRMP, the 4-byte header with a sequence number
    #[value(alias = "standard")]
    Srmp,
    /// A 2-byte little-endian length before each payload
    LengthField,
}

/// Options of `corewire serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// What to do with what is received
    pub(crate) kind: ServeKind,
    /// Where to listen; port 0 lets the system choose [default: tcp://127.0.0.1:7777, udp-* udp://127.0.0.1:9090]
    #[arg(long, value_name = "URI")]
    pub(crate) listen: Option<String>,
    #[command(flatten)]
    pub(crate) tls: ServeTlsArgs,
    /// Receive and send datagrams one by one, without the kernel's offloads
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// How connections are cut into frames
    #[arg(long, default_value = "none")]
    pub(crate) codec: CodecKind,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Most connections, or sessions on udp and kcp [default: what the limit on open files allows, and 65536 sessions]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) connections: Option<usize>,
    /// Write a line of statistics to standard error at this period, such as 1 or 500ms
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) stats: Option<Duration>,
    /// Answer control lines on standard input
    #[arg(long, hide = true)]
    pub(crate) control: bool,
}
