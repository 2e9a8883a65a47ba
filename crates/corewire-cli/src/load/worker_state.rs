//! What the connections of one worker share. It never leaves its worker, so nothing in it is locked.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use corewire::{CloseReason, NetClient, Session};
use corewire_rpc::{Bytes, Channel};

use super::echo::EchoConnection;
use super::open::Pacer;
use super::tally::Tally;
use super::{calls, one_way, rpc};
use crate::args::{LoadArgs, LoadKind};
use crate::control::Traffic;
use crate::pattern::Pattern;
use crate::run_control::{Latency, Phase, Shared, latency};

/// One worker's part of a load.
#[derive(Debug)]
pub(crate) struct WorkerState {
    pub(crate) args: Arc<LoadArgs>,
    pub(crate) shared: Arc<Shared>,
    /// What raw messages say.
    pub(crate) pattern: RefCell<Pattern>,
    /// What calls say.
    pub(crate) messages: Rc<[Vec<u8>]>,
    /// What RPC calls say.
    pub(crate) payloads: Rc<[Bytes]>,
    thread: usize,
    latency: RefCell<Latency>,
    streams: RefCell<Latency>,
    tallies: RefCell<Vec<Rc<Tally>>>,
    pacer: RefCell<Option<Rc<Pacer>>>,
    measurement: Cell<u32>,
    clients: RefCell<Vec<(usize, NetClient)>>,
    sessions: RefCell<BTreeMap<usize, Session>>,
    connections: RefCell<BTreeMap<usize, Rc<EchoConnection>>>,
    channels: RefCell<Vec<(usize, Channel)>>,
}

thread_local! {
    static HERE: RefCell<Option<Rc<WorkerState>>> = const { RefCell::new(None) };
}

impl WorkerState {
    /// Makes the state of this worker; `payload` is the size of what messages carry.
    pub(crate) fn open(thread: usize, args: Arc<LoadArgs>, shared: Arc<Shared>, payload: usize) -> Rc<Self> {
        let messages = match args.kind {
            LoadKind::Srmp | LoadKind::LengthField => calls::messages(args.depth, payload),
            LoadKind::Receive | LoadKind::Echo | LoadKind::Udp | LoadKind::UdpSend => Rc::default(),
            LoadKind::Rpc | LoadKind::Stream => Rc::default(),
        };
        let payloads = match args.kind {
            LoadKind::Rpc | LoadKind::Stream => rpc::payloads(args.depth, payload),
            _ => Rc::default(),
        };
        let pattern = Pattern::for_depth(payload, args.depth);
        let state = Rc::new(Self {
            args,
            shared,
            pattern: RefCell::new(pattern),
            messages,
            payloads,
            thread,
            latency: RefCell::new(latency()),
            streams: RefCell::new(latency()),
            tallies: RefCell::default(),
            pacer: RefCell::default(),
            measurement: Cell::new(0),
            clients: RefCell::default(),
            sessions: RefCell::default(),
            connections: RefCell::default(),
            channels: RefCell::default(),
        });
        HERE.set(Some(Rc::clone(&state)));
        state
    }

    /// The state of this worker.
    ///
    /// # Panics
    /// Before [`open`](Self::open) or after [`close`](Self::close).
    pub(crate) fn here() -> Rc<Self> {
        HERE.with_borrow(Clone::clone).expect("the state is open while connections are made")
    }

    /// Takes the state away from its worker, closes its clients and gives its latencies.
    pub(crate) fn close() -> Latency {
        let Some(state) = HERE.take() else { return latency() };
        state.clients.take();
        state.channels.take();
        state.sessions.take();
        state.connections.take();
        let shared = &state.shared;
        shared.add_streams(&state.streams.borrow());
        let tallies = state.tallies.take();
        tallies.iter().for_each(|tally| shared.add_pace(tally.within(shared.measurement())));
        let mut latency = state.latency.borrow().clone();
        if let Some(pacer) = state.pacer.take() {
            shared.add_unsent(pacer.count_unsent(shared.stopped_ns(), &mut latency));
        }
        latency
    }

    /// Keeps the raw connection of a connection.
    pub(crate) fn add_connection(&self, index: usize, connection: Rc<EchoConnection>) {
        self.connections.borrow_mut().insert(index, connection);
    }

    /// Keeps the session of a connection, which the handler learns first.
    pub(crate) fn opened(&self, index: usize, session: Session) {
        self.sessions.borrow_mut().insert(index, session);
    }

