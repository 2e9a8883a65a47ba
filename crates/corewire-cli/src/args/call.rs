//! The options of `corewire call`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::CallMode;
use crate::call;
use crate::lists::duration;

/// Options of `corewire call`.
///
/// A call that fails ends with exit code 1, and its code and message on standard error; responses that came before stand on
/// standard output.
#[derive(Debug, Clone, Args)]
pub(crate) struct CallArgs {
    /// The server, such as <tcp://127.0.0.1:7777>; or discover:///Service/method, for one that the registry knows
    pub(crate) uri: String,
    /// What to call, as Service/method
    #[arg(value_parser = call::method)]
    pub(crate) method: Option<String>,
    /// The registry for discover:///, such as rpc://127.0.0.1:7400, etcd://127.0.0.1:2379/prefix or file:PATH
    #[arg(long, value_name = "URI")]
    pub(crate) registry: Option<String>,
    /// A message; modes with several requests take it more than once
    #[arg(long, value_name = "TEXT", conflicts_with = "data_file")]
    pub(crate) data: Vec<String>,
    /// A file whose content is the message, 16 MiB at most; - is standard input
    #[arg(long, value_name = "FILE")]
    pub(crate) data_file: Option<PathBuf>,
    /// Write responses as they are, without a line end after each
    #[arg(long)]
    pub(crate) raw: bool,
    /// The mode of the call
    #[arg(long, default_value = "unary")]
    pub(crate) mode: CallMode,
    /// Metadata (version 2), as name=value; may be given more than once
    #[arg(long, value_name = "K=V", value_parser = call::metadata)]
    pub(crate) metadata: Vec<(String, String)>,
    /// The time of the call, such as 5 or 500ms [default: 15 s for unary calls]
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) deadline: Option<Duration>,
    /// The version of the protocol: 1 (galay-rpc) or 2
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u8).range(1..=2))]
    pub(crate) wire: u8,
}
