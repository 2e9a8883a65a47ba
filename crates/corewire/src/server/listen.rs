//! From settings to listening workers.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};

use corewire_driver::Socket;
use corewire_driver::net::{ListenOptions, StreamOptions, listen_tcp};
use corewire_runtime::udp::{self, UdpOptions};
use corewire_runtime::{AfterAccept, Connection, Handle, Listener, Protocol, SpawnError};

use super::error::ServerError;
use super::handle::{Listening, ServerHandle, StatsSource};
use super::registry::{Limits, Local, Permit, Shared};
use super::settings::{Endpoints, Placement, Settings};
use super::socket_file::{self, SocketFile};
use crate::datagram::{self, DatagramKind, DatagramSettings, DatagramSetup};
use crate::tls::ServerTls;

/// Makes what serves one connection.
struct Factory<M> {
    make: M,
    stream: StreamOptions,
    shared: Arc<Shared>,
    placement: Placement,
    runtime: Handle,
    datagram: DatagramSettings,
    kind: DatagramKind,
    tls: Option<ServerTls>,
}

/// `make` gives the protocol of an accepted connection; its permit counts the connection as long as it lives.
pub(super) fn start<P: Protocol>(
    endpoints: Endpoints,
    settings: Settings,
    runtime: &Handle,
    make: impl Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
) -> Result<ServerHandle, ServerError> {
    let workers = runtime.workers();
    let placement = match endpoints {
        Endpoints::Unix(_) if settings.placement == Placement::ReusePort => Placement::RoundRobin,
        _ => settings.placement,
    };
    let listening = if placement == Placement::ReusePort { workers } else { 1 };
    let bound = bind(&endpoints, &settings, listening, workers)?;
    let shared = Arc::new(Shared::new(
        Limits { connections: settings.max_connections, per_address: settings.max_connections_per_address },
        settings.session_table,
        settings.connection.clone(),
        workers,
    ));
    let factory = Arc::new(Factory {
        make,
        stream: settings.stream.clone(),
        shared: shared.clone(),
        placement,
        runtime: runtime.clone(),
        datagram: settings.datagram.clone(),
        kind: endpoints.datagram_kind(),
        tls: endpoints.tls().map(|served| served.tls.clone()),
    });
    settings.sessions.begin(shared.clone(), runtime.clone());
    let server = ServerHandle::new(
        shared.clone(),
        runtime.clone(),
        settings.sessions,
        Listening {
            uri: bound.uri,
            addresses: bound.addresses,
            _socket_file: bound.socket_file,
            tls: endpoints.tls().cloned(),
        },
        settings.own_runtime,
    );
    install(runtime, &factory, bound.sockets, bound.datagrams)?;
    if let Some(line) = settings.stats_line {
        let source = StatsSource::new(shared, runtime.clone());
        drop(runtime.spawn_on(0, move || source.print_every(line.period, line.print))?);
    }
    Ok(server)
}

/// Starts each worker's part and waits until it has begun or failed.
fn install<P, M>(
    runtime: &Handle,
    factory: &Arc<Factory<M>>,
    mut sockets: Vec<Vec<Socket>>,
    mut datagrams: Vec<Vec<Socket>>,
) -> Result<(), ServerError>
where
    P: Protocol,
    M: Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
{
    sockets.resize_with(runtime.workers(), Vec::new);
    datagrams.resize_with(runtime.workers(), Vec::new);
    let (report, reports) = mpsc::channel();
    for (worker, (sockets, datagrams)) in sockets.into_iter().zip(datagrams).enumerate() {
        let (factory, report) = (factory.clone(), report.clone());
        runtime.run_on(worker, move || {
            // The starter is gone only if another worker failed.
            let _ = report.send(listen_here(&factory, worker, sockets, datagrams));
        })?;
    }
    drop(report);
    for _ in 0..runtime.workers() {
        let started = reports.recv().map_err(|_| SpawnError::Stopped)?;
        started
            .map_err(|source| ServerError::Listen { address: "a worker's event loop".to_owned(), source })?;
    }
    Ok(())
}

fn listen_here<P, M>(
    factory: &Arc<Factory<M>>,
    worker: usize,
    sockets: Vec<Socket>,
    datagrams: Vec<Socket>,
) -> io::Result<()>
where
    P: Protocol,
    M: Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
{
    let local = Local::install(factory.shared.clone(), worker);
    for socket in sockets {
        let factory = factory.clone();
        let listener = Listener::start(socket, move |socket| {
            factory.place(worker, socket);
            AfterAccept::Continue
        })?;
        local.listeners.borrow_mut().push(listener);
    }
    for socket in datagrams {
        let factory_of_sessions = factory.clone();
        let make = move || factory_of_sessions.datagram_session(worker);
        let port = datagram::serve(factory.kind, socket, factory.datagram_setup(), Box::new(make))?;
        local.ports.borrow_mut().push(port);
    }
    Ok(())
}

