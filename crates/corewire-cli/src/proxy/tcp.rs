//! `corewire proxy tcp`: passes connections on over a path that takes its time and is cut.

use std::cell::{Cell, RefCell};
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use corewire::runtime::driver::Socket;
use corewire::runtime::driver::net::{ListenOptions, StreamOptions, connect_tcp, listen_tcp};
use corewire::runtime::{
    AfterAccept, CloseReason, Connection, ConnectionOptions, Listener, Protocol, sleep, spawn_local, timeout,
};
use corewire::{Bytes, SendError};
use corewire_link::rng::Rng;
use corewire_link::stream::{Arrival, StreamConfig, StreamLink};

use super::share;
use crate::lists::{count, duration};

/// Options of `corewire proxy tcp`. Each direction of each connection is a path of its own with these properties; times
/// are kept to the millisecond.
#[derive(Debug, Clone, Args)]
pub(crate) struct TcpProxyArgs {
    /// Where to listen; port 0 lets the system choose
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) listen: SocketAddr,
    /// Where to pass connections on to
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) target: SocketAddr,
    /// Time on the way, such as 30ms
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) delay: Duration,
    /// Up to this much more, at random; bytes stay in order
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration)]
    pub(crate) jitter: Duration,
    /// Bits per second [default: no limit]
    #[arg(long, value_name = "BITS")]
    pub(crate) bandwidth: Option<u64>,
    /// Bytes on the way at which the sender is held back, such as 1M; a rate needs its product with --delay
    #[arg(long, value_name = "BYTES", default_value = "1M", value_parser = count)]
    pub(crate) buffer: usize,
    /// Reset a connection after this many bytes of both directions (64K), or this long after it was accepted (500ms, 2s)
    #[arg(long, value_name = "BYTES|TIME", value_parser = cut_after)]
    pub(crate) cut_after: Option<CutAfter>,
    /// Share of connections that are cut, such as 10%; without --cut-after somewhere in the first MiB [default: all with
    /// --cut-after, none without]
    #[arg(long, value_name = "SHARE", value_parser = share)]
    pub(crate) cut_probability: Option<f64>,
    /// What chance begins with: the same number, the same fate for the first connection, the second, …
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) seed: u64,
}

/// When a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CutAfter {
    Bytes(u64),
    Time(Duration),
}

/// For clap: a time has a unit of its own, anything else is a number of bytes.
fn cut_after(text: &str) -> Result<CutAfter, String> {
    match text.trim().ends_with('s') {
        true => duration(text).map(CutAfter::Time),
        false => count(text).map(|bytes| CutAfter::Bytes(bytes as u64)),
    }
}

/// Connections at a time; more are reset and counted.
const CONNECTIONS_MAX: usize = 10_000;
/// Bytes that wait for a peer at which nothing more is taken off the path.
const QUEUED_MAX: usize = 256 * 1024;
/// Where a connection is cut by chance.
const CUT_WITHIN_BYTES: u64 = 1 << 20;
/// How long a peer may take to receive what came before a reset.
const RESET_WITHIN: Duration = Duration::from_secs(2);

thread_local! {
    static HERE: RefCell<Option<Rc<Proxy>>> = const { RefCell::new(None) };
}

/// Begins to pass on, on the current worker; says where it listens.
pub(super) fn start(args: &TcpProxyArgs) -> io::Result<SocketAddr> {
    let socket = listen_tcp(args.listen, &ListenOptions::default())?;
    let local = socket.local_addr()?.as_socket().ok_or(io::ErrorKind::NotConnected)?;
    let mut options = ConnectionOptions::default();
    // The two directions do not wait for each other.
    options.pause_receive_on_backlog = false;
    options.high_water = QUEUED_MAX;
    let proxy = Rc::new(Proxy {
        args: args.clone(),
        options: Rc::new(options),
        begun: Instant::now(),
        counts: Counts::default(),
        listener: RefCell::default(),
    });
    let accepting = Rc::downgrade(&proxy);
    let listener = Listener::start(socket, move |socket| {
        if let Some(proxy) = accepting.upgrade()
            && let Err(error) = proxy.accept(socket)
        {
            eprintln!("corewire: a connection was refused: {error}");
            proxy.counts.failed.set(proxy.counts.failed.get() + 1);
        }
        AfterAccept::Continue
    })?;
    proxy.listener.replace(Some(listener));
    HERE.set(Some(proxy));
    Ok(local)
}

/// What became of the connections so far.
pub(super) fn story() -> Option<[String; 2]> {
    HERE.with_borrow(|proxy| {
        let counts = &proxy.as_ref()?.counts;
        let [opened, cut, failed, to, from] =
            [&counts.opened, &counts.cut, &counts.failed, &counts.to_target, &counts.from_target]
                .map(Cell::get);
        Some([
            format!("{opened} connections, {cut} cut, {failed} refused or without a target"),
            format!("{to} bytes to the target, {from} bytes from it"),
        ])
    })
}

