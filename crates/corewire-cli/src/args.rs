//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::ArgPredicate;
use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::call;
use crate::discovery::DiscoveryArgs;
use crate::lists::{Counts, Cpus, count, counts, cpus, duration, rate, receive_buffer};
use crate::moves::{Moves, moves};
use crate::proxy::ProxyKind;
use crate::registry::RegistryCommand;

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
    /// Start a server process and a load process on different cores and measure them beside the limit
    Bench(BenchArgs),
    /// Serve a registry of services, or look into one and change it
    #[command(subcommand)]
    Registry(RegistryCommand),
    /// Pass traffic on over a path that loses and delays it, until SIGINT or SIGTERM
    #[command(subcommand)]
    Proxy(ProxyKind),
    /// The server side of the limit
    #[command(hide = true)]
    LimitServe(LimitServeArgs),
    /// The load side of the limit
    #[command(hide = true)]
    LimitLoad(LimitLoadArgs),
}

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
    Standard,
    /// A 2-byte little-endian length before each payload
    LengthField,
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

/// Options of `corewire serve`.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServeArgs {
    /// What to do with what is received
    pub(crate) kind: ServeKind,
    /// Where to listen; port 0 lets the system choose [default: tcp://127.0.0.1:7777, udp-* udp://127.0.0.1:9090]
    #[arg(long, value_name = "URI")]
    pub(crate) listen: Option<String>,
    /// Receive and send datagrams one by one, without the kernel's offloads
    #[arg(long)]
    pub(crate) no_offload: bool,
    /// How connections are cut into frames
    #[arg(long, default_value = "none")]
    pub(crate) codec: CodecKind,
    #[command(flatten)]
    pub(crate) workers: WorkerArgs,
    /// Most connections at a time [default: what the limit on open files allows]
    #[arg(long, value_name = "N", value_parser = count)]
    pub(crate) connections: Option<usize>,
    /// Write a line of statistics to standard error at this period, such as 1 or 500ms
    #[arg(long, value_name = "S", value_parser = duration)]
    pub(crate) stats: Option<Duration>,
    /// Answer control lines on standard input
    #[arg(long, hide = true)]
    pub(crate) control: bool,
}

/// What a load does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LoadKind {
    /// One-way: one `send` call per packet; the server counts
    Receive,
    /// Raw packets, sent again when they come back
    Echo,
    /// SRMP requests, matched by sequence
    Standard,
    /// Length-field requests, matched in order
    LengthField,
    /// Datagrams, sent again when they come back; what does not come back is counted as lost
    Udp,
    /// Datagrams one way: at most 8192 more than the server says it has received, if it says so (`serve udp-sink`)
    UdpSend,
    /// RPC calls of `BenchEchoService/echo`; --size is the payload
    Rpc,
    /// Streams of frames on `StreamBenchService/echo`; --size is the payload of a frame, --window frames are on their way
    Stream,
}

impl LoadKind {
    /// Whether it sends datagrams.
    pub(crate) fn is_udp(self) -> bool {
        matches!(self, Self::Udp | Self::UdpSend)
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

/// Options of `corewire load`.
#[derive(Debug, Clone, Args)]
pub(crate) struct LoadArgs {
    /// The workload
    pub(crate) kind: LoadKind,
    /// The server
    #[arg(long, value_name = "URI", default_value = "tcp://127.0.0.1:7777")]
    pub(crate) target: String,
    /// Connections
    #[arg(long, value_name = "N", default_value = "64", value_parser = count, visible_alias = "clients")]
    pub(crate) connections: usize,
    /// Messages in flight per connection (echo, standard, length-field, rpc; of a stream its frames); with --rate calls
    /// that are due wait for their place among them [default: 1, with --rate 256]
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        default_value_if("rate", ArgPredicate::IsPresent, "256")
    )]
    #[arg(hide_default_value = true, value_parser = count)]
    pub(crate) window: usize,
    /// Send so many messages a second over all connections, whenever replies come, and measure latencies from the time at
    /// which each was to be sent (rpc, standard, length-field) [default: as fast as replies come]
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
    /// Streams at a time on each connection, each with a window of its own (stream)
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
    Standard,
    /// Length-field requests and replies matched in order
    LengthField,
    /// RPC calls in the four modes; --size is the payload
    Rpc,
    /// Streams of 16 frames on one route; --size is the payload of a frame
    Stream,
    /// All of the above but rpc and stream
    All,
    /// Datagrams echoed and one way, with and without the kernel's offloads; errors are datagrams lost
    Udp,
    /// Registering, discovering and deregistering services, and look-ups beside changes; in this process, or with
    /// --registry in one elsewhere
    Discovery,
    /// KCP beside TCP over a path that loses and delays: goodput, and latency of messages; many sessions on one port
    Kcp,
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
    /// `io_uring` and epoll in turn, against the same runs of the limit
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

/// Where `--baseline` takes figures from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Baseline {
    /// The performance reports 000 to 003
    Report,
}