    /// Keeps the client of a connection that is ready.
    pub(crate) fn connected(&self, index: usize, client: NetClient) {
        self.clients.borrow_mut().push((index, client));
        self.shared.connected();
    }

    /// Keeps the channel of a connection that is ready.
    pub(crate) fn reached(&self, index: usize, channel: Channel) {
        self.channels.borrow_mut().push((index, channel));
        self.shared.connected();
    }

    /// Notes the end of a connection, an error unless it was ours to end it.
    pub(crate) fn closed(&self, index: usize, reason: &CloseReason) {
        if !matches!(reason, CloseReason::Local | CloseReason::Shutdown) {
            self.shared.error(|| format!("connection {index} ended: {reason}"));
        }
    }

    /// Lets every connection send.
    pub(crate) fn start(self: &Rc<Self>) {
        let pacer = self.pacer();
        let open = |at| pacer.as_ref().and_then(|pacer| pacer.connection(at));
        for (at, (index, channel)) in self.channels.borrow().iter().enumerate() {
            rpc::start(self, channel, *index, open(at).as_ref());
        }
        let connections = self.connections.take();
        let mut sessions = self.sessions.take();
        for (at, (index, client)) in self.clients.borrow().iter().enumerate() {
            let (index, client) = (*index, client.clone());
            let Some(session) = sessions.remove(&index) else {
                self.shared.error(|| format!("connection {index} has no session"));
                continue;
            };
            match self.args.kind {
                LoadKind::Echo => {
                    connections.get(&index).into_iter().for_each(|connection| connection.start(&session))
                }
                LoadKind::Receive => one_way::start(Rc::clone(self), client, session, index),
                LoadKind::Udp | LoadKind::UdpSend => {}
                LoadKind::Srmp | LoadKind::LengthField => {
                    calls::start(Rc::clone(self), client, index, open(at));
                }
                // Their connections are channels.
                LoadKind::Rpc | LoadKind::Stream => {}
            }
        }
    }

    /// What makes the load an open one, if it is to be.
    fn pacer(self: &Rc<Self>) -> Option<Rc<Pacer>> {
        let rate = self.args.rate?;
        let (channels, clients) = (self.channels.borrow(), self.clients.borrow());
        let connections = channels.iter().map(|(at, _)| *at).chain(clients.iter().map(|(at, _)| *at));
        let budgets: Vec<_> = connections.map(|at| self.budget(at).unwrap_or(u64::MAX)).collect();
        let pacer = Pacer::start(self, rate, self.thread, &budgets);
        *self.pacer.borrow_mut() = Some(Rc::clone(&pacer));
        Some(pacer)
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

    /// Notes the latency of a message; those from before the measured window are forgotten when it begins.
    pub(crate) fn record(&self, nanoseconds: u64) {
        self.forget_the_warmup();
        self.latency.borrow_mut().saturating_record(nanoseconds);
    }

    /// Notes the time of a whole stream.
    pub(crate) fn record_stream(&self, nanoseconds: u64) {
        self.forget_the_warmup();
        self.streams.borrow_mut().saturating_record(nanoseconds);
    }

    /// A tally of one of several streams at a time.
    pub(super) fn tally(&self) -> Rc<Tally> {
        let tally = Rc::<Tally>::default();
        self.tallies.borrow_mut().push(Rc::clone(&tally));
        tally
    }

    fn forget_the_warmup(&self) {
        let measurement = self.shared.measurement();
        if self.measurement.replace(measurement) != measurement {
            self.latency.borrow_mut().reset();
            self.streams.borrow_mut().reset();
        }
    }

    /// The share of `--packets` of one of all connections.
    pub(crate) fn budget(&self, connection: usize) -> Option<u64> {
        self.args
            .packets_in_all()
            .map(|packets| share(packets as u64, self.args.connections as u64, connection as u64))
    }
}

/// Splits `packets` over `connections`; the first ones get what is left over.
pub(super) fn share(packets: u64, connections: u64, connection: u64) -> u64 {
    packets / connections + u64::from(connection < packets % connections)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shares_of_all_connections_add_up_to_the_packets() {
        for (packets, connections) in [(10, 3), (3, 10), (64, 64), (1_000_003, 7)] {
            let sum: u64 = (0..connections).map(|connection| share(packets, connections, connection)).sum();
            assert_eq!(sum, packets);
        }
    }
}
