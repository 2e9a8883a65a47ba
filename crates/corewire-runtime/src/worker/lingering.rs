//! Sockets of connections that were closed on this side while the peer may still be sending.
//!
//! Closing a socket with bytes unread, or that more bytes reach, makes the kernel reset the connection, and the peer
//! may lose the last that was sent to it. So after an orderly close the socket says that nothing more follows, and
//! what still comes is thrown away until the peer is through.

use std::cell::RefCell;
use std::collections::HashMap;
use std::net::Shutdown;
use std::time::Duration;

use corewire_driver::Token;

use super::{Core, TimerAction};
use crate::timer_wheel::TimerKey;

/// How long a peer may take to finish; then it meets a reset.
const LINGER_MAX: Duration = Duration::from_secs(1);

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

    pub(super) fn has_lingering(&self) -> bool {
        !self.lingering.sockets.borrow().is_empty()
    }

    pub(super) fn end_all_lingers(&self) {
        let left: Vec<_> = self.lingering.sockets.borrow().keys().copied().collect();
        left.into_iter().for_each(|token| self.end_linger(token));
    }
}
