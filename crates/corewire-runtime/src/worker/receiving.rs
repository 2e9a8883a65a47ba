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
use super::quota::{ARRIVAL_UNITS, Meter, TURN_BYTES, TURN_UNITS};
use crate::conn::{Conn, PauseSet};
use crate::memory::{Account, Charge, MemoryKind};
use crate::stats::Counters;

/// Aborted tasks whose futures wait for the end of a step of the tick; more are dropped after the turn they came in.
const ABORTED_MAX: usize = 32;

/// One receive of a greedy connection, in bytes: little is kept while it waits for its turns.
const GREEDY_RECEIVE_MAX: usize = 64 * 1024;

impl Core {
    #[inline]
    pub(crate) fn received(self: &Rc<Self>, token: Token, data: Bytes) {
        Counters::add(&self.counters.receives, 1);
        Counters::add(&self.counters.received_bytes, data.len() as u64);
        let arrived = self.with_conn(token, |conn| {
            if !conn.state.is_active() {
                return None;
            }
            conn.last_active = self.now_ms();
            conn.deadlines.received += data.len();
            if conn.greedy || !conn.pauses.is_empty() || conn.has_input() {
                self.queue_input(conn, |input| input.push_back(data));
                return None;
            }
            Some((conn.protocol.take()?, data))
        });
        if let Some(Some((protocol, data))) = arrived {
            self.quota.begin(token, ARRIVAL_UNITS);
            self.call_taken(token, protocol, |protocol, connection| protocol.on_received(connection, data));
            self.quota.end();
            if self.has_deferred.replace(false) {
                self.flush_token(token);
            }
            self.reap_aborted_if_many();
        }
    }

    /// Keeps what a protocol was given and did not decode; it is called with it again before anything newer.
    pub(crate) fn defer(&self, token: Token, rest: Bytes) {
        self.with_conn(token, |conn| {
            if !conn.state.is_active() {
                return;
            }
            if conn.pauses.is_empty() && !std::mem::replace(&mut conn.greedy, true) {
                self.driver.borrow_mut().set_receive_max(token, GREEDY_RECEIVE_MAX);
            }
            let owned = self.serves_owned.get();
            self.queue_input(conn, |input| input.push_front(rest, owned));
            self.has_deferred.set(true);
        });
    }

    /// Adds to the input that waits, and lists the connection for its turn and for the end of the tick.
    fn queue_input(&self, conn: &mut Conn, push: impl FnOnce(&mut crate::conn::Input)) {
        let input = conn.input.get_or_insert_default();
        push(input);
        if !std::mem::replace(&mut input.listed, true) {
            self.unsettled.borrow_mut().push(conn.token);
        }
        self.list_turn(conn);
        conn.sync_receiving(&mut self.driver.borrow_mut());
    }

    /// Has a connection with input wait for its turn, if nothing else holds it.
    fn list_turn(&self, conn: &mut Conn) {
        if conn.pauses.is_empty() {
            conn.pauses = PauseSet::QUOTA;
            self.turns.borrow_mut().push_back(conn.token);
        }
    }

    /// Gives those that wait their turns, while the budget lasts; one at least.
    pub(super) fn serve_turns(self: &Rc<Self>) {
        if self.turns.borrow().is_empty() {
            return;
        }
        let mut meter = Meter::new();
        loop {
            let (next, is_alone) = {
                let mut turns = self.turns.borrow_mut();
                (turns.pop_front(), turns.is_empty())
            };
            let Some(token) = next else { return };
            self.serve_turn(token);
            if self.has_deferred.replace(false) && !is_alone {
                // Its replies do not wait for what others have to do.
                self.flush_token(token);
            }
            if meter.look() {
                return;
            }
        }
    }

    fn serve_turn(self: &Rc<Self>, token: Token) {
        let is_due = self.with_conn(token, |conn| {
            conn.pauses = conn.pauses.without(PauseSet::QUOTA);
            conn.last_active = self.now_ms();
            conn.pauses.is_empty() && conn.state.is_active()
        });
        if is_due != Some(true) {
            return;
        }
        self.quota.begin(token, TURN_UNITS);
        self.has_deferred.set(false);
        let mut bytes = 0;
        while bytes < TURN_BYTES && !self.quota.is_used() && !self.has_deferred.get() {
            let Some(Some((data, protocol))) = self.with_conn(token, |conn| {
                if !(conn.state.is_active() && conn.pauses.is_empty()) {
                    return None;
                }
                let (data, owned) = conn.input.as_mut()?.pop()?;
                self.serves_owned.set(owned);
                Some((data, conn.protocol.take()?))
            }) else {
                break;
            };
            bytes += data.len();
            self.call_taken(token, protocol, |protocol, connection| protocol.on_received(connection, data));
        }
        self.serves_owned.set(false);
        self.quota.end();
        self.reap_aborted_if_many();
        self.end_turn(token);
    }

