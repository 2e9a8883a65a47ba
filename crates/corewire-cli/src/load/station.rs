//! What the connections of one worker share. It never leaves its worker, so nothing in it is locked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use corewire_runtime::{Connection, ConnectionOptions, Protocol};

use super::echo::Lane;
use super::one_way;
use crate::args::LoadArgs;
use crate::conduct::{Latency, Phase, Shared, latency};
use crate::control::Traffic;
use crate::failure::Failure;
use crate::pattern::Pattern;

/// One worker's part of a load.
#[derive(Debug)]
pub(crate) struct Station {
    pub(crate) args: Arc<LoadArgs>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) pattern: RefCell<Pattern>,
    thread: usize,
    latency: RefCell<Latency>,
    measurement: Cell<u32>,
    starters: RefCell<Vec<Starter>>,
}

/// A connection that waits for the phase in which it may send.
#[derive(Debug)]
pub(crate) enum Starter {
    Echo(Rc<Lane>, Connection),
    OneWay(Connection, Option<u64>),
}

thread_local! {
    static HERE: RefCell<Option<Rc<Station>>> = const { RefCell::new(None) };
}

impl Station {
    /// Makes the station of this worker; `payload` is the size of what the pattern fills.
    pub(crate) fn open(thread: usize, args: Arc<LoadArgs>, shared: Arc<Shared>, payload: usize) -> Rc<Self> {
        let station = Rc::new(Self {
            args,
            shared,
            pattern: RefCell::new(Pattern::new(payload)),
            thread,
            latency: RefCell::new(latency()),
            measurement: Cell::new(0),
            starters: RefCell::new(Vec::new()),
        });
        HERE.set(Some(Rc::clone(&station)));
        station
    }

    /// The station of this worker, once it is open.
    pub(crate) fn here() -> Option<Rc<Self>> {
        HERE.with_borrow(Clone::clone)
    }

    /// Takes the station away from its worker and gives the latencies it has.
    pub(crate) fn close() -> Latency {
        HERE.take().map_or_else(latency, |station| station.latency.borrow().clone())
    }

    /// Keeps a connection until [`start`](Self::start).
    pub(crate) fn add(&self, starter: Starter) {
        self.starters.borrow_mut().push(starter);
    }

    /// Lets every connection send; a second call finds none left.
    pub(crate) fn start(self: Rc<Self>) {
        for starter in self.starters.take() {
            match starter {
                Starter::Echo(lane, connection) => lane.start(&connection),
                Starter::OneWay(connection, budget) => one_way::start(Rc::clone(&self), connection, budget),
            }
        }
    }

    #[inline]
    pub(crate) fn traffic(&self) -> &Traffic {
        self.shared.traffic(self.thread)
    }

    /// Whether new messages may be sent.
    #[inline]
    pub(crate) fn may_send(&self) -> bool {
        self.shared.phase() == Phase::Run
    }

    /// Notes a latency; those from before the measured window are forgotten when it begins.
    pub(crate) fn record(&self, nanoseconds: u64) {
        let mut latency = self.latency.borrow_mut();
        let measurement = self.shared.measurement();
        if self.measurement.replace(measurement) != measurement {
            latency.reset();
        }
        latency.saturating_record(nanoseconds);
    }

    /// The share of `--packets` of one of all connections.
    pub(crate) fn budget(&self, connection: usize) -> Option<u64> {
        self.args.packets.map(|packets| share(packets, self.args.connections, connection))
    }
}

/// Connects to the target; blocks the worker, which has nothing else to do yet.
pub(crate) fn open(target: &str, protocol: impl Protocol) -> Result<Connection, Failure> {
    let address = target.strip_prefix("tcp://").unwrap_or(target);
    let stream =
        std::net::TcpStream::connect(address).map_err(Failure::io(format!("cannot connect to {target}")))?;
    stream.set_nonblocking(true).map_err(Failure::io("cannot set up a connection"))?;
    stream.set_nodelay(true).map_err(Failure::io("cannot set TCP_NODELAY"))?;
    let mut options = ConnectionOptions::default();
    options.pause_receive_on_backlog = false;
    Connection::open(stream.into(), Rc::new(options), protocol)
        .map_err(Failure::io("cannot open a connection"))
}

/// Splits `packets` over `connections`; the first ones get what is left over.
fn share(packets: usize, connections: usize, connection: usize) -> u64 {
    (packets / connections + usize::from(connection < packets % connections)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_connections_add_up_to_the_packets() {
        for (packets, connections) in [(10, 3), (3, 10), (64, 64), (1_000_003, 7)] {
            let sum: u64 = (0..connections).map(|connection| share(packets, connections, connection)).sum();
            assert_eq!(sum, packets as u64);
        }
    }
}
