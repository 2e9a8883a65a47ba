//! The options of `bench fairness`, and of the clients that it starts.

use std::time::Duration;

use clap::Args;

use super::plan::Protocol;
use crate::lists::{Cpus, count, cpus, duration};

/// Options of `corewire bench fairness` alone.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Of fairness alone")]
pub(crate) struct FairnessArgs {
    /// What the greedy clients do, such as srmp,rpc [default: all of it]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub(crate) protocol: Vec<Protocol>,
}

/// Options of the greedy clients.
#[derive(Debug, Clone, Args)]
pub(crate) struct GreedyArgs {
    /// What they do; datagrams and KCP are for `load`
    pub(crate) protocol: Protocol,
    /// The server
    #[arg(long)]
    pub(crate) target: String,
    /// Connections
    #[arg(long, default_value = "1", value_parser = count)]
    pub(crate) connections: usize,
    /// Payload of a request
    #[arg(long, default_value = "28", value_parser = count)]
    pub(crate) size: usize,
    /// The core to bind to
    #[arg(long, value_parser = cpus, default_value = "0")]
    pub(crate) cpus: Cpus,
}

/// Options of the polite client.
#[derive(Debug, Clone, Args)]
pub(crate) struct PoliteArgs {
    /// What the greedy clients do
    pub(crate) protocol: Protocol,
    /// The server
    #[arg(long)]
    pub(crate) target: String,
    /// The server sends back what it gets, and knows no protocol
    #[arg(long)]
    pub(crate) echo: bool,
    /// Before measuring
    #[arg(long, value_parser = duration)]
    pub(crate) warmup: Duration,
    /// Of measuring
    #[arg(long, value_parser = duration)]
    pub(crate) duration: Duration,
    /// From one request to the next
    #[arg(long, value_parser = duration)]
    pub(crate) period: Duration,
    /// The core to bind to
    #[arg(long, value_parser = cpus, default_value = "0")]
    pub(crate) cpus: Cpus,
}