/// Options of `corewire bench`.
///
/// A row is measured --repeats times in turn with the limit (limit, ours, limit, ours, …): one server process and
/// one load process, bound to different cores where there are two, the same cores for the limit and for ours. The
/// limit is a bare epoll loop that moves the same bytes with no framing and no work per message.
///
/// Figures are medians. `msg/s` counts messages completed (echo, standard, length-field), arrived (receive) or
/// handed to the kernel (send). `Mbit/s` is headers and payload in one direction. `srv ns` is CPU
/// time of the whole process per message; `heap B` is the heap bytes that both processes asked for per message.
/// Latencies are in µs; at window 1 each message is timed, at larger windows one in 64 of a connection, so that the
/// clock does not become the work. `share` is the median of the ratios of neighbouring runs to the limit.
#[derive(Debug, Clone, Args)]
pub(crate) struct BenchArgs {
    /// The workload
    pub(crate) kind: BenchKind,
    /// Numbers of connections, such as 1,64,1000 [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts)]
    pub(crate) connections: Option<Counts>,
    /// Messages in flight per connection [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts, visible_alias = "windows")]
    pub(crate) window: Option<Counts>,
    /// Bytes of a message on the wire, header included [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts, visible_alias = "sizes")]
    pub(crate) size: Option<Counts>,
    /// Packets that one `send` call carries (receive, send) [default: the rows of the workload]
    #[arg(long, value_name = "LIST", value_parser = counts)]
    pub(crate) batch: Option<Counts>,
    /// Send so many messages a second over all connections, and measure latencies from the time at which each was to be
    /// sent; the limit goes as fast as it can (rpc, standard, length-field) [default: as fast as replies come]
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
    #[arg(long, conflicts_with_all = ["connections", "window", "size", "batch"])]
    pub(crate) report: bool,
    /// Also print the figures of the performance reports beside ours
    #[arg(long, value_name = "SOURCE")]
    pub(crate) baseline: Option<Baseline>,
    #[command(flatten)]
    pub(crate) discovery: DiscoveryArgs,
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
            window: None,
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
            baseline: None,
            discovery: DiscoveryArgs::default(),
            json: None,
        }
    }
}

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
        assert_eq!(args.window, None);
    }

    #[test]
    fn packets_and_duration_exclude_each_other() {
        let both = ["corewire", "load", "echo", "--packets", "5", "--duration", "1"];
        assert_eq!(Cli::try_parse_from(both).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn wrong_values_are_usage_errors() {
        for bad in [
            ["corewire", "load", "echo", "--window", "0"],
            ["corewire", "bench", "echo", "--connections", "1,x"],
            ["corewire", "serve", "echo", "--codec", "morse"],
            ["corewire", "serve", "echo", "--driver", "magic"],
        ] {
            assert_eq!(Cli::try_parse_from(bad).unwrap_err().exit_code(), 2, "{bad:?}");
        }
    }
}
