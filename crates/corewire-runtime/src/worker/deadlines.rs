//! Looks at the deadlines of connections.

use std::time::Duration;

use super::{Core, TimerAction};
use crate::conn::{Conn, ConnId, LookPlace, Looks, Observed};

/// Connections looked at before others have their turn, and the budget of the tick is asked.
const LOOKS_IN_A_ROW: usize = 16;

impl Core {
    /// Has a connection looked at after this time, or a little later.
    pub(super) fn look_after(&self, id: ConnId, delay: Duration) -> LookPlace {
        let delay_ms = u64::try_from(delay.as_micros().div_ceil(1000)).unwrap_or(u64::MAX);
        let due_ms = Looks::due_ms(self.timers.now_ms(), delay_ms);
        let start = |round| self.timers.add_at_ms(due_ms, TimerAction::Deadlines(round));
        self.conns.looks.borrow_mut().add(id, due_ms, start)
    }

    /// A connection that was taken out of the table is looked at no more.
    pub(super) fn forget_look(&self, conn: &Conn) {
        let Some(place) = conn.look else { return };
        let removed = self.conns.looks.borrow_mut().remove(place);
        if let Some(moved) = removed.moved {
            self.conns.with(moved, |conn| conn.look = Some(place));
        }
        if let Some(timer) = removed.timer {
            self.timers.cancel(timer);
        }
    }

    /// The time of a round has come.
    pub(super) fn check_deadlines(&self, round: u32) {
        for _ in 0..LOOKS_IN_A_ROW {
            let Some((id, is_last)) = ({ self.conns.looks.borrow_mut().pop(round) }) else { return };
            self.conns.with(id, |conn| self.check_deadlines_of(conn));
            if is_last {
                return;
            }
        }
        let start = |due_ms| self.timers.add_at_ms(due_ms, TimerAction::Deadlines(round));
        self.conns.looks.borrow_mut().restart(round, start);
    }

    fn check_deadlines_of(&self, conn: &mut Conn) {
        conn.look = None;
        if conn.state.is_closed() {
            return;
        }
        let observed = Observed {
            now: self.timers.now_ms(),
            last_active: conn.last_active,
            queued: self.queued_on(conn),
            receives: conn.receiving,
            is_draining: !conn.state.is_active(),
            is_datagram: conn.transport.is_datagram(),
            partial_since: conn.transport.partial_since(),
        };
        match conn.deadlines.check(&conn.options, observed) {
            Ok(next) => conn.look = next.map(|next| self.look_after(conn.id, next)),
            Err(reason) => self.close_now(conn, reason),
        }
    }
}