struct Proxy {
    args: TcpProxyArgs,
    options: Rc<ConnectionOptions>,
    begun: Instant,
    counts: Counts,
    listener: RefCell<Option<Listener>>,
}

#[derive(Default)]
struct Counts {
    opened: Cell<u64>,
    open: Cell<u64>,
    cut: Cell<u64>,
    failed: Cell<u64>,
    to_target: Cell<u64>,
    from_target: Cell<u64>,
}

impl Proxy {
    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    fn accept(self: &Rc<Self>, socket: Socket) -> io::Result<()> {
        if self.counts.open.get() >= CONNECTIONS_MAX as u64 {
            // Closing it tells the client.
            return Err(io::Error::other(format!("{CONNECTIONS_MAX} are open, which is the limit")));
        }
        let options = StreamOptions::default();
        options.apply(&socket)?;
        let target = connect_tcp(self.args.target, &options)?;
        let number = self.counts.opened.replace(self.counts.opened.get() + 1);
        let relay = Rc::new(Relay::new(self, number));
        let client = Connection::open(socket, self.options.clone(), End::new(&relay, Side::Client))?;
        relay.way(Side::Client).to.replace(Some(client.clone()));
        let target =
            Connection::open_connecting(target, self.options.clone(), End::new(&relay, Side::Target));
        match target {
            Ok(target) => drop(relay.way(Side::Target).to.replace(Some(target))),
            Err(error) => {
                reset(&client);
                return Err(error);
            }
        }
        relay.schedule_cut();
        Ok(())
    }
}

/// An end of a relay, and the direction towards it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Client,
    Target,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Client => Self::Target,
            Self::Target => Self::Client,
        }
    }
}

/// One client, its connection to the target, and the two paths between them.
struct Relay {
    proxy: Rc<Proxy>,
    /// Towards the client, towards the target.
    ways: [Way; 2],
    /// Bytes that still pass before the cut.
    left: Cell<u64>,
    cut_at: Option<CutAfter>,
    is_cut: Cell<bool>,
}

struct Way {
    link: RefCell<StreamLink>,
    to: RefCell<Option<Connection>>,
    is_open: Cell<bool>,
    /// The end was handed on.
    is_done: Cell<bool>,
    /// Who is at its end is gone.
    is_dead: Cell<bool>,
}

impl Relay {
    fn new(proxy: &Rc<Proxy>, number: u64) -> Self {
        let args = &proxy.args;
        let config = StreamConfig {
            delay_us: args.delay.as_micros() as u64,
            jitter_us: args.jitter.as_micros() as u64,
            bandwidth_bps: args.bandwidth,
            window_bytes: args.buffer,
        };
        let seed = args.seed.wrapping_mul(1_000_003).wrapping_add(3 * number);
        let cut_at = fate(args, &mut Rng::new(seed));
        let way = |seed, is_open| Way {
            link: RefCell::new(StreamLink::new(config.clone(), seed)),
            to: RefCell::default(),
            is_open: Cell::new(is_open),
            is_done: Cell::new(false),
            is_dead: Cell::new(false),
        };
        proxy.counts.open.set(proxy.counts.open.get() + 1);
        Self {
            proxy: proxy.clone(),
            ways: [way(seed.wrapping_add(1), true), way(seed.wrapping_add(2), false)],
            left: Cell::new(match cut_at {
                Some(CutAfter::Bytes(bytes)) => bytes,
                _ => u64::MAX,
            }),
            cut_at,
            is_cut: Cell::new(false),
        }
    }

    /// The direction towards this side.
    fn way(&self, to: Side) -> &Way {
        &self.ways[to as usize]
    }

    fn connection(&self, side: Side) -> Option<Connection> {
        self.way(side).to.borrow().clone()
    }

    fn schedule_cut(self: &Rc<Self>) {
        if let Some(CutAfter::Time(after)) = self.cut_at {
            let relay = Rc::downgrade(self);
            drop(spawn_local(async move {
                sleep(after).await;
                if let Some(relay) = relay.upgrade() {
                    relay.cut();
                }
            }));
        }
    }

