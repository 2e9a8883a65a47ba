//! `corewire serve`: the server that the benchmark measures, and that anybody may load from elsewhere.

mod rpc;

use std::io::Write;
use std::time::Duration;

use corewire::proto::codec::Codec;
use corewire::runtime::driver::{DriverConfig, probe};
use corewire::runtime::udp::UdpOptions;
use corewire::{
    DriverKind, Frame, Handler, LengthFieldCodec, NetServer, RawCodec, ServerHandle, Session, StandardCodec,
};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{CodecKind, Driver, ServeArgs, ServeKind};
use crate::control::{Snapshot, attend_server};
use crate::failure::Failure;
use crate::system;
use crate::udp::credit::Received;
#[cfg(test)]
pub(crate) use rpc::echo as rpc_echo;

/// How long sessions may take to finish after a signal.
const DRAIN_DEADLINE: Duration = Duration::from_secs(5);

/// Serves until a signal, or until the benchmark says stop.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    // Before the address is told: who knows it may send a signal.
    let signals = (!args.control).then(|| Signals::new([SIGINT, SIGTERM]));
    let signals = signals.transpose().map_err(Failure::io("cannot wait for signals"))?;
    let server = match args.kind {
        ServeKind::Rpc if args.codec != CodecKind::None => {
            Err(Failure::Usage("rpc has its own frames: leave --codec out".into()))
        }
        ServeKind::Rpc => rpc::start(args),
        ServeKind::Echo | ServeKind::UdpEcho => framed(args, || Echo),
        ServeKind::Sink => framed(args, || Sink),
        ServeKind::UdpSink => framed(args, DatagramSink::default),
    }?;
    if args.workers.driver == Driver::Auto && probe().uring.is_err() {
        eprintln!("corewire: {}", probe());
    }
    println!("listening on {}", server.uri());
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    let Some(mut signals) = signals else {
        return attend_server(&driver_name(args.workers.driver), |snapshot| fill(&server, snapshot));
    };
    if server.has_tls_files() {
        signals.add_signal(SIGHUP).map_err(Failure::io("cannot wait for signals"))?;
    }
    for signal in signals.forever() {
        if signal != SIGHUP {
            break;
        }
        match server.reload_tls() {
            Ok(()) => eprintln!("corewire: the certificates were read anew"),
            Err(error) => eprintln!("corewire: the old certificates go on: {error}"),
        }
    }
    eprintln!("corewire: shutting down; a second signal ends at once");
    std::thread::spawn(move || {
        let _ = signals.forever().next();
        std::process::exit(1);
    });
    eprintln!("corewire: {}", server.shutdown(DRAIN_DEADLINE));
    Ok(())
}

/// A server of what is cut into frames.
fn framed<H: Handler>(
    args: &ServeArgs,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> Result<ServerHandle, Failure> {
    match args.codec {
        CodecKind::None => start(args, || RawCodec, handler),
        CodecKind::Srmp => start(args, StandardCodec::default, handler),
        CodecKind::LengthField => start(args, LengthFieldCodec::default, handler),
    }
}

fn start<C: Codec, H: Handler>(
    args: &ServeArgs,
    codec: impl Fn() -> C + Send + Sync + 'static,
    handler: impl Fn() -> H + Send + Sync + 'static,
) -> Result<ServerHandle, Failure> {
    let server = settings(args, NetServer::bind(address(args)?).codec(codec)).handler(handler).start();
    server.map_err(|error| Failure::Library(error.to_string()))
}

/// Where to listen: as asked for, or where this kind usually does.
fn address(args: &ServeArgs) -> Result<String, Failure> {
    let usual = if args.kind.is_udp() { "udp://127.0.0.1:9090" } else { "tcp://127.0.0.1:7777" };
    args.tls.apply(args.listen.as_deref().unwrap_or(usual))
}

/// The settings that do not depend on what is served.
fn settings<C, H>(args: &ServeArgs, server: NetServer<C, H>) -> NetServer<C, H> {
    let mut udp = UdpOptions::default();
    (udp.coalesce, udp.segment) = (!args.no_offload, !args.no_offload);
    let mut server = server
        .udp_options(udp)
        .driver(driver_kind(args.workers.driver))
        .max_connections(args.connections.unwrap_or_else(system::connections_max))
        // As in the reports: nobody looks a session up here.
        .session_table(false);
    if let Some(sessions) = args.connections {
        server = server.max_datagram_sessions(sessions);
    }
    let cpus = args.workers.cores();
    if let Some(workers) = args.workers.threads {
        server = server.workers(workers);
    }
    if !cpus.is_empty() {
        server = server.cpus(cpus);
    }
    if let Some(bytes) = args.workers.receive_buffer {
        server = server.receive_buffer_size(bytes);
    }
    if let Some(period) = args.stats {
        server = server.stats_line(period, |line| eprintln!("{line}"));
    }
    server
}

fn fill(server: &ServerHandle, snapshot: &mut Snapshot) {
    let stats = server.stats();
    snapshot.sessions = stats.sessions as u64;
    snapshot.recv_calls = stats.workers.receives;
    snapshot.recv_bytes = stats.workers.received_bytes;
    snapshot.send_calls = stats.workers.sends;
    snapshot.sent_bytes = stats.workers.sent_bytes;
    snapshot.errors = stats.refused + stats.workers.panics + stats.workers.accept_failures;
}

/// Answers each frame with its payload, but those that expect no reply: as a reply where the codec has replies.
struct Echo;

impl Handler for Echo {
    #[inline]
    fn on_frame(&mut self, session: &Session, frame: Frame<'_>) {
        if frame.head().expects_reply() {
            // A session that cannot send is about to end, and its peer to notice.
            let _ = session.reply(&frame, frame.payload());
        }
    }
}

/// Takes each frame and does nothing with it; the workers count.
struct Sink;

impl Handler for Sink {
    #[inline]
    fn on_frame(&mut self, _: &Session, _: Frame<'_>) {}
}

/// Takes each datagram, and tells the peer now and then how many came.
#[derive(Default)]
struct DatagramSink {
    received: Received,
}

impl Handler for DatagramSink {
    #[inline]
    fn on_frame(&mut self, session: &Session, _: Frame<'_>) {
        if let Some(count) = self.received.add(1) {
            // One that is lost is made up for by the next.
            let _ = session.send(&count);
        }
    }
}

/// The library's name for a driver.
pub(crate) fn driver_kind(driver: Driver) -> DriverKind {
    match driver {
        Driver::Auto => DriverKind::Auto,
        Driver::Uring => DriverKind::Uring,
        Driver::Epoll => DriverKind::Epoll,
    }
}

/// What runs when this driver is asked for, the environment variable included.
pub(crate) fn driver_name(driver: Driver) -> String {
    let mut config = DriverConfig::default();
    config.kind = driver_kind(driver);
    match config.with_env_override() {
        Ok(config) if config.kind == DriverKind::Auto => probe().choice().to_string(),
        Ok(config) => config.kind.to_string(),
        // The runtime, made from the same setting, refuses it with the reason.
        Err(_) => driver.name().to_owned(),
    }
}

/// The driver that `auto` does not choose here, where there is one.
pub(crate) fn other_driver() -> Option<Driver> {
    match driver_name(Driver::Auto).as_str() {
        "uring" => Some(Driver::Epoll),
        _ => None,
    }
}
