//! How a connection comes to its end while calls are in flight.

use std::cell::Cell;
use std::time::Duration;

use corewire_runtime::{CloseReason, Connection};

use super::connection::{ServerConnection, millis_up};
use crate::status::Status;

/// How long the calls of a client that has closed its sending side may go on, unless it is told otherwise.
pub(super) const HALF_CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Time between pings to a client that can be gone without being heard of.
const PROBE_MS: u64 = 500;

/// Whether a connection is to end, and what is watched meanwhile.
pub(super) struct Ending {
    /// Ends once no call is left.
    is_draining: Cell<bool>,
    /// The client sends nothing more.
    is_half_closed: Cell<bool>,
    /// When what is left of a half-closed connection is cut, by the worker's clock.
    cut_at: Cell<u64>,
    /// When to see whether the client still is there; `u64::MAX`: it would be heard of.
    probe_at: Cell<u64>,
}

impl Ending {
    pub(super) const fn new() -> Self {
        Self {
            is_draining: Cell::new(false),
            is_half_closed: Cell::new(false),
            cut_at: Cell::new(u64::MAX),
            probe_at: Cell::new(u64::MAX),
        }
    }

    #[inline]
    pub(super) const fn is_half_closed(&self) -> bool {
        self.is_half_closed.get()
    }
}

impl ServerConnection {
    /// No more calls: ends when none is left.
    pub(super) fn drain(&self) {
        self.ending.is_draining.set(true);
        self.close_if_done();
    }

    /// Closes a connection that is to end when no call is left.
    #[inline]
    pub(super) fn close_if_done(&self) {
        let Ending { is_draining, is_half_closed, .. } = &self.ending;
        if is_draining.get() || is_half_closed.get() {
            self.close_if_idle();
        }
    }

    #[cold]
    fn close_if_idle(&self) {
        let is_idle = self.link.with(|state| state.machine.is_idle());
        // What a client sent before it closed its side is still to be read.
        let is_read = self.ending.is_draining.get() || !self.link.is_stopped();
        if is_idle
            && is_read
            && let Some(connection) = self.link.connection()
        {
            let is_draining = self.ending.is_draining.get();
            let reason = if is_draining { CloseReason::Shutdown } else { CloseReason::PeerClosed };
            self.link.flush();
            connection.close_with(reason);
        }
    }

    /// The client has closed its sending side. It may still read: what it asked is answered.
    pub(super) fn on_half_closed(&self, connection: &Connection) {
        if self.ending.is_half_closed.replace(true) {
            return;
        }
        let now = connection.now_ms();
        self.ending.cut_at.set(now.saturating_add(millis_up(self.plan.half_close_timeout)));
        self.ending.probe_at.set(now);
        self.on_read_stopped(connection, self.link.is_stopped());
        self.close_if_done();
        let next = self.look(connection);
        self.link.with(|state| state.arm(next));
    }

    /// After a read that stopped early, or the last one of all.
    #[cold]
    pub(super) fn on_read_stopped(&self, connection: &Connection, is_stopped: bool) {
        if !is_stopped {
            let why = "the client closed its side before the end of its requests";
            return self.link.end_receiving(&Status::connection_lost(why));
        }
        if self.ending.probe_at.get() == u64::MAX {
            let at = connection.now_ms().saturating_add(PROBE_MS);
            self.ending.probe_at.set(at);
            self.link.with(|state| state.arm(at));
        }
    }

    /// Sees whether a client that is not read from is still there, and cuts a half-closed one that takes too long. Gives
    /// the time of the next look.
    ///
    /// A client that is gone and one that has closed its sending side look alike until something is sent to them: the
    /// kernel of the one answers with a reset. Version 1 has nothing that could be sent.
    pub(super) fn look(&self, connection: &Connection) -> u64 {
        let Ending { is_half_closed, cut_at, probe_at, .. } = &self.ending;
        let now = connection.now_ms();
        if now >= cut_at.get() {
            connection.abort(CloseReason::PeerClosed);
            return u64::MAX;
        }
        if !is_half_closed.get() && !self.link.is_stopped() {
            probe_at.set(u64::MAX);
        }
        if now >= probe_at.get() {
            // Bytes that wait already are a probe.
            let is_possible =
                connection.queued() > 0 || self.link.with(|state| state.machine.ping([0; 8], &mut state.out));
            probe_at.set(if is_possible { now.saturating_add(PROBE_MS) } else { u64::MAX });
        }
        cut_at.get().min(probe_at.get())
    }
}
