//! `corewire serve`.

use std::cell::RefCell;
use std::io::Write;
use std::net::TcpListener;
use std::rc::Rc;

use bytes::Bytes;
use corewire_runtime::driver::{DriverConfig, DriverKind, probe};
use corewire_runtime::{AfterAccept, Connection, ConnectionOptions, Handle, Listener, Protocol, Runtime};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::{Driver, ServeArgs, ServeKind};
use crate::control::{Snapshot, attend_server};
use crate::failure::Failure;

/// Serves until a signal, or until the benchmark says stop.
pub(crate) fn serve(args: &ServeArgs) -> Result<(), Failure> {
    let cpus = args.cpus.clone().unwrap_or_default().0;
    let mut builder = Runtime::builder().driver(driver_kind(args.driver)).name("serve").workers(1);
    if !cpus.is_empty() {
        builder = builder.cpus(cpus);
    }
    let library = |error: &dyn std::error::Error| Failure::Library(error.to_string());
    let runtime = builder.build().map_err(|error| library(&error))?;
    let address = args.listen.strip_prefix("tcp://").unwrap_or(&args.listen);
    let listener =
        TcpListener::bind(address).map_err(Failure::io(format!("cannot listen on {}", args.listen)))?;
    rustix::net::listen(&listener, 4096).map_err(Failure::io("cannot set the backlog"))?;
    listener.set_nonblocking(true).map_err(Failure::io("cannot set up the listener"))?;
    let local = listener.local_addr().map_err(Failure::io("cannot read the listening address"))?;
    let kind = args.kind;
    runtime.handle().run_on(0, move || listen(listener.into(), kind)).map_err(|error| library(&error))?;
    // Before the address is told: who knows it may send a signal.
    let mut signals = Signals::new([SIGINT, SIGTERM]).map_err(Failure::io("cannot wait for signals"))?;
    println!("listening on tcp://{local}");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    if args.control {
        let handle = runtime.handle().clone();
        return attend_server(&driver_name(args.driver), |snapshot| fill(&handle, snapshot));
    }
    let _ = signals.forever().next();
    Ok(())
}

fn listen(socket: socket2::Socket, kind: ServeKind) {
    thread_local! {
        static LISTENER: RefCell<Option<Listener>> = const { RefCell::new(None) };
    }
    let options = Rc::new(ConnectionOptions::default());
    let listener = Listener::start(socket, move |socket| {
        let _ = socket.set_tcp_nodelay(true);
        let _ = match kind {
            ServeKind::Echo => Connection::open(socket, Rc::clone(&options), Echo),
            ServeKind::Sink => Connection::open(socket, Rc::clone(&options), Sink),
        };
        AfterAccept::Continue
    });
    LISTENER.set(listener.ok());
}

fn fill(handle: &Handle, snapshot: &mut Snapshot) {
    let stats = handle.stats();
    snapshot.sessions = stats.accepted - stats.closed;
    snapshot.recv_calls = stats.receives;
    snapshot.recv_bytes = stats.received_bytes;
    snapshot.send_calls = stats.sends;
    snapshot.sent_bytes = stats.sent_bytes;
}

struct Echo;

impl Protocol for Echo {
    #[inline]
    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        let _ = connection.send(&data);
    }
}

struct Sink;

impl Protocol for Sink {
    #[inline]
    fn on_received(&mut self, _: &Connection, _: Bytes) {}
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
