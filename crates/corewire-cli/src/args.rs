//! The command line: its commands, and what they share. The options of a command are in its own file.

mod baseline;
mod bench;
mod call;
mod load;
mod serve;
mod tls;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::fairness::{GreedyArgs, PoliteArgs};
use crate::lists::{Cpus, count, cpus, receive_buffer};
use crate::proxy::ProxyKind;
use crate::registry::RegistryCommand;
use crate::tls::TlsBaselineArgs;

pub(crate) use baseline::{BaselineLoadArgs, BaselineLoadKind, BaselineServeArgs};
pub(crate) use bench::{BenchArgs, BenchDriver, BenchKind};
pub(crate) use call::{CallArgs, CallStyle};
pub(crate) use load::{LoadArgs, LoadKind};
pub(crate) use serve::{CodecKind, ServeArgs, ServeKind};
pub(crate) use tls::{ServeTlsArgs, TlsArgs};

/// Serve, load and measure network services.
///
/// Without a subcommand: `bench all --quick`, the quick benchmark suite (under 90 seconds).
///
/// Exit codes: 0 all well; 1 the run failed or saw errors; 2 the command line is wrong.
#[derive(Debug, Parser)]
#[command(name = "corewire", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Serve until SIGINT or SIGTERM, then drain; the first line on standard output is `listening on <uri>`
    Serve(ServeArgs),
    /// Load any server that echoes (or swallows) what it is sent, on this machine or another
    Load(LoadArgs),
    /// Call a method of an RPC server; messages go as they are given, responses to standard output, one a line
    Call(CallArgs),
    /// Start a server process and a load process on different cores and measure them beside the baseline
    Bench(BenchArgs),
    /// Serve a registry of services, or look into one and change it
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Pass traffic on over a path that loses and delays it, until SIGINT or SIGTERM
    #[command(subcommand)]
    Proxy(ProxyKind),
    /// The server side of the baseline
    #[command(hide = true)]
    BaselineServe(BaselineServeArgs),
    /// The load side of the baseline
    #[command(hide = true)]
    BaselineLoad(BaselineLoadArgs),
    /// The baseline of `bench tls`
    #[command(hide = true)]
    TlsBaseline(TlsBaselineArgs),
    /// The greedy clients of `bench fairness`
    #[command(hide = true)]
    Greedy(GreedyArgs),
    /// The polite client of `bench fairness`
    #[command(hide = true)]
    Polite(PoliteArgs),
}

/// Which of the kernel's interfaces moves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Driver {
    /// The best this machine offers
    Auto,
    /// `io_uring`; an error where the kernel refuses it
    Uring,
    /// Readiness (epoll)
    Epoll,
}

impl Driver {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Uring => "uring",
            Self::Epoll => "epoll",
        }
    }
}

/// The threads of a process.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerArgs {
    /// Worker threads [default: one per core of --cpus, else for serve one per core of the machine, for load 1]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) threads: Option<usize>,
    /// Cores to bind the workers to, such as 0,2-5 [default: none]
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub(crate) cpus: Option<Cpus>,
    /// The driver
    #[arg(long, default_value = "auto")]
    pub(crate) driver: Driver,
    /// Bytes of the block that each worker receives into, such as 64K [default: the library's, 640K]
    #[arg(long, value_name = "BYTES", value_parser = receive_buffer)]
    pub(crate) receive_buffer: Option<usize>,
}

impl WorkerArgs {
    /// The cores to bind to, or none.
    pub(crate) fn cores(&self) -> Vec<usize> {
        self.cpus.clone().unwrap_or_default().0
    }

    /// How many of them a load has.
    pub(crate) fn of_load(&self, connections: usize) -> usize {
        let cores = self.cpus.as_ref().map_or(0, |cpus| cpus.0.len());
        self.threads.unwrap_or(cores.max(1)).min(connections)
    }
}

/// The mode of an RPC call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum CallMode {
    /// One request, one response
    Unary,
    /// Any number of requests, one response
    ClientStream,
    /// One request, any number of responses
    ServerStream,
    /// Any number of both
    Bidi,
}

impl CallMode {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Unary => "unary",
            Self::ClientStream => "client-stream",
            Self::ServerStream => "server-stream",
            Self::Bidi => "bidi",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn no_subcommand_is_allowed() {
        assert!(Cli::try_parse_from(["corewire"]).unwrap().command.is_none());
    }

    #[test]
    fn lists_reach_the_benchmark() {
        let cli =
            Cli::try_parse_from(["corewire", "bench", "echo", "--connections", "1,64", "--sizes", "32,64K"])
                .unwrap();
        let Some(Command::Bench(args)) = cli.command else { panic!("not a benchmark") };
        assert_eq!(args.connections.unwrap().0, [1, 64]);
        assert_eq!(args.size.unwrap().0, [32, 65_536]);
        assert_eq!(args.depth, None);
    }

    #[test]
    fn former_names_are_still_understood() {
        for name in ["--depth", "--window", "--pipeline"] {
            let bench = Cli::try_parse_from(["corewire", "bench", "standard", name, "1,255"]).unwrap();
            let Some(Command::Bench(args)) = bench.command else { panic!("not a benchmark") };
            assert_eq!((args.kind, args.depth.unwrap().0), (BenchKind::Srmp, vec![1, 255]), "{name}");
            let load = Cli::try_parse_from(["corewire", "load", "standard", name, "7"]).unwrap();
            let Some(Command::Load(args)) = load.command else { panic!("not a load") };
            assert_eq!((args.kind, args.depth), (LoadKind::Srmp, 7), "{name}");
        }
        let serve = Cli::try_parse_from(["corewire", "serve", "echo", "--codec", "standard"]).unwrap();
        assert!(matches!(serve.command, Some(Command::Serve(args)) if args.codec == CodecKind::Srmp));
    }

    #[test]
    fn packets_and_duration_exclude_each_other() {
        let both = ["corewire", "load", "echo", "--packets", "5", "--duration", "1"];
        assert_eq!(Cli::try_parse_from(both).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn wrong_values_are_usage_errors() {
        for bad in [
            ["corewire", "load", "echo", "--depth", "0"],
            ["corewire", "bench", "echo", "--connections", "1,x"],
            ["corewire", "serve", "echo", "--codec", "morse"],
            ["corewire", "serve", "echo", "--driver", "magic"],
        ] {
            assert_eq!(Cli::try_parse_from(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }
}
