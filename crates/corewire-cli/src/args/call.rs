//! The options of `corewire call`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};

use super::TlsArgs;
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
    #[command(flatten)]
    pub(crate) tls: TlsArgs,
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
    /// Send each line of standard input as a message, as it comes; for modes with several requests
    #[arg(long, conflicts_with_all = ["data", "data_file"])]
    pub(crate) stdin: bool,
    /// Write the metadata of the response to standard error, a line for each
    #[arg(long)]
    pub(crate) show_metadata: bool,
    /// Write the services of the server, if it tells them, instead of a call
    #[arg(long, conflicts_with_all = ["method", "describe", "data", "data_file", "stdin"])]
    pub(crate) list: bool,
    /// Write the methods of a service and their modes instead of a call
    #[arg(long, value_name = "SERVICE", conflicts_with_all = ["method", "data", "data_file", "stdin"])]
    pub(crate) describe: Option<String>,
    /// Write responses as they are, without a line end after each
    #[arg(long)]
    pub(crate) raw: bool,
    /// The mode of the call
    #[arg(long, default_value = "unary")]
    pub(crate) mode: CallStyle,
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

/// How `corewire call` calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallStyle {
    /// One request, one response
    Unary,
    /// Any number of requests, one response
    ClientStream,
    /// One request, any number of responses
    ServerStream,
    /// Any number of both
    Bidi,
    /// A stream of the STREAM_* family of galay-rpc, on a route
    Stream,
}

impl CallStyle {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ClientStream => "client-stream",
            Self::ServerStream => "server-stream",
            Self::Bidi => "bidi",
            Self::Stream => "stream",
        }
    }
}
