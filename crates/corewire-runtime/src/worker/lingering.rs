//! Sockets of connections that were closed on this side while the peer may still be sending.
//!
//! Closing a socket with bytes unread, or that more bytes reach, makes the kernel reset the connection, and the peer
//! may lose the last that was sent to it. So after an orderly close the socket says that nothing more follows, and
//! what still comes is thrown away until the peer is through.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Shutdown;
use std::time::Duration;

use corewire_driver::{Event, Token};

use super::{Core, TimerAction};
use crate::conn::{CloseReason, Conn};
use crate::timer_wheel::TimerKey;

/// How long a peer may take to finish; then it meets a reset.
const LINGER_MAX: Duration = Duration::from_secs(1);

/// The same when the worker itself ends.
const SHUTDOWN_LINGER_MAX: Duration = Duration::from_millis(250);

/// How long a worker that ends waits for peers that take nothing of what is queued for them.
const SHUTDOWN_STALL_MAX: Duration = Duration::from_secs(1);

/// How long it waits at the most.
const SHUTDOWN_SEND_MAX: Duration = Duration::from_secs(10);

/// Sockets of one worker that linger at the same time; beyond this they are closed at once.
const LINGERING_MAX: usize = 1024;

/// Sockets whose connection is over, until their peer is through.
#[derive(Default)]
pub(crate) struct Lingering {
    sockets: RefCell<HashMap<Token, TimerKey>>,
}

impl Core {
    /// The connection of a socket is over.
    pub(crate) fn release_socket(&self, token: Token, lingers: bool) {
        if !(lingers && self.begin_linger(token)) {
            drop(self.driver.borrow_mut().close(token));
        }
    }

    /// Keeps the socket until the peer is through; `false` if it is to be closed at once.
    fn begin_linger(&self, token: Token) -> bool {
        let mut lingering = self.lingering.sockets.borrow_mut();
        if lingering.len() >= LINGERING_MAX {
            return false;
        }
        let mut driver = self.driver.borrow_mut();
        let told = driver.socket(token).is_some_and(|socket| socket.shutdown(Shutdown::Write).is_ok());
        if told {
            driver.resume_receive(token);
            lingering.insert(token, self.timers.add(LINGER_MAX, TimerAction::Linger(token)));
        }
        told
    }

    /// The peer is through, the connection is lost, or the time is over.
    pub(crate) fn end_linger(&self, token: Token) {
        let Some(timer) = self.lingering.sockets.borrow_mut().remove(&token) else { return };
        self.timers.cancel(timer);
        drop(self.driver.borrow_mut().close(token));
    }

    /// The worker ends: what was accepted for sending leaves first, as long as the peers take it.
    pub(crate) fn finish_sending(&self) {
        let has_unsent = |conn: &&Conn| {
            let owes = self.queued_on(conn) > 0 || conn.transport.owes_goodbye();
            conn.transport.own_socket().is_some() && owes && !conn.state.is_connecting()
        };
        let unsent: Vec<_> =
            self.conns.table.borrow().iter().filter(has_unsent).map(|conn| conn.id).collect();
        unsent.into_iter().for_each(|id| self.begin_close(id, CloseReason::Shutdown));
        let is_awaited = |conn: &Conn| conn.transport.own_socket().is_some() && conn.is_draining();
        let mut now = corewire_driver::clock::now();
        let (limit, mut until) = (now + SHUTDOWN_SEND_MAX, now + SHUTDOWN_STALL_MAX);
        let mut sent = self.counters.sent_bytes.get();
        while self.conns.table.borrow().iter().any(is_awaited) && now < until.min(limit) {
            if self.driver.borrow_mut().turn(Some(Duration::from_millis(5))).is_err() {
                return;
            }
            while let Some(event) = { self.driver.borrow_mut().next_event() } {
                match event {
                    Event::Writable { token } => self.socket_writable(token),
                    Event::Failed { token, error } => self.failed(token, error),
                    Event::ReadClosed { token } => {
                        self.conns.with_socket(token, |conn| conn.state.note_read_ended());
                    }
                    _ => {}
                }
            }
            now = corewire_driver::clock::now();
            if self.counters.sent_bytes.get() > sent {
                (sent, until) = (self.counters.sent_bytes.get(), now + SHUTDOWN_STALL_MAX);
            }
        }
    }

    /// The worker ends: gives the peers a last moment to take what was sent to them, then closes what is left.
    pub(crate) fn finish_lingers(&self) {
        let until = corewire_driver::clock::now() + SHUTDOWN_LINGER_MAX;
        while !self.lingering.sockets.borrow().is_empty() && corewire_driver::clock::now() < until {
            if self.driver.borrow_mut().turn(Some(Duration::from_millis(5))).is_err() {
                break;
            }
            while let Some(event) = { self.driver.borrow_mut().next_event() } {
                if let Event::ReadClosed { token } | Event::Failed { token, .. } = event {
                    self.end_linger(token);
                }
            }
        }
        let left: Vec<_> = self.lingering.sockets.borrow().keys().copied().collect();
        left.into_iter().for_each(|token| self.end_linger(token));
    }
}
