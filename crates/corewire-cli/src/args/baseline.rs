//! The options of the baseline, which only the benchmark starts.

use clap::{Args, ValueEnum};

use super::ServeKind;
use crate::exchange::{Exchange, exchange};
use crate::lists::{Cpus, count, cpus};

/// Options of the baseline's server.
#[derive(Debug, Clone, Args)]
pub(crate) struct BaselineServeArgs {
    /// What to do with what is received
    pub(crate) kind: ServeKind,
    /// Where to listen
    #[arg(long, default_value = "tcp://127.0.0.1:0")]
    pub(crate) listen: String,
    /// Bytes there and back [default: back what was received]
    #[arg(long, value_parser = exchange)]
    pub(crate) exchange: Option<Exchange>,
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

/// What the baseline's load does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum BaselineLoadKind {
    /// Keep depth × size bytes in flight per connection
    Echo,
    /// Write blocks
    Sink,
    /// Keep depth datagrams in flight per connection
    Udp,
    /// Send datagrams
    UdpSend,
}

/// Options of the baseline's load.
#[derive(Debug, Clone, Args)]
pub(crate) struct BaselineLoadArgs {
    /// What to do
    pub(crate) kind: BaselineLoadKind,
    /// The server
    #[arg(long)]
    pub(crate) target: String,
    /// Connections
    #[arg(long, default_value = "1", value_parser = count)]
    pub(crate) connections: usize,
    /// Messages in flight per connection
    #[arg(long, default_value = "1", value_parser = count)]
    pub(crate) depth: usize,
    /// Bytes of a message
    #[arg(long, default_value = "32", value_parser = count)]
    pub(crate) size: usize,
    /// Bytes there and back [default: back what was received]
    #[arg(long, value_parser = exchange)]
    pub(crate) exchange: Option<Exchange>,
    /// Datagrams one by one
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// The core to bind to
    #[arg(long, value_parser = cpus, default_value = "0")]
    pub(crate) cpus: Cpus,
}