impl<P, M> Factory<M>
where
    P: Protocol,
    M: Fn(Rc<Local>, Permit) -> P + Send + Sync + 'static,
{
    /// Serves the connection here, or hands it to the worker whose turn it is.
    fn place(self: &Arc<Self>, here: usize, socket: Socket) {
        let peer = match self.shared.counts_addresses().then(|| socket.peer_addr()).transpose() {
            Ok(peer) => peer.and_then(|address| address.as_socket()),
            Err(error) => {
                tracing::debug!(%error, "a connection was lost before it could be served");
                return;
            }
        };
        let target = match self.placement {
            Placement::ReusePort => here,
            Placement::RoundRobin => {
                self.shared.next_worker.fetch_add(1, Ordering::Relaxed) % self.shared.by_worker.len()
            }
            Placement::LeastConnections => {
                let load = |worker: &usize| self.shared.by_worker[*worker].load(Ordering::Relaxed);
                (0..self.shared.by_worker.len()).min_by_key(load).unwrap_or(here)
            }
        };
        // Counted where it goes before it goes, so that the next one sees it.
        let permit = match self.shared.admit(target, peer) {
            Ok(permit) => permit,
            Err(refusal) => {
                if let Some(local) = Local::find(self.shared.key) {
                    local.warn_of_refusal(refusal);
                }
                return;
            }
        };
        if target == here {
            return self.open(permit, socket);
        }
        let factory = self.clone();
        if let Err(error) = self.runtime.run_on(target, move || factory.open(permit, socket)) {
            tracing::debug!(%error, "a connection was closed: the worker whose turn it was has stopped");
        }
    }

    /// What serves a new peer, unless the server ends.
    fn datagram_session(&self, worker: usize) -> Option<Box<dyn Protocol>> {
        let local = Local::find(self.shared.key).filter(|local| !local.shutting_down.get())?;
        // They need no descriptors, and their addresses may be forged: the limits on connections are not theirs.
        Some(Box::new((self.make)(local, self.shared.admit_datagram(worker))))
    }

    /// The settings of one worker's datagram sockets.
    fn datagram_setup(&self) -> DatagramSetup {
        let mut options = self.shared.options.clone();
        options.idle_timeout = match self.kind {
            DatagramKind::Udp => self.datagram.idle_timeout,
            DatagramKind::Kcp => options.idle_timeout,
        };
        DatagramSetup {
            settings: self.datagram.clone(),
            options: Rc::new(options),
            sessions_max: self.datagram.sessions_max.div_ceil(self.shared.by_worker.len().max(1)),
        }
    }

    fn open(&self, permit: Permit, socket: Socket) {
        let Some(local) = Local::find(self.shared.key).filter(|local| !local.shutting_down.get()) else {
            return;
        };
        let options = Rc::clone(&local.options);
        let id = permit.id;
        let opened = self.stream.apply(&socket).and_then(|()| match &self.tls {
            None => Connection::open(socket, options, (self.make)(local, permit)),
            Some(tls) => Connection::open_tls(socket, tls, options, (self.make)(local, permit)),
        });
        if let Err(error) = opened {
            tracing::debug!(session = id, %error, "a connection was lost before it could be served");
        }
    }
}

struct Bound {
    uri: String,
    addresses: Vec<SocketAddr>,
    socket_file: Option<SocketFile>,
    /// One list for each worker that listens.
    sockets: Vec<Vec<Socket>>,
    /// One list for each worker.
    datagrams: Vec<Vec<Socket>>,
}

fn bind(
    endpoints: &Endpoints,
    settings: &Settings,
    listening: usize,
    workers: usize,
) -> Result<Bound, ServerError> {
    let mut options = ListenOptions::default();
    options.backlog = settings.backlog;
    options.receive_buffer_size = settings.stream.receive_buffer_size;
    match endpoints {
        Endpoints::Unix(path) => {
            let socket =
                socket_file::listen(path, &options).map_err(|source| failed(path.display(), source))?;
            Ok(Bound {
                uri: unix_uri(path),
                addresses: Vec::new(),
                socket_file: SocketFile::of(path),
                sockets: vec![vec![socket]],
                datagrams: Vec::new(),
            })
        }
        Endpoints::Tcp(addresses, any) => {
            options.reuse_port = listening > 1;
            bind_tcp("tcp", addresses, *any, &options, listening)
        }
        Endpoints::Tls(_, addresses, any) => {
            options.reuse_port = listening > 1;
            bind_tcp("tls", addresses, *any, &options, listening)
        }
        Endpoints::Datagram(kind, addresses, any) => {
            let (bound, datagrams) = bind_udp(addresses, *any, &settings.datagram.udp, workers)?;
            let first = bound.first().ok_or_else(no_address)?;
            let uri = if *any { format!("{kind}://*:{}", first.port()) } else { format!("{kind}://{first}") };
            Ok(Bound { uri, addresses: bound, socket_file: None, sockets: Vec::new(), datagrams })
        }
        Endpoints::Both(addresses, any) => {
            options.reuse_port = listening > 1;
            bind_both(addresses, *any, &options, &settings.datagram.udp, [listening, workers])
        }
    }
}

