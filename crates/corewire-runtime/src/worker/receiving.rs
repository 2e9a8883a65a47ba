//! The receiving side: turns of connections, deferred input, pauses.
//!
//! A connection is served as its bytes arrive, up to a quota. What its protocol then hands back is deferred: the
//! connection keeps it and has its next turn after all others, as long as the tick's budget lasts. One that used up its
//! quota is greedy until it uses less: its bytes go behind all arrivals at once, so that whoever sends little is served
//! first.

use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::{Driver, Token};

use super::Core;
use super::quota::{ARRIVAL_UNITS, Meter, TURN_UNITS};
use crate::conn::{Conn, ConnId, PauseSet};
use crate::memory::{Charge, MemoryKind};
use crate::protocol::Protocol;
use crate::stats::Counters;
use crate::transport::Transport;
use crate::transport::tls::Lost;

/// Aborted tasks whose futures wait for the end of a step of the tick; more are dropped after the turn they came in.
const ABORTED_MAX: usize = 32;

/// Units that are left when the replies to those before leave. A client with fewer messages in flight than a quota, all of
/// them answered at once, would wait for the server, and then the server for it.
const EARLY_FLUSH_AT: u32 = ARRIVAL_UNITS / 2;

/// One receive of a greedy connection, in bytes: little is kept while it waits for its turns.
const GREEDY_RECEIVE_MAX: usize = 64 * 1024;

impl Core {
    /// Bytes arrived on a socket.
    #[inline]
    pub(crate) fn received(self: &Rc<Self>, socket: Token, data: Bytes) {
        Counters::add(&self.counters.receives, 1);
        Counters::add(&self.counters.received_bytes, data.len() as u64);
        let arrived = {
            let mut conns = self.conns.table.borrow_mut();
            let Some(conn) = conns.of_socket(socket).filter(|conn| conn.state.is_active()) else { return };
            if conn.transport.is_tls() {
                let id = conn.id;
                drop(conns);
                return self.received_tls(id, data);
            }
            self.note_received(conn, data.len());
            if conn.greedy || !conn.pauses.is_empty() || conn.has_input() {
                return self.queue_input(conn, |input| input.push_back(data));
            }
            conn.protocol.take().map(|protocol| (conn.id, protocol))
        };
        if let Some((id, protocol)) = arrived {
            self.serve_arrival(id, protocol, data);
        }
    }

    /// Bytes of the stream have arrived, whatever they came in.
    pub(super) fn arrived(self: &Rc<Self>, id: ConnId, data: Bytes) {
        let arrived = self.conns.with(id, |conn| {
            if !conn.state.is_active() {
                return None;
            }
            conn.last_active = self.timers.now_ms();
            if conn.greedy || !conn.pauses.is_empty() || conn.has_input() {
                self.queue_input(conn, |input| input.push_back(data));
                return None;
            }
            Some((conn.protocol.take()?, data))
        });
        if let Some(Some((protocol, data))) = arrived {
            self.serve_arrival(id, protocol, data);
        }
    }

    /// A transport that is read from has something to read, or its peer has finished.
    pub(crate) fn readable(self: &Rc<Self>, id: ConnId) {
        let arrived = self.conns.with(id, |conn| {
            if !conn.state.is_active() {
                discard(self, conn);
                return None;
            }
            if conn.greedy && conn.transport.is_readable() {
                self.turns.list(conn);
            }
            if self.life.get().is_ending() || conn.greedy || !conn.pauses.is_empty() || conn.has_input() {
                return None;
            }
            let piece = conn.transport.read(self)?;
            self.note_received(conn, piece.len());
            Some((conn.protocol.take()?, piece))
        });
        if let Some(Some((protocol, piece))) = arrived {
            self.serve_arrival(id, protocol, piece);
        }
        let read_ended = self.conns.with(id, |conn| {
            if conn.state.is_active() && conn.transport.is_readable() {
                self.turns.list(conn);
            }
            !self.life.get().is_ending() && take_read_end(conn)
        });
        self.tell_read_end(id, read_ended);
    }

    /// Calls a protocol with what has just arrived.
    fn serve_arrival(self: &Rc<Self>, id: ConnId, protocol: Box<dyn Protocol>, data: Bytes) {
        self.turns.quota.begin(id, ARRIVAL_UNITS);
        self.call_taken(id, protocol, |protocol, connection| protocol.on_received(connection, data));
        self.turns.quota.end();
        if self.turns.has_deferred.replace(false) {
            self.flush_one(id);
        }
        self.reap_aborted_if_many();
    }

    #[inline]
    pub(super) fn note_received(&self, conn: &mut Conn, bytes: usize) {
        conn.last_active = self.timers.now_ms();
        conn.deadlines.received += bytes;
    }

