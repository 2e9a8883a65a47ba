//! The options of the limit, which only the benchmark starts.

use clap::{Args, ValueEnum};

use super::ServeKind;
use crate::lists::{Cpus, count, cpus};
use crate::moves::{Moves, moves};

/// Options of the limit's server.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitServeArgs {
    /// What to do with what is received
    pub(crate) kind: ServeKind,
    /// Where to listen
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    pub(crate) listen: String,
    /// Bytes there and back [default: back what was received]
    #[arg(long, value_parser = moves)]
    pub(crate) moves: Option<Moves>,
    /// Datagrams one by one
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// Bytes of a datagram
    #[arg(long, default_value = "32", value_parser = count)]
    pub(crate) size: usize,
    /// The core to bind to
    #[arg(long, value_parser = cpus, default_value = "0")]
    pub(crate) cpus: Cpus,
    /// Answer control lines on standard input
    #[arg(long)]
    pub(crate) control: bool,
}

/// What the limit's load does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LimitLoadKind {
    /// Keep window × size bytes in flight per connection
    Echo,
    /// Write blocks
    Sink,
    /// Keep window datagrams in flight per connection
    Udp,
    /// Send datagrams
    UdpSend,
}

/// Options of the limit's load.
#[derive(Debug, Clone, Args)]
pub(crate) struct LimitLoadArgs {
    /// What to do
    pub(crate) kind: LimitLoadKind,
    /// The server
    #[arg(long)]
    pub(crate) target: String,
    /// Connections
    #[arg(long, default_value = "1", value_parser = count)]
    pub(crate) connections: usize,
    /// Messages in flight per connection
    #[arg(long, default_value = "1", value_parser = count)]
    pub(crate) window: usize,
    /// Bytes of a message
    #[arg(long, default_value = "32", value_parser = count)]
    pub(crate) size: usize,
    /// Bytes there and back [default: back what was received]
    #[arg(long, value_parser = moves)]
    pub(crate) moves: Option<Moves>,
    /// Datagrams one by one
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// The core to bind to
    #[arg(long, value_parser = cpus, default_value = "0")]
    pub(crate) cpus: Cpus,
}