fn bind_tcp(
    scheme: &str,
    wanted: &[SocketAddr],
    any: bool,
    options: &ListenOptions,
    workers: usize,
) -> Result<Bound, ServerError> {
    let mut sockets: Vec<Vec<Socket>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses = Vec::new();
    let mut port = None;
    for address in wanted {
        let mut address = *address;
        if let (0, Some(port)) = (address.port(), port) {
            address.set_port(port);
        }
        let first = match listen_exclusively(address, options) {
            Ok(socket) => socket,
            // All addresses were asked for, and this machine has no IPv6 (or no IPv4).
            Err(error) if any && is_family_missing(&error) && wanted.len() > 1 => continue,
            Err(source) => return Err(failed(address, source)),
        };
        let bound = first.local_addr().and_then(|address| {
            address.as_socket().ok_or_else(|| io::Error::other("the socket has no internet address"))
        });
        let bound = bound.map_err(|source| failed(address, source))?;
        port = Some(bound.port());
        addresses.push(bound);
        sockets[0].push(first);
        for list in &mut sockets[1..] {
            list.push(listen_tcp(bound, options).map_err(|source| failed(bound, source))?);
        }
    }
    let first = addresses.first().ok_or_else(no_address)?;
    let uri = if any { format!("{scheme}://*:{}", first.port()) } else { format!("{scheme}://{first}") };
    Ok(Bound { uri, addresses, socket_file: None, sockets, datagrams: Vec::new() })
}

/// TCP and UDP under one port. When the system chose a port that UDP has given away already, it chooses again.
fn bind_both(
    wanted: &[SocketAddr],
    any: bool,
    options: &ListenOptions,
    udp: &UdpOptions,
    [listening, workers]: [usize; 2],
) -> Result<Bound, ServerError> {
    const ATTEMPTS: usize = 16;
    let chosen = wanted.iter().all(|address| address.port() != 0);
    let mut attempt = 0;
    loop {
        let tcp = bind_tcp("tcp", wanted, any, options, listening)?;
        match bind_udp(&tcp.addresses, false, udp, workers) {
            Ok((_, datagrams)) => return Ok(Bound { datagrams, ..tcp }),
            Err(error) if chosen || attempt == ATTEMPTS => return Err(error),
            Err(_) => attempt += 1,
        }
    }
}

/// A socket of each worker for each address; the kernel keeps a peer with one of them.
fn bind_udp(
    wanted: &[SocketAddr],
    any: bool,
    options: &UdpOptions,
    workers: usize,
) -> Result<(Vec<SocketAddr>, Vec<Vec<Socket>>), ServerError> {
    let mut options = options.clone();
    options.reuse_port |= workers > 1;
    let mut sockets: Vec<Vec<Socket>> = (0..workers).map(|_| Vec::new()).collect();
    let mut addresses: Vec<SocketAddr> = Vec::new();
    for address in wanted {
        let mut address = *address;
        if let (0, Some(first)) = (address.port(), addresses.first()) {
            address.set_port(first.port());
        }
        if options.reuse_port && address.port() != 0 {
            // As with TCP: nobody else may have the port.
            let mut alone = options.clone();
            alone.reuse_port = false;
            match udp::open(address, &alone) {
                Err(error) if any && is_family_missing(&error) && wanted.len() > 1 => continue,
                other => drop(other.map_err(|source| failed(address, source))?),
            }
        }
        let first = match udp::open(address, &options) {
            Err(error) if any && is_family_missing(&error) && wanted.len() > 1 => continue,
            other => other.map_err(|source| failed(address, source))?,
        };
        let bound = first.local_addr().map_err(|source| failed(address, source))?;
        let bound = bound.as_socket().ok_or_else(no_address)?;
        addresses.push(bound);
        sockets[0].push(first);
        for list in &mut sockets[1..] {
            list.push(udp::open(bound, &options).map_err(|source| failed(bound, source))?);
        }
    }
    Ok((addresses, sockets))
}

fn no_address() -> ServerError {
    failed("any address", io::ErrorKind::AddrNotAvailable.into())
}

/// With `SO_REUSEPORT` the kernel would let two servers share a port silently: first make sure that nobody
/// has it.
fn listen_exclusively(address: SocketAddr, options: &ListenOptions) -> io::Result<Socket> {
    if options.reuse_port && address.port() != 0 {
        let mut alone = options.clone();
        alone.reuse_port = false;
        drop(listen_tcp(address, &alone)?);
    }
    listen_tcp(address, options)
}

fn is_family_missing(error: &io::Error) -> bool {
    // EAFNOSUPPORT has no kind of its own.
    error.kind() == io::ErrorKind::AddrNotAvailable || error.raw_os_error() == Some(97)
}

fn failed(address: impl std::fmt::Display, source: io::Error) -> ServerError {
    ServerError::Listen { address: address.to_string(), source }
}

fn unix_uri(path: &Path) -> String {
    format!("unix://{}", path.display())
}