    /// Whether the connection that is being called may go on with another piece of its quota.
    #[cold]
    pub(crate) fn next_piece(&self, id: ConnId, debt: u32) -> bool {
        if !self.turns.quota.next_piece(debt) {
            return false;
        }
        if self.turns.quota.units_left() == EARLY_FLUSH_AT && self.senders.dirty.borrow().len() == 1 {
            // It is alone: its peer has something to do while the rest is handled.
            self.flush_one(id);
        }
        true
    }

    /// Keeps what a protocol was given and did not decode; it is called with it again before anything newer. What is left
    /// of a datagram is dropped and counted: the next one stands for itself.
    pub(crate) fn defer(&self, id: ConnId, rest: Bytes) {
        self.conns.with(id, |conn| {
            if conn.transport.is_datagram() {
                return Counters::add(&self.counters.datagrams_dropped, 1);
            }
            if !conn.state.is_active() {
                return;
            }
            if conn.pauses.is_empty() && !std::mem::replace(&mut conn.greedy, true) {
                conn.transport.set_receive_max(&mut self.driver.borrow_mut(), GREEDY_RECEIVE_MAX);
            }
            let owned = self.turns.serves_owned.get();
            self.queue_input(conn, |input| input.push_front(rest, owned));
            self.turns.has_deferred.set(true);
        });
    }

    /// Adds to the input that waits, and lists the connection for its turn and for the end of the tick.
    fn queue_input(&self, conn: &mut Conn, push: impl FnOnce(&mut crate::conn::Input)) {
        let input = conn.input.get_or_insert_default();
        push(input);
        if !std::mem::replace(&mut input.listed, true) {
            self.turns.unsettled.borrow_mut().push(conn.id);
        }
        self.turns.list(conn);
        self.sync_receiving(conn, &mut self.driver.borrow_mut());
    }

    /// Gives those that wait their turns, while the budget lasts; one at least.
    pub(super) fn serve_turns(self: &Rc<Self>) {
        if self.turns.waiting.borrow().is_empty() {
            return;
        }
        let mut meter = Meter::new();
        loop {
            let (next, is_alone) = {
                let mut turns = self.turns.waiting.borrow_mut();
                (turns.pop_front(), turns.is_empty())
            };
            let Some(id) = next else { return };
            self.serve_turn(id);
            if self.turns.has_deferred.replace(false) && !is_alone {
                // Its replies do not wait for what others have to do.
                self.flush_one(id);
            }
            if meter.look() {
                return;
            }
        }
    }

    fn serve_turn(self: &Rc<Self>, id: ConnId) {
        let due = self.conns.with(id, |conn| {
            conn.pauses = conn.pauses.without(PauseSet::QUOTA);
            conn.last_active = self.timers.now_ms();
            (conn.pauses.is_empty() && conn.state.is_active()).then(|| conn.transport.turn_bytes())
        });
        let Some(Some(bytes_max)) = due else { return };
        self.turns.quota.begin(id, TURN_UNITS);
        self.turns.has_deferred.set(false);
        let mut bytes = 0;
        while bytes < bytes_max && !self.turns.quota.is_used() && !self.turns.has_deferred.get() {
            let Some(Some((data, protocol))) = self.conns.with(id, |conn| {
                if !(conn.state.is_active() && conn.pauses.is_empty()) {
                    return None;
                }
                let (data, owned) = match conn.input.as_mut().and_then(|input| input.pop()) {
                    Some(waiting) => waiting,
                    None => (conn.transport.read(self)?, false),
                };
                self.turns.serves_owned.set(owned);
                Some((data, conn.protocol.take()?))
            }) else {
                break;
            };
            bytes += data.len();
            self.call_taken(id, protocol, |protocol, connection| protocol.on_received(connection, data));
        }
        self.turns.serves_owned.set(false);
        self.turns.quota.end();
        self.reap_aborted_if_many();
        self.end_turn(id);
    }

    fn end_turn(self: &Rc<Self>, id: ConnId) {
        let was_modest = TURN_UNITS - self.turns.quota.units_left() < ARRIVAL_UNITS;
        let read_ended = self.conns.with(id, |conn| {
            if !conn.state.is_active() {
                return false;
            }
            if conn.has_input() || conn.transport.is_readable() {
                self.turns.list(conn);
                return false;
            }
            let driver = &mut *self.driver.borrow_mut();
            if was_modest && std::mem::take(&mut conn.greedy) {
                conn.transport.set_receive_max(driver, usize::MAX);
            }
            self.sync_receiving(conn, driver);
            take_read_end(conn)
        });
        self.tell_read_end(id, read_ended);
    }