    fn end_turn(self: &Rc<Self>, token: Token) {
        let was_modest = TURN_UNITS - self.quota.units_left() < ARRIVAL_UNITS;
        let read_ended = self.with_conn(token, |conn| {
            if !conn.state.is_active() {
                return false;
            }
            if conn.has_input() {
                self.list_turn(conn);
                return false;
            }
            let driver = &mut *self.driver.borrow_mut();
            if was_modest && std::mem::take(&mut conn.greedy) {
                driver.set_receive_max(token, usize::MAX);
            }
            conn.sync_receiving(driver);
            conn.pauses.is_empty() && conn.state.take_read_end()
        });
        if read_ended == Some(true) {
            self.call(token, |protocol, connection| protocol.on_read_closed(connection));
        }
    }

    #[inline]
    fn reap_aborted_if_many(&self) {
        if self.aborted.get() >= ABORTED_MAX {
            self.reap_aborted();
        }
    }

    /// At the end of the tick: those whose input waits longer give receive buffers back.
    pub(super) fn settle_input(&self) {
        if self.unsettled.borrow().is_empty() {
            return;
        }
        let mut unsettled = self.unsettled.take();
        for token in unsettled.drain(..) {
            self.with_conn(token, |conn| {
                let Some(input) = conn.input.as_mut() else { return };
                input.listed = false;
                if !input.is_empty() {
                    let account = &mut conn.account;
                    input.settle(|| {
                        let account = account.get_or_insert_with(|| Account::new(self.memory.clone()));
                        Charge::new(account.clone(), MemoryKind::Deferred, 0)
                    });
                }
            });
        }
        self.unsettled.replace(unsettled);
    }

    pub(crate) fn read_closed(self: &Rc<Self>, token: Token) {
        let told = self.with_conn(token, |conn| {
            conn.state.note_read_ended();
            // Behind what is deferred.
            !conn.has_input() && conn.state.take_read_end()
        });
        match told {
            Some(true) => self.call(token, |protocol, connection| protocol.on_read_closed(connection)),
            Some(false) => {}
            None => self.end_linger(token),
        }
    }

    pub(crate) fn pause(&self, token: Token, why: PauseSet) {
        self.with_conn(token, |conn| self.pause_conn(conn, why, &mut self.driver.borrow_mut()));
    }

    pub(super) fn pause_conn(&self, conn: &mut Conn, why: PauseSet, driver: &mut Driver) {
        conn.pauses = conn.pauses.with(why);
        // What it has not decoded yet stays so.
        self.quota.stop_for(conn.token);
        conn.sync_receiving(driver);
    }

    pub(crate) fn resume(&self, token: Token, why: PauseSet) {
        self.with_conn(token, |conn| self.resume_conn(conn, why, &mut self.driver.borrow_mut()));
    }

    pub(super) fn resume_conn(&self, conn: &mut Conn, why: PauseSet, driver: &mut Driver) {
        conn.pauses = conn.pauses.without(why);
        if conn.has_input() {
            self.list_turn(conn);
        }
        conn.sync_receiving(driver);
    }

    /// Bytes that have arrived and wait to be decoded.
    pub(crate) fn deferred(&self, token: Token) -> usize {
        self.with_conn(token, |conn| conn.input.as_ref().map_or(0, |input| input.len())).unwrap_or(0)
    }

    /// It closes: what the peer still sends is not received, and what is deferred is dropped.
    pub(super) fn stop_receiving(&self, conn: &mut Conn) {
        self.quota.stop_for(conn.token);
        if let Some(input) = &mut conn.input {
            input.clear();
        }
        if std::mem::take(&mut conn.receiving) {
            self.driver.borrow_mut().pause_receive(conn.token);
        }
    }
}

impl Conn {
    /// Has the driver receive if nothing holds the connection.
    fn sync_receiving(&mut self, driver: &mut Driver) {
        let receives = self.pauses.is_empty() && !self.has_input();
        if self.state.is_active() && receives != std::mem::replace(&mut self.receiving, receives) {
            if receives {
                driver.resume_receive(self.token);
            } else {
                driver.pause_receive(self.token);
            }
        }
    }
}
