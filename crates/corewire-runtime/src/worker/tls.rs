//! Connections over TLS: their handshakes, each in its turn, and what arrives on them.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;

use bytes::Bytes;
use corewire_driver::{Driver, Socket, Token};

use super::{Core, Meter, TimerAction};
use crate::conn::{CloseReason, Conn, ConnId, Connection, ConnectionOptions, State};
use crate::memory::{Charge, MemoryKind};
use crate::panic::guarded;
use crate::protocol::Protocol;
use crate::secured::TlsError;
use crate::stats::Counters;
use crate::transport::Transport;
use crate::transport::tls::{Arrived, ClientTls, Lost, ServerName, ServerTls, Shaken, TlsSocket};

/// One receive during a handshake, in bytes.
const HANDSHAKE_RECEIVE_MAX: usize = 16 * 1024;

/// Handshakes that have something to do. They are slow (a signature takes longer than hundreds of messages), so they are
/// taken after all that has arrived, one by one, while the tick's budget lasts.
#[derive(Default)]
pub(crate) struct Handshakes {
    waiting: RefCell<VecDeque<ConnId>>,
}

impl Handshakes {
    pub(super) fn has_work(&self) -> bool {
        !self.waiting.borrow().is_empty()
    }
}

impl Core {
    pub(crate) fn open_tls(
        self: &Rc<Self>,
        socket: Socket,
        tls: &ServerTls,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> io::Result<Connection> {
        let token = self.driver.borrow_mut().add_stream(socket)?;
        let connection = self.begin_tls(token, TlsSocket::server(token, tls), options, protocol)?;
        self.conns.with(connection.id, |conn| self.begin_handshake_timer(conn));
        Ok(connection)
    }

    pub(crate) fn connect_tls(
        self: &Rc<Self>,
        socket: Socket,
        tls: &ClientTls,
        name: ServerName,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> io::Result<Connection> {
        let token = self.driver.borrow_mut().connect(socket)?;
        self.begin_tls(token, TlsSocket::client(token, tls, name), options, protocol)
    }

    fn begin_tls(
        self: &Rc<Self>,
        token: Token,
        made: Result<TlsSocket, TlsError>,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> io::Result<Connection> {
        let made = made.map_err(|error| {
            drop(self.driver.borrow_mut().close(token));
            io::Error::other(error)
        })?;
        self.driver.borrow_mut().set_receive_max(token, HANDSHAKE_RECEIVE_MAX);
        let id = self.add_conn(Transport::Tls(Box::new(made)), options, protocol, true);
        self.with_tls(id, |conn, core| core.settle_tls(conn));
        Ok(Connection { core: self.clone(), id })
    }

    /// The handshake has its time from now on.
    pub(super) fn begin_handshake_timer(&self, conn: &mut Conn) {
        let id = conn.id;
        if let Transport::Tls(tls) = &mut conn.transport {
            tls.set_timer(|after| self.timers.add(after, TimerAction::Handshake(id)));
        }
    }

    fn with_tls<R>(&self, id: ConnId, look: impl FnOnce(&mut Conn, &Self) -> R) -> Option<R> {
        self.conns.with(id, |conn| look(conn, self))
    }

    fn settle_tls(&self, conn: &mut Conn) {
        let Transport::Tls(tls) = &mut conn.transport else { return };
        let (account, id, options) = (&mut conn.account, conn.id, &conn.options);
        tls.settle(|held| {
            let account = self.memory.account_of(account, id, options);
            Charge::new(account.clone(), MemoryKind::Transport, held)
        });
    }

    /// Has a handshake go on when it is its turn; nothing is received meanwhile.
    pub(super) fn list_handshake(&self, conn: &mut Conn) {
        if let Transport::Tls(tls) = &mut conn.transport
            && tls.enlist()
        {
            self.handshakes.waiting.borrow_mut().push_back(conn.id);
            conn.transport.set_receiving(&mut self.driver.borrow_mut(), false);
        }
    }

    /// Gives handshakes their turns, while the budget lasts; one at least.
    pub(super) fn serve_handshakes(self: &Rc<Self>) {
        if !self.handshakes.has_work() {
            return;
        }
        let mut meter = Meter::new();
        while let Some(id) = { self.handshakes.waiting.borrow_mut().pop_front() } {
            self.shake(id);
            if meter.look() {
                return;
            }
        }
    }

    /// One step of a handshake. Nothing is borrowed while it is taken: a configuration may call code of its owner.
    fn shake(self: &Rc<Self>, id: ConnId) {
        let step = self.conns.with(id, |conn| match &mut conn.transport {
            Transport::Tls(tls) if conn.state.is_connecting() => tls.begin_step(),
            _ => None,
        });
        let Some(Some(mut step)) = step else { return };
        let progress = guarded(|| step.take());
        let established = self.with_tls(id, |conn, core| {
            let Transport::Tls(tls) = &mut conn.transport else { return None };
            let shaken = match progress {
                Ok(progress) => tls.end_step(step, progress),
                Err(message) => {
                    core.note_panic(&message);
                    Err(TlsError::Local(format!("a callback of the configuration panicked: {message}")))
                }
            };
            core.after_step(conn, shaken)
        });
        if let Some(Some(lost)) = established {
            self.established_tls(id, lost);
        }
    }

    fn after_step(&self, conn: &mut Conn, shaken: Result<Shaken, TlsError>) -> Option<Option<Lost>> {
        match shaken {
            Ok(Shaken::Waits) => {
                self.flush_handshake(conn);
                self.settle_tls(conn);
                if !conn.state.is_closed() {
                    let receives = conn.pauses.is_empty();
                    conn.transport.set_receiving(&mut self.driver.borrow_mut(), receives);
                }
                None
            }
            Ok(Shaken::Established(lost)) => {
                self.flush_handshake(conn);
                self.end_handshake_timer(conn);
                self.settle_tls(conn);
                (!conn.state.is_closed()).then_some(lost)
            }
            Ok(Shaken::Lost(Lost::Closed)) => {
                self.fail_tls(conn, TlsError::ClosedInHandshake);
                None
            }
            Ok(Shaken::Lost(Lost::Failed(error))) => {
                self.note_handshake_failure(conn, &error);
                self.close_now(conn, CloseReason::Io(error));
                None
            }
            Err(error) => {
                self.fail_tls(conn, error);
                None
            }
        }
    }

    fn flush_handshake(&self, conn: &mut Conn) {
        let driver = &mut *self.driver.borrow_mut();
        self.flush_conn(conn, driver, &mut self.senders.pool.borrow_mut());
    }

    pub(super) fn end_handshake_timer(&self, conn: &mut Conn) {
        if let Transport::Tls(tls) = &mut conn.transport
            && let Some(timer) = tls.take_timer()
        {
            self.timers.cancel(timer);
        }
    }

    /// The handshake is done: the protocol is called from now on.
    fn established_tls(self: &Rc<Self>, id: ConnId, lost: Option<Lost>) {
        let opened = self.conns.with(id, |conn| {
            let State::Connecting { finish_write } = conn.state else { return false };
            conn.state = State::established(finish_write);
            conn.last_active = self.timers.now_ms();
            let driver = &mut *self.driver.borrow_mut();
            conn.transport.set_receive_max(driver, usize::MAX);
            let receives = conn.pauses.is_empty();
            conn.transport.set_receiving(driver, receives);
            conn.receiving = receives;
            true
        });
        if opened != Some(true) {
            return;
        }
        Counters::add(&self.counters.tls_handshakes, 1);
        self.call(id, |protocol, connection| protocol.on_open(connection));
        let rest = self.conns.with(id, |conn| match &mut conn.transport {
            Transport::Tls(tls) => tls.take_rest(),
            _ => Bytes::new(),
        });
        self.received_tls(id, rest.unwrap_or_default());
        // What was queued, or asked for, before the handshake was done.
        self.writable(id);
        let socket = self.conns.socket_of(id);
        match (lost, socket) {
            (Some(Lost::Closed), Some(socket)) => self.read_closed(socket),
            (Some(Lost::Failed(error)), Some(socket)) => self.failed(socket, error),
            _ => {}
        }
    }

    /// A socket has received encrypted bytes.
    pub(super) fn received_tls(self: &Rc<Self>, id: ConnId, mut data: Bytes) {
        loop {
            let arrived = self.conns.with(id, |conn| {
                let Transport::Tls(tls) = &mut conn.transport else { return Ok(Arrived::Nothing) };
                if tls.is_handshaking() {
                    tls.push(&data);
                    self.list_handshake(conn);
                    return Ok(Arrived::Nothing);
                }
                conn.deadlines.received += data.len();
                let before = data.len();
                let arrived = tls.open(&self.tls, &mut data, self.timers.now_ms());
                conn.deadlines.received -= data.len().min(before);
                arrived
            });
            match arrived {
                Some(Ok(Arrived::Data(piece))) => self.arrived(id, piece),
                Some(Ok(Arrived::End)) => {
                    let due = self.conns.with(id, |conn| {
                        conn.state.note_read_ended();
                        !conn.has_input() && conn.state.take_read_end()
                    });
                    self.tell_read_end(id, due);
                }
                Some(Ok(Arrived::Nothing)) | None => break,
                Some(Err(error)) => {
                    self.conns.with(id, |conn| self.fail_tls(conn, error));
                    return;
                }
            }
        }
        self.conns.with(id, |conn| {
            // Answers to what was received beside data.
            if conn.transport.unsent() > 0 && !conn.state.is_closed() {
                self.flush_handshake(conn);
            }
            self.settle_tls(conn);
        });
    }

    /// A peer has broken TLS, or its end: the connection is over, and the peer is told why.
    pub(super) fn fail_tls(&self, conn: &mut Conn, error: TlsError) {
        if conn.state.is_closed() {
            return;
        }
        if let Transport::Tls(tls) = &mut conn.transport {
            tls.fail(self, &mut self.driver.borrow_mut(), &error);
        }
        if conn.state.is_connecting() {
            self.note_handshake_failure(conn, &error);
        }
        self.close_lingering(conn, CloseReason::Tls(Box::new(error)));
    }

    fn note_handshake_failure(&self, conn: &Conn, error: &dyn std::error::Error) {
        Counters::add(&self.counters.tls_handshake_failures, 1);
        let driver: &Driver = &self.driver.borrow();
        let peer = conn.transport.peer_addr(driver);
        tracing::debug!(?peer, %error, "a TLS handshake has failed");
    }

    /// The socket has ended during its handshake.
    pub(super) fn lost_in_handshake(&self, socket: Token, lost: Lost) -> Option<Lost> {
        let mut lost = Some(lost);
        self.conns.with_socket(socket, |conn| {
            if let Transport::Tls(tls) = &mut conn.transport
                && tls.is_handshaking()
                && let Some(lost) = lost.take()
            {
                tls.note_lost(lost);
                self.list_handshake(conn);
            }
        });
        lost
    }

    pub(super) fn handshake_timed_out(&self, id: ConnId) {
        self.conns.with(id, |conn| {
            let Transport::Tls(tls) = &mut conn.transport else { return };
            tls.take_timer();
            if let Some(timeout) = tls.timed_out() {
                self.fail_tls(conn, TlsError::HandshakeTimeout(timeout));
            }
        });
    }
}
