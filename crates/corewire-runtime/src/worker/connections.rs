//! The life of connections and listeners: opening, calling their protocol, ending.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use corewire_driver::{Driver, Socket, Token};

use super::{Core, TimerAction};
use crate::conn::{
    Backlog, CloseReason, Conn, Connection, ConnectionOptions, Observed, ReadState, State, WaiterKey,
    WaitsFor, WriteState,
};
use crate::panic::guarded;
use crate::protocol::Protocol;
use crate::stats::Counters;

impl Core {
    pub(crate) fn open(
        self: &Rc<Self>,
        socket: Socket,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
        connecting: bool,
    ) -> io::Result<Connection> {
        let token = {
            let mut driver = self.driver.borrow_mut();
            if connecting { driver.connect(socket)? } else { driver.add_stream(socket)? }
        };
        let mut conn = Conn::new(token, protocol, options, connecting, self.now_ms());
        if let Some(first) = conn.deadlines.first(&conn.options) {
            conn.deadline_timer = Some(self.add_timer(first, TimerAction::Deadlines(token)));
        }
        self.conns.borrow_mut().insert(conn);
        let connection = Connection { core: self.clone(), token, carried: None };
        if !connecting {
            self.call(token, |protocol, connection| protocol.on_open(connection));
        }
        Ok(connection)
    }

    /// Calls the protocol of a connection; a panic ends that connection.
    #[inline]
    pub(super) fn call(self: &Rc<Self>, token: Token, call: impl FnOnce(&mut dyn Protocol, &Connection)) {
        if let Some(Some(protocol)) = self.with_conn(token, |conn| conn.protocol.take()) {
            self.call_taken(token, protocol, call);
        }
    }

    /// Calls a protocol that was taken out of its connection, and puts it back.
    #[inline]
    pub(super) fn call_taken(
        self: &Rc<Self>,
        token: Token,
        mut protocol: Box<dyn Protocol>,
        call: impl FnOnce(&mut dyn Protocol, &Connection),
    ) {
        let connection = Connection { core: self.clone(), token, carried: None };
        let outcome = guarded(|| call(&mut *protocol, &connection));
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(token) else { return };
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
        tracing::error!(worker = self.id().0, "a handler or task panicked: {message}");
    }

    pub(crate) fn connected(self: &Rc<Self>, token: Token) {
        let established = self.with_conn(token, |conn| {
            let State::Connecting { finish_write } = conn.state else { return false };
            let write = if finish_write { WriteState::Finishing } else { WriteState::Open };
            conn.state = State::Open { write, read: ReadState::Open };
            conn.last_active = self.now_ms();
            true
        });
        if established == Some(true) {
            Counters::add(&self.counters.connected, 1);
            self.call(token, |protocol, connection| protocol.on_open(connection));
        }
        // What was queued, or asked for, before the connection was established.
        self.writable(token);
    }

    pub(crate) fn failed(&self, token: Token, error: io::Error) {
        if self.with_conn(token, |conn| self.close_now(conn, CloseReason::Io(error))).is_none() {
            self.end_linger(token);
        }
    }

    pub(crate) fn call_drained(self: &Rc<Self>) {
        if self.drained.borrow().is_empty() {
            return;
        }
        // Those that drain again meanwhile wait for the next tick, after the others.
        let mut drained = std::mem::take(&mut *self.drained.borrow_mut());
        for token in drained.drain(..) {
            let is_due = self.with_conn(token, |conn| {
                let is_due = conn.backlog == Backlog::Drained;
                if is_due {
                    conn.backlog = Backlog::Below;
                }
                is_due
            });
            if is_due == Some(true) {
                self.call(token, |protocol, connection| protocol.on_drained(connection));
            }
        }
        let mut list = self.drained.borrow_mut();
        if list.is_empty() {
            *list = drained;
        }
    }

    pub(crate) fn call_timer(self: &Rc<Self>, token: Token) {
        let active = self.with_conn(token, |conn| {
            conn.protocol_timer = None;
            conn.state.is_active()
        });
        if active == Some(true) {
            self.call(token, |protocol, connection| protocol.on_timer(connection));
        }
    }

    pub(crate) fn call_shutdown(self: &Rc<Self>, token: Token) {
        if self.with_conn(token, |conn| conn.state.is_active()) == Some(true) {
            self.call(token, |protocol, connection| protocol.on_shutdown(connection));
        }
    }

    /// A future that waited for room is gone.
    pub(crate) fn remove_waiter(&self, of: WaitsFor, key: WaiterKey) -> Option<std::task::Waker> {
        match of {
            WaitsFor::Connection(token) => self.with_conn(token, |conn| conn.waiters.remove(key)).flatten(),
            WaitsFor::Datagrams(token) => self.udp.remove_waiter(token, false, key),
            WaitsFor::DatagramRoom(token) => self.udp.remove_waiter(token, true, key),
        }
    }

    pub(crate) fn set_protocol_timer(&self, token: Token, delay: Option<Duration>) {
        self.with_conn(token, |conn| {
            if let Some(key) = conn.protocol_timer.take() {
                self.cancel_timer(key);
            }
            conn.protocol_timer = delay.map(|delay| self.add_timer(delay, TimerAction::Protocol(token)));
        });
    }

