//! The life of connections and listeners: opening, calling their protocol, ending.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::{Driver, Socket, Token};

use super::{Core, TimerAction};
use crate::conn::{
    Backlog, CloseReason, Conn, ConnId, Connection, ConnectionOptions, Draining, ReadState, State, WaiterKey,
    WaitsFor, WriteState,
};
use crate::panic::{guarded, panic_advice};
use crate::protocol::Protocol;
use crate::stats::Counters;
use crate::transport::Transport;
use crate::transport::tls::Lost;

impl Core {
    pub(crate) fn open(
        self: &Rc<Self>,
        socket: Socket,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
        connecting: bool,
    ) -> io::Result<Connection> {
        let socket = {
            let mut driver = self.driver.borrow_mut();
            if connecting { driver.connect(socket)? } else { driver.add_stream(socket)? }
        };
        if connecting {
            let id = self.add_conn(Transport::Socket(socket), options, protocol, true);
            return Ok(Connection { core: self.clone(), id });
        }
        Ok(self.open_established(Transport::Socket(socket), options, protocol, |_| {}))
    }

    /// Opens a connection that is established; `register` is called before its protocol is.
    pub(crate) fn open_established(
        self: &Rc<Self>,
        transport: Transport,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
        register: impl FnOnce(ConnId),
    ) -> Connection {
        let id = self.add_conn(transport, options, protocol, false);
        register(id);
        self.call(id, |protocol, connection| protocol.on_open(connection));
        Connection { core: self.clone(), id }
    }

    pub(super) fn add_conn(
        &self,
        transport: Transport,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
        connecting: bool,
    ) -> ConnId {
        self.conns.table.borrow_mut().insert(|id| {
            let mut conn = Conn::new(id, transport, protocol, options, connecting, self.timers.now_ms());
            conn.look = conn.deadlines.first(&conn.options).map(|first| self.look_after(id, first));
            conn
        })
    }

    /// Calls the protocol of a connection; a panic ends that connection.
    #[inline]
    pub(super) fn call(self: &Rc<Self>, id: ConnId, call: impl FnOnce(&mut dyn Protocol, &Connection)) {
        if let Some(Some(protocol)) = self.conns.with(id, |conn| conn.protocol.take()) {
            self.call_taken(id, protocol, call);
        }
    }

