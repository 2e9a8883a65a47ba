//! The command line of `corewire registry`.

use std::time::Duration;

use clap::{Args, Subcommand};

use crate::args::{ServeTlsArgs, TlsArgs};
use crate::lists::duration;

/// What to do with a registry.
#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RegistryCommand {
    /// Serve a registry until SIGINT or SIGTERM; the first line on standard output is its address
    Serve(ServeRegistryArgs),
    /// Write the endpoints that it knows, one a line
    List(ListArgs),
    /// Write the changes of a service as they happen: `=` all that there is, `+` added, `~` changed, `-` gone
    Watch(WatchArgs),
    /// Register an endpoint, and keep it registered until SIGINT or SIGTERM
    Register(RegisterArgs),
    /// Take an endpoint out, whoever registered it. A server that lives and registers itself comes back
    Deregister(DeregisterArgs),
}

/// Which registry.
#[derive(Debug, Clone, Args)]
pub(crate) struct Which {
    /// Its address: `rpc://HOST:PORT`, `tls://HOST:PORT`, `etcd://HOST:PORT/PREFIX`, `file:PATH`, `dns:NAME:PORT`; local is that of this very
    /// process
    #[arg(long, value_name = "URI", default_value = "rpc://127.0.0.1:7400")]
    pub(crate) registry: String,
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
}

/// Options of `corewire registry serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeRegistryArgs {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "URI", default_value = "tcp://127.0.0.1:7400")]
    pub(crate) listen: String,
    #[command(flatten)]
    pub(crate) tls: ServeTlsArgs,
}

/// Options of `corewire registry list`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Of this service [default: of all]
    pub(crate) service: Option<String>,
    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Options of `corewire registry watch`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WatchArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The service, which need not exist yet
    pub(crate) service: String,
    /// End after so many changes [default: never]
    #[arg(long, value_name = "N")]
    pub(crate) count: Option<usize>,
}

/// Options of `corewire registry register`.
#[derive(Debug, Clone, Args)]
pub(crate) struct RegisterArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The service
    pub(crate) service: String,
    /// Where it is, as host:port
    pub(crate) address: String,
    /// What tells it from other endpoints of the service [default: the address]
    #[arg(long, value_name = "ID")]
    pub(crate) instance: Option<String>,
    /// Its share of the work, 0 to 65535
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub(crate) weight: u16,
    /// Its zone
    #[arg(long, value_name = "NAME")]
    pub(crate) zone: Option<String>,
    /// A tag; may be given more than once
    #[arg(long, value_name = "NAME")]
    pub(crate) tag: Vec<String>,
    /// How long it stays when this process is gone, such as 10 or 500ms [default: the registry's]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) ttl: Option<Duration>,
}

/// Options of `corewire registry deregister`.
#[derive(Debug, Clone, Args)]
pub(crate) struct DeregisterArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// The service
    pub(crate) service: String,
    /// The instance
    pub(crate) instance: String,
}