    pub(crate) fn check_deadlines(&self, token: Token) {
        self.with_conn(token, |conn| {
            conn.deadline_timer = None;
            if conn.state.is_closed() {
                return;
            }
            let observed = Observed {
                now: self.now_ms(),
                last_active: conn.last_active,
                queued: conn.out.len(),
                is_paused: !conn.pauses.is_empty(),
                is_draining: !conn.state.is_active(),
            };
            match conn.deadlines.check(&conn.options, observed) {
                Ok(next) => {
                    let timer = |next| self.add_timer(next, TimerAction::Deadlines(token));
                    conn.deadline_timer = next.map(timer);
                }
                Err(reason) => self.close_now(conn, reason),
            }
        });
    }

    pub(crate) fn shutdown_write(&self, token: Token) {
        self.with_conn(token, |conn| match &mut conn.state {
            State::Connecting { finish_write } => *finish_write = true,
            State::Open { write: write @ WriteState::Open, .. } => {
                *write = WriteState::Finishing;
                if conn.out.is_empty() {
                    finish_write(conn, &self.driver.borrow());
                }
            }
            _ => {}
        });
    }

    pub(crate) fn begin_close(&self, token: Token, reason: CloseReason) {
        self.with_conn(token, |conn| match conn.state {
            State::Connecting { .. } => self.close_now(conn, reason),
            State::Open { read, .. } if conn.out.is_empty() => {
                self.enter_closed(conn, reason, read == ReadState::Open);
            }
            State::Open { read, .. } => {
                let read_ended = read != ReadState::Open;
                self.stop_receiving(conn);
                let timer = self.add_timer(conn.options.close_timeout, TimerAction::CloseTimeout(token));
                conn.last_active = self.now_ms();
                conn.state = State::Draining { reason, timer, read_ended };
            }
            State::Draining { .. } | State::Closed { .. } => {}
        });
    }

    /// The peer of a draining connection has had its time; it gets more as long as it takes bytes.
    pub(crate) fn close_timed_out(&self, token: Token) {
        self.with_conn(token, |conn| {
            let State::Draining { timer, .. } = &mut conn.state else { return };
            let timeout = conn.options.close_timeout;
            let idle = Duration::from_millis(self.now_ms() - conn.last_active);
            if idle < timeout {
                *timer = self.add_timer(timeout - idle, TimerAction::CloseTimeout(token));
                return;
            }
            let reason = CloseReason::CloseTimeout { unsent: conn.out.len(), timeout };
            self.enter_closed(conn, reason, false);
        });
    }

    pub(crate) fn abort(&self, token: Token, reason: CloseReason) {
        self.with_conn(token, |conn| self.close_now(conn, reason));
    }

    /// Ends a connection without waiting for its queue. The first reason given stands, unless it was that of a close
    /// that promised to send what is queued and is now cut short.
    pub(crate) fn close_now(&self, conn: &mut Conn, reason: CloseReason) {
        match &mut conn.state {
            State::Closed { lingers, .. } => *lingers = false,
            _ => self.enter_closed(conn, reason, false),
        }
    }

    /// All that a draining connection had to send is sent.
    pub(crate) fn finish_draining(&self, conn: &mut Conn) {
        if let State::Draining { reason, read_ended, .. } = &mut conn.state {
            let (reason, lingers) = (std::mem::replace(reason, CloseReason::Local), !*read_ended);
            self.enter_closed(conn, reason, lingers);
        }
    }

    fn enter_closed(&self, conn: &mut Conn, reason: CloseReason, lingers: bool) {
        if let State::Draining { timer, .. } = conn.state {
            self.cancel_timer(timer);
        }
        conn.state = State::Closed { reason, lingers };
        self.quota.stop_for(conn.token);
        self.closed.borrow_mut().push(conn.token);
    }

    /// Takes the connections that are closed out of their table. No handler is running now, so each can be told.
    pub(crate) fn reap_closed(self: &Rc<Self>) {
        while let Some(token) = { self.closed.borrow_mut().pop() } {
            let Some(mut conn) = self.conns.borrow_mut().remove(token) else { continue };
            let State::Closed { reason, lingers } = conn.state else { continue };
            if !(lingers && self.begin_linger(token)) {
                drop(self.driver.borrow_mut().close(token));
            }
            for key in [conn.deadline_timer, conn.protocol_timer].into_iter().flatten() {
                self.cancel_timer(key);
            }
            Counters::add(&self.counters.closed, 1);
            self.ending.set(Some((token, conn.out.len())));
            conn.out.clear(&mut self.pool.borrow_mut());
            conn.waiters.take_into(&mut self.woken.borrow_mut());
            if let Some(mut protocol) = conn.protocol.take() {
                let connection = Connection { core: self.clone(), token, carried: None };
                self.guard(|| {
                    protocol.on_closed(&connection, &reason);
                    drop(protocol);
                });
            }
        }
    }

    /// Bytes that the connection did not send, while its end is told.
    pub(crate) fn unsent_at_end(&self, token: Token) -> usize {
        self.ending.get().filter(|(ending, _)| *ending == token).map_or(0, |(_, unsent)| unsent)
    }
}

/// Tells the peer that nothing more follows.
pub(super) fn finish_write(conn: &mut Conn, driver: &Driver) {
    if let State::Open { write: write @ WriteState::Finishing, .. } = &mut conn.state {
        *write = WriteState::Finished;
        if let Some(socket) = driver.socket(conn.token) {
            // It fails only if the connection is gone, which the receiving side reports.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
    }
}