    /// Hands on what has come out towards this side, and comes back for the rest.
    fn pump(&self, side: Side) {
        let way = self.way(side);
        let Some(to) = self.connection(side).filter(|_| way.is_open.get()) else { return };
        let now = self.proxy.now_us();
        while !self.is_cut.get() && !way.is_dead.get() && to.queued() < QUEUED_MAX {
            let Some(arrival) = way.link.borrow_mut().receive(now) else { break };
            match arrival {
                Arrival::Bytes(bytes) => self.hand_on(side, &to, &bytes),
                Arrival::End => {
                    to.shutdown_write();
                    way.is_done.set(true);
                }
                Arrival::Reset => {
                    way.is_dead.set(true);
                    reset_after_flush(to.clone());
                }
            }
        }
        if self.is_done() {
            self.ways.iter().filter_map(|way| way.to.borrow().clone()).for_each(|end| end.close());
        }
        let link = way.link.borrow();
        if !link.is_full()
            && let Some(from) = self.connection(side.other())
        {
            from.resume_receive();
        }
        // With a full queue `on_drained` follows.
        let next = link.next_arrival_us().filter(|_| to.queued() < QUEUED_MAX);
        to.set_timer(next.map(|at| Duration::from_micros(at.saturating_sub(now))));
    }

    /// Both ends have finished, and know it of each other.
    fn is_done(&self) -> bool {
        self.ways.iter().all(|way| way.is_done.get())
    }

    fn hand_on(&self, side: Side, to: &Connection, bytes: &[u8]) {
        let now = &bytes[..bytes.len().min(usize::try_from(self.left.get()).unwrap_or(usize::MAX))];
        match to.send(now) {
            Ok(()) | Err(SendError::Closed) => {}
            Err(error) => eprintln!("corewire: {error}"),
        }
        let counts = &self.proxy.counts;
        let count = if side == Side::Target { &counts.to_target } else { &counts.from_target };
        count.set(count.get() + now.len() as u64);
        self.left.set(self.left.get() - now.len() as u64);
        if self.left.get() == 0 {
            self.cut();
        }
    }

    /// Resets both ends once they have what was handed on before.
    fn cut(&self) {
        if !self.is_cut.replace(true) {
            self.proxy.counts.cut.set(self.proxy.counts.cut.get() + 1);
            self.ways.iter().filter_map(|way| way.to.borrow().clone()).for_each(reset_after_flush);
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.proxy.counts.open.set(self.proxy.counts.open.get() - 1);
    }
}

/// Whether a connection is cut, and when.
fn fate(args: &TcpProxyArgs, rng: &mut Rng) -> Option<CutAfter> {
    let usual = if args.cut_after.is_some() { 1.0 } else { 0.0 };
    if !rng.chance(args.cut_probability.unwrap_or(usual)) {
        return None;
    }
    Some(args.cut_after.unwrap_or_else(|| CutAfter::Bytes(rng.below(CUT_WITHIN_BYTES) + 1)))
}

fn reset_after_flush(connection: Connection) {
    drop(spawn_local(async move {
        // A peer that does not take it is reset all the same.
        let _ = timeout(RESET_WITHIN, connection.flushed()).await;
        reset(&connection);
    }));
}

fn reset(connection: &Connection) {
    connection.with_socket(|socket| {
        // Without the option the peer sees an end instead: nothing to do about it.
        let _ = socket.set_reset_on_close();
    });
    connection.abort(CloseReason::Local);
}

/// What happens at one end.
struct End {
    relay: Rc<Relay>,
    side: Side,
}

impl End {
    fn new(relay: &Rc<Relay>, side: Side) -> Self {
        Self { relay: relay.clone(), side }
    }

    /// Changes the path that leads away from here.
    fn away(&self, change: impl FnOnce(&mut StreamLink, u64)) {
        let way = self.relay.way(self.side.other());
        change(&mut way.link.borrow_mut(), self.relay.proxy.now_us());
        self.relay.pump(self.side.other());
    }
}

impl Protocol for End {
    fn on_open(&mut self, _: &Connection) {
        self.relay.way(self.side).is_open.set(true);
        self.relay.pump(self.side);
    }

    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        self.away(|link, now| link.send(now, &data));
        if self.relay.way(self.side.other()).link.borrow().is_full() {
            connection.pause_receive();
        }
    }

    fn on_read_closed(&mut self, _: &Connection) {
        self.away(StreamLink::finish);
    }

    fn on_drained(&mut self, _: &Connection) {
        self.relay.pump(self.side);
    }

    fn on_timer(&mut self, _: &Connection) {
        self.relay.pump(self.side);
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        let way = self.relay.way(self.side);
        if !way.is_open.get() {
            eprintln!("corewire: the target cannot be connected to: {reason}");
            let counts = &self.relay.proxy.counts;
            counts.failed.set(counts.failed.get() + 1);
        }
        way.is_dead.set(true);
        // Handles keep the relay alive by the protocols of their connections, but not the reverse.
        way.to.replace(None);
        if !self.relay.is_done() {
            self.away(StreamLink::reset);
        }
    }
}

#[cfg(test)]
#[path = "tcp_tests.rs"]
mod tests;