    pub(super) fn tell_read_end(self: &Rc<Self>, id: ConnId, is_due: Option<bool>) {
        if is_due == Some(true) {
            let cut = self.conns.with(id, |conn| match &mut conn.transport {
                Transport::Tls(tls) => {
                    let failure = tls.take_read_failure()?;
                    self.fail_tls(conn, failure);
                    Some(())
                }
                _ => None,
            });
            if let Some(Some(())) = cut {
                return;
            }
            self.call(id, |protocol, connection| protocol.on_read_closed(connection));
        }
    }

    #[inline]
    fn reap_aborted_if_many(&self) {
        if self.tasks.aborted.get() >= ABORTED_MAX {
            self.reap_aborted();
        }
    }

    /// At the end of the tick: those whose input waits longer give receive buffers back.
    pub(super) fn settle_input(&self) {
        if self.turns.unsettled.borrow().is_empty() {
            return;
        }
        let mut unsettled = self.turns.unsettled.take();
        for id in unsettled.drain(..) {
            self.conns.with(id, |conn| {
                let Some(input) = conn.input.as_mut() else { return };
                input.listed = false;
                if !input.is_empty() {
                    let (account, options) = (&mut conn.account, &conn.options);
                    input.settle(|| {
                        let account = self.memory.account_of(account, conn.id, options);
                        Charge::new(account.clone(), MemoryKind::Deferred, 0)
                    });
                }
            });
        }
        self.turns.unsettled.replace(unsettled);
    }

    /// The peer of a socket has finished sending.
    pub(crate) fn read_closed(self: &Rc<Self>, socket: Token) {
        if self.lost_in_handshake(socket, Lost::Closed).is_none() {
            return;
        }
        let told = self.conns.with_socket(socket, |conn| {
            if let Transport::Tls(tls) = &mut conn.transport {
                tls.read_closed();
            }
            conn.state.note_read_ended();
            (conn.id, take_read_end(conn))
        });
        match told {
            Some((id, is_due)) => self.tell_read_end(id, Some(is_due)),
            None => self.end_linger(socket),
        }
    }

    pub(crate) fn pause(&self, id: ConnId, why: PauseSet) {
        self.conns.with(id, |conn| self.pause_conn(conn, why, &mut self.driver.borrow_mut()));
    }

    pub(super) fn pause_conn(&self, conn: &mut Conn, why: PauseSet, driver: &mut Driver) {
        conn.pauses = conn.pauses.with(why);
        if !conn.transport.is_datagram() {
            // What it has not decoded yet stays so.
            self.turns.quota.stop_for(conn.id);
        }
        self.sync_receiving(conn, driver);
    }

    pub(crate) fn resume(&self, id: ConnId, why: PauseSet) {
        self.conns.with(id, |conn| self.resume_conn(conn, why, &mut self.driver.borrow_mut()));
    }

    pub(super) fn resume_conn(&self, conn: &mut Conn, why: PauseSet, driver: &mut Driver) {
        conn.pauses = conn.pauses.without(why);
        if conn.has_input() || conn.state.is_read_ending() {
            self.turns.list(conn);
        }
        self.sync_receiving(conn, driver);
    }

    /// Bytes that have arrived and wait to be decoded.
    pub(crate) fn deferred(&self, id: ConnId) -> usize {
        self.conns.with(id, |conn| conn.input.as_ref().map_or(0, |input| input.len())).unwrap_or(0)
    }

    /// It closes: what the peer still sends is not received, and what is deferred is dropped.
    pub(super) fn stop_receiving(&self, conn: &mut Conn) {
        self.turns.quota.stop_for(conn.id);
        if let Some(input) = &mut conn.input {
            input.clear();
        }
        if std::mem::take(&mut conn.receiving) {
            conn.transport.set_receiving(&mut self.driver.borrow_mut(), false);
        }
        discard(self, conn);
    }

    /// Has the transport receive if nothing holds the connection.
    fn sync_receiving(&self, conn: &mut Conn, driver: &mut Driver) {
        let receives = conn.pauses.is_empty() && !conn.has_input();
        if conn.state.is_active() && receives != std::mem::replace(&mut conn.receiving, receives) {
            conn.transport.set_receiving(driver, receives);
            conn.deadlines.set_receiving(receives, self.timers.now_ms());
            if receives && conn.transport.is_readable() {
                self.turns.list(conn);
            }
        }
    }
}

/// Reads what nobody takes: the end of the peer comes behind it.
fn discard(core: &Core, conn: &Conn) {
    while conn.transport.read(core).is_some() {}
}

/// All that the peer sent was handed over: true once, when the protocol is to be told. What is deferred goes before; a
/// pause that the protocol knows of holds back the end too.
fn take_read_end(conn: &mut Conn) -> bool {
    if conn.transport.is_at_end() {
        conn.state.note_read_ended();
    }
    !conn.has_input() && !conn.pauses.is_known() && conn.state.take_read_end()
}