    /// Calls a protocol that was taken out of its connection, and puts it back.
    #[inline]
    pub(super) fn call_taken(
        self: &Rc<Self>,
        id: ConnId,
        mut protocol: Box<dyn Protocol>,
        call: impl FnOnce(&mut dyn Protocol, &Connection),
    ) {
        let connection = Connection { core: self.clone(), id };
        let outcome = guarded(|| call(&mut *protocol, &connection));
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id) else { return };
        conn.protocol = Some(protocol);
        if let Err(message) = outcome {
            self.note_panic(&message);
            self.close_now(conn, CloseReason::HandlerPanicked(message));
        }
    }

    /// Runs code of others; a panic is counted and told, and nothing else comes of it.
    pub(crate) fn guard(&self, call: impl FnOnce()) {
        if let Err(message) = guarded(call) {
            self.note_panic(&message);
        }
    }

    pub(crate) fn note_panic(&self, message: &str) {
        Counters::add(&self.counters.panics, 1);
        let advice = panic_advice(message);
        tracing::error!(worker = self.id().0, advice, "a handler or task panicked: {message}");
    }

    /// A connect has succeeded.
    pub(crate) fn connected(self: &Rc<Self>, socket: Token) {
        let established = self.conns.with_socket(socket, |conn| {
            let State::Connecting { finish_write } = conn.state else { return None };
            if conn.transport.is_tls() {
                self.begin_handshake_timer(conn);
                self.list_handshake(conn);
                return None;
            }
            conn.state = State::established(finish_write);
            conn.last_active = self.timers.now_ms();
            Some(conn.id)
        });
        if let Some(Some(id)) = established {
            Counters::add(&self.counters.connected, 1);
            self.call(id, |protocol, connection| protocol.on_open(connection));
            // What was queued, or asked for, before the connection was established.
            self.writable(id);
        }
    }

    /// A socket is lost.
    pub(crate) fn failed(&self, socket: Token, error: io::Error) {
        let Some(Lost::Failed(error)) = self.lost_in_handshake(socket, Lost::Failed(error)) else { return };
        if self.conns.with_socket(socket, |conn| self.close_now(conn, CloseReason::Io(error))).is_none() {
            self.end_linger(socket);
        }
    }

    /// A transport has ended by itself. If the peer `took_all`, a close that waited for that is complete.
    pub(crate) fn ended(&self, id: ConnId, reason: CloseReason, took_all: bool) {
        self.conns.with(id, |conn| match took_all && conn.is_draining() {
            true => self.finish_draining(conn, &mut self.driver.borrow_mut()),
            false => self.close_now(conn, reason),
        });
    }

    pub(crate) fn call_drained(self: &Rc<Self>) {
        if self.senders.drained.borrow().is_empty() {
            return;
        }
        // Those that drain again meanwhile wait for the next tick, after the others.
        let mut drained = std::mem::take(&mut *self.senders.drained.borrow_mut());
        for id in drained.drain(..) {
            let is_due = self.conns.with(id, |conn| {
                let is_due = conn.backlog == Backlog::Drained;
                if is_due {
                    conn.backlog = Backlog::Below;
                }
                is_due
            });
            if is_due == Some(true) {
                self.call(id, |protocol, connection| protocol.on_drained(connection));
            }
        }
        let mut list = self.senders.drained.borrow_mut();
        if list.is_empty() {
            *list = drained;
        }
    }

    pub(crate) fn call_timer(self: &Rc<Self>, id: ConnId) {
        let active = self.conns.with(id, |conn| {
            conn.protocol_timer = None;
            conn.state.is_active()
        });
        if active == Some(true) {
            self.call(id, |protocol, connection| protocol.on_timer(connection));
        }
    }

    pub(crate) fn call_shutdown(self: &Rc<Self>, id: ConnId) {
        if self.conns.with(id, |conn| conn.state.is_active()) == Some(true) {
            self.call(id, |protocol, connection| protocol.on_shutdown(connection));
        }
    }

    /// A future that waited for room is gone.
    pub(crate) fn remove_waiter(&self, of: WaitsFor, key: WaiterKey) -> Option<std::task::Waker> {
        match of {
            WaitsFor::Connection(id) => self.conns.with(id, |conn| conn.waiters.remove(key)).flatten(),
            WaitsFor::Datagrams(socket) => self.udp.remove_waiter(socket, false, key),
            WaitsFor::DatagramRoom(socket) => self.udp.remove_waiter(socket, true, key),
        }
    }

    pub(crate) fn set_protocol_timer(&self, id: ConnId, delay: Option<Duration>) {
        self.conns.with(id, |conn| {
            if let Some(key) = conn.protocol_timer.take() {
                self.timers.cancel(key);
            }
            conn.protocol_timer = delay.map(|delay| self.timers.add(delay, TimerAction::Protocol(id)));
        });
    }

    pub(crate) fn shutdown_write(&self, id: ConnId) {
        self.conns.with(id, |conn| match &mut conn.state {
            State::Connecting { finish_write } => *finish_write = true,
            State::Open { write: write @ WriteState::Open, .. } => {
                *write = WriteState::Finishing;
                conn.out.close_room();
                if conn.out.is_empty() {
                    self.finish_write(conn, &mut self.driver.borrow_mut());
                }
            }
            _ => {}
        });
    }

    pub(crate) fn begin_close(&self, id: ConnId, reason: CloseReason) {
        self.conns.with(id, |conn| match conn.state {
            State::Connecting { .. } => self.close_now(conn, reason),
            State::Open { read, .. }
                if self.queued_on(conn) == 0
                    && conn.transport.finish(self, &mut self.driver.borrow_mut()) =>
            {
                self.enter_closed(conn, reason, read == ReadState::Open);
            }
            State::Open { read, .. } => {
                let read_ended = read != ReadState::Open;
                self.stop_receiving(conn);
                let timer = self.timers.add(conn.options.close_timeout, TimerAction::CloseTimeout(id));
                conn.last_active = self.timers.now_ms();
                conn.state = State::Draining(Box::new(Draining { reason, timer, read_ended }));
                conn.out.close_room();
                self.follow_socket(conn);
            }
            State::Draining(_) | State::Closed { .. } => {}
        });
    }

    /// The peer of a draining connection has had its time; it gets more as long as it takes bytes.
    pub(crate) fn close_timed_out(&self, id: ConnId) {
        self.conns.with(id, |conn| {
            let State::Draining(draining) = &mut conn.state else { return };
            let timeout = conn.options.close_timeout;
            let taken_at = conn.transport.taken_at().unwrap_or(0).max(conn.last_active);
            let idle = Duration::from_millis(self.timers.now_ms().saturating_sub(taken_at));
            if idle < timeout {
                draining.timer = self.timers.add(timeout - idle, TimerAction::CloseTimeout(id));
                return;
            }
            if conn.transport.is_delivered() {
                let reason = std::mem::replace(&mut draining.reason, CloseReason::Local);
                return self.enter_closed(conn, reason, false);
            }
            let reason = CloseReason::CloseTimeout { unsent: self.queued_on(conn), timeout };
            self.enter_closed(conn, reason, false);
        });
    }

    pub(crate) fn abort(&self, id: ConnId, reason: CloseReason) {
        self.conns.with(id, |conn| self.close_now(conn, reason));
    }

    /// Ends a connection without waiting for its queue. The first reason given stands, unless it was that of a close
    /// that promised to send what is queued and is now cut short.
    pub(crate) fn close_now(&self, conn: &mut Conn, reason: CloseReason) {
        match &mut conn.state {
            State::Closed { lingers, .. } => *lingers = false,
            _ => self.enter_closed(conn, reason, false),
        }
    }

    /// All that a draining connection had to send is handed over.
    pub(crate) fn finish_draining(&self, conn: &mut Conn, driver: &mut Driver) {
        if !conn.transport.finish(self, driver) {
            return;
        }
        if let State::Draining(draining) = &mut conn.state {
            let reason = std::mem::replace(&mut draining.reason, CloseReason::Local);
            let lingers = !draining.read_ended;
            self.enter_closed(conn, reason, lingers);
        }
    }

    /// Ends a connection whose peer is still to read why.
    pub(super) fn close_lingering(&self, conn: &mut Conn, reason: CloseReason) {
        if !conn.state.is_closed() {
            self.enter_closed(conn, reason, true);
        }
    }

    fn enter_closed(&self, conn: &mut Conn, reason: CloseReason, lingers: bool) {
        if let State::Draining(draining) = &conn.state {
            self.timers.cancel(draining.timer);
        }
        self.end_handshake_timer(conn);
        conn.state = State::Closed { reason: Box::new(reason), lingers };
        conn.out.close_room();
        self.turns.quota.stop_for(conn.id);
        self.conns.closed.borrow_mut().push(conn.id);
    }

    /// Takes the connections that are closed out of their table. No handler is running now, so each can be told.
    pub(crate) fn reap_closed(self: &Rc<Self>) {
        while let Some(id) = { self.conns.closed.borrow_mut().pop() } {
            let Some(mut conn) = self.conns.table.borrow_mut().remove(id) else { continue };
            let unsent = self.queued_on(&conn);
            self.forget_look(&conn);
            let State::Closed { reason, lingers } = conn.state else { continue };
            conn.transport.release(self, id, lingers);
            if let Some(key) = conn.protocol_timer {
                self.timers.cancel(key);
            }
            Counters::add(&self.counters.closed, 1);
            self.conns.ending.set(Some((id, unsent)));
            conn.out.clear(&mut self.senders.pool.borrow_mut());
            if let Some(account) = &conn.account {
                account.close();
            }
            conn.waiters.take_into(&mut self.senders.woken.borrow_mut());
            if let Some(mut protocol) = conn.protocol.take() {
                let connection = Connection { core: self.clone(), id };
                self.guard(|| {
                    protocol.on_closed(&connection, &reason);
                    drop(protocol);
                });
            }
        }
    }

    /// Tells the peer that nothing more follows.
    pub(super) fn finish_write(&self, conn: &mut Conn, driver: &mut Driver) {
        if let State::Open { write: write @ WriteState::Finishing, .. } = &mut conn.state {
            *write = WriteState::Finished;
            conn.transport.finish_write(self, driver);
        }
    }
}
