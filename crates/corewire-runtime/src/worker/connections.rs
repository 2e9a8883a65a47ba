//! The life of connections and listeners: opening, calling their protocol, ending.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::{Socket, Token};

use super::{AcceptFn, Core, TimerAction};
use crate::conn::{CloseReason, Conn, Connection, ConnectionOptions};
use crate::listen::AfterAccept;
use crate::panic::guarded;
use crate::protocol::Protocol;
use crate::stats::Counters;

/// How long a listener rests after it could not accept.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

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
        if let Some(idle) = conn.options.idle_timeout {
            conn.idle_timer = Some(self.add_timer(idle, TimerAction::Idle(token)));
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
    fn call(self: &Rc<Self>, token: Token, call: impl FnOnce(&mut dyn Protocol, &Connection)) {
        if let Some(Some(protocol)) = self.with_conn(token, |conn| conn.protocol.take()) {
            self.call_taken(token, protocol, call);
        }
    }

    /// Calls a protocol that was taken out of its connection, and puts it back.
    #[inline]
    fn call_taken(
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
            self.doom(conn, CloseReason::HandlerPanicked(message));
        }
    }

    pub(crate) fn note_panic(&self, message: &str) {
        Counters::add(&self.counters.panics, 1);
        tracing::error!(worker = self.id().0, "a handler or task panicked: {message}");
    }

    #[inline]
    pub(crate) fn received(self: &Rc<Self>, token: Token, data: Bytes) {
        Counters::add(&self.counters.receives, 1);
        Counters::add(&self.counters.received_bytes, data.len() as u64);
        let taken = self.with_conn(token, |conn| {
            conn.last_active = self.now_ms();
            if conn.closing.is_some() { None } else { conn.protocol.take() }
        });
        if let Some(Some(protocol)) = taken {
            self.call_taken(token, protocol, |protocol, connection| protocol.on_received(connection, data));
        }
    }

    pub(crate) fn read_closed(self: &Rc<Self>, token: Token) {
        let open = self.with_conn(token, |conn| {
            conn.read_ended = true;
            conn.closing.is_none()
        });
        match open {
            Some(true) => self.call(token, |protocol, connection| protocol.on_read_closed(connection)),
            Some(false) => {}
            None => self.end_linger(token),
        }
    }

    pub(crate) fn connected(self: &Rc<Self>, token: Token) {
        let open = self.with_conn(token, |conn| {
            conn.connecting = false;
            conn.last_active = self.now_ms();
            conn.closing.is_none()
        });
        if open == Some(true) {
            Counters::add(&self.counters.connected, 1);
            self.call(token, |protocol, connection| protocol.on_open(connection));
        }
        // What was queued before the connection stood.
        self.writable(token);
    }

    pub(crate) fn failed(&self, token: Token, error: io::Error) {
        if self.with_conn(token, |conn| self.doom(conn, CloseReason::Io(error))).is_none() {
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
            self.with_conn(token, |conn| conn.drained = false);
            self.call(token, |protocol, connection| protocol.on_drained(connection));
        }
        let mut list = self.drained.borrow_mut();
        if list.is_empty() {
            *list = drained;
        }
    }

    pub(crate) fn call_timer(self: &Rc<Self>, token: Token) {
        let open = self.with_conn(token, |conn| {
            conn.protocol_timer = None;
            conn.closing.is_none()
        });
        if open == Some(true) {
            self.call(token, |protocol, connection| protocol.on_timer(connection));
        }
    }

    pub(crate) fn call_shutdown(self: &Rc<Self>, token: Token) {
        if self.with_conn(token, |conn| conn.closing.is_none()) == Some(true) {
            self.call(token, |protocol, connection| protocol.on_shutdown(connection));
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

    pub(crate) fn set_paused(&self, token: Token, change: impl FnOnce(&mut Conn)) {
        let paused = self.with_conn(token, |conn| {
            change(conn);
            conn.paused_by_user || conn.paused_by_backlog
        });
        let mut driver = self.driver.borrow_mut();
        match paused {
            Some(true) => driver.pause_receive(token),
            Some(false) => driver.resume_receive(token),
            None => {}
        }
    }

    pub(crate) fn check_idle(&self, token: Token) {
        self.with_conn(token, |conn| {
            let Some(timeout) = conn.options.idle_timeout else { return };
            if conn.closing.is_some() {
                // The close timeout rules now.
                conn.idle_timer = None;
                return;
            }
            let idle = Duration::from_millis(self.now_ms() - conn.last_active);
            if idle >= timeout {
                conn.idle_timer = None;
                return self.doom(conn, CloseReason::IdleTimeout(timeout));
            }
            conn.idle_timer = Some(self.add_timer(timeout - idle, TimerAction::Idle(token)));
        });
    }

    pub(crate) fn shutdown_write(&self, token: Token) {
        self.with_conn(token, |conn| {
            if conn.shut_write || conn.closing.is_some() {
                return;
            }
            conn.shut_write = true;
            if conn.out.is_empty() {
                self.with_socket(token, |socket| {
                    // It fails only if the connection is gone, which the receiving side reports.
                    let _ = socket.shutdown(std::net::Shutdown::Write);
                });
            }
        });
    }

    pub(crate) fn begin_close(&self, token: Token, reason: CloseReason) {
        self.with_conn(token, |conn| {
            if conn.closing.is_some() {
                return;
            }
            if conn.connecting {
                return self.doom(conn, reason);
            }
            (conn.closing, conn.orderly) = (Some(reason), true);
            if conn.out.is_empty() {
                return self.list_doomed(conn);
            }
            self.driver.borrow_mut().pause_receive(token);
            let timeout = conn.options.close_timeout;
            conn.close_timer = Some(self.add_timer(timeout, TimerAction::CloseTimeout(token)));
        });
    }

    pub(crate) fn close_timed_out(&self, token: Token) {
        self.with_conn(token, |conn| {
            conn.close_timer = None;
            if conn.doomed {
                return;
            }
            let (unsent, timeout) = (conn.out.len(), conn.options.close_timeout);
            (conn.closing, conn.orderly) = (Some(CloseReason::CloseTimeout { unsent, timeout }), false);
            self.list_doomed(conn);
        });
    }

    pub(crate) fn abort(&self, token: Token, reason: CloseReason) {
        self.with_conn(token, |conn| self.doom(conn, reason));
    }

    /// Ends a connection without waiting for its queue. The first reason given stands, unless it was that of a close
    /// that promised to send what is queued and is now cut short.
    pub(crate) fn doom(&self, conn: &mut Conn, reason: CloseReason) {
        if conn.closing.is_none() || (!conn.doomed && !conn.out.is_empty()) {
            conn.closing = Some(reason);
        }
        conn.orderly = false;
        self.list_doomed(conn);
    }

    pub(crate) fn list_doomed(&self, conn: &mut Conn) {
        if !conn.doomed {
            conn.doomed = true;
            self.doomed.borrow_mut().push(conn.token);
        }
    }

    /// Ends the connections that are to end. No handler is running now, so each can be told.
    pub(crate) fn bury_doomed(self: &Rc<Self>) {
        while let Some(token) = { self.doomed.borrow_mut().pop() } {
            let Some(mut conn) = self.conns.borrow_mut().remove(token) else { continue };
            let lingers = conn.orderly && !conn.read_ended && self.begin_linger(token);
            if !lingers {
                drop(self.driver.borrow_mut().close(token));
            }
            for key in [conn.idle_timer, conn.close_timer, conn.protocol_timer].into_iter().flatten() {
                self.cancel_timer(key);
            }
            Counters::add(&self.counters.closed, 1);
            conn.waiting.drain(..).for_each(std::task::Waker::wake);
            let reason = conn.closing.take().unwrap_or(CloseReason::Local);
            if let Some(mut protocol) = conn.protocol.take() {
                let connection = Connection { core: self.clone(), token, carried: None };
                let told = guarded(|| {
                    protocol.on_closed(&connection, &reason);
                    drop(protocol);
                });
                if let Err(message) = told {
                    self.note_panic(&message);
                }
            }
        }
    }

    pub(crate) fn listen(
        &self,
        socket: Socket,
        accept: impl FnMut(Socket) -> AfterAccept + 'static,
    ) -> io::Result<Token> {
        let token = self.driver.borrow_mut().add_listener(socket)?;
        let accept: AcceptFn = Rc::new(RefCell::new(accept));
        self.listeners.borrow_mut().push((token, accept));
        Ok(token)
    }

    pub(crate) fn close_listener(&self, token: Token) {
        let closed = {
            let mut listeners = self.listeners.borrow_mut();
            let at = listeners.iter().position(|(other, _)| *other == token);
            at.map(|at| listeners.swap_remove(at))
        };
        drop(self.driver.borrow_mut().close(token));
        // Not while the list is held: the closure may own another listener.
        drop(closed);
    }

    pub(crate) fn accepted(&self, listener: Token, socket: Socket) {
        let accept = {
            let listeners = self.listeners.borrow();
            listeners.iter().find(|(token, _)| *token == listener).map(|(_, accept)| accept.clone())
        };
        let Some(accept) = accept else { return };
        Counters::add(&self.counters.accepted, 1);
        match guarded(|| accept.borrow_mut()(socket)) {
            Ok(AfterAccept::Continue) => {}
            Ok(AfterAccept::Pause) => self.driver.borrow_mut().pause_receive(listener),
            Err(message) => self.note_panic(&message),
        }
    }

    pub(crate) fn accept_failed(&self, listener: Token, error: &io::Error) {
        Counters::add(&self.counters.accept_failures, 1);
        tracing::warn!(
            %error,
            "a listener cannot accept and tries again in {ACCEPT_RETRY:?}; if descriptors are short, raise \
             RLIMIT_NOFILE or lower the maximum number of connections"
        );
        self.add_timer(ACCEPT_RETRY, TimerAction::ResumeAccept(listener));
    }
}
