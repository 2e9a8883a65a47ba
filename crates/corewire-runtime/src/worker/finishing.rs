//! The end of a worker: what was accepted for sending leaves first, as long as the peers take it.

use std::rc::Rc;
use std::time::{Duration, Instant};

use corewire_driver::{Event, Token, clock};

use super::{Core, TimerAction};
use crate::conn::{CloseReason, Conn, ConnId};

/// How long a worker that ends waits for peers that take nothing of what is queued for them.
const STALL_MAX: Duration = Duration::from_secs(1);

/// How long it waits at the most.
const SEND_MAX: Duration = Duration::from_secs(10);

/// How long it waits for the ends of conversations, once all was sent, and for those of sockets that linger.
const LINGER_MAX: Duration = Duration::from_millis(250);

/// How long it waits for one event.
const TURN_MAX: Duration = Duration::from_millis(5);

/// Whether a worker goes on.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Life {
    Running,
    /// It ends, at this time at the latest.
    Ending {
        until: Option<Instant>,
    },
}

impl Life {
    pub(crate) const fn is_ending(self) -> bool {
        matches!(self, Self::Ending { .. })
    }

    /// The end of something that may take as long as this.
    fn limit(self, longest: Duration) -> Instant {
        let limit = clock::now() + longest;
        match self {
            Self::Ending { until: Some(until) } => until.min(limit),
            _ => limit,
        }
    }
}

impl Core {
    /// Closes the connections that have something to send, and lets it leave. No task and no handler runs meanwhile.
    pub(crate) fn finish_sending(self: &Rc<Self>) {
        let unsent: Vec<_> = {
            let conns = self.conns.table.borrow();
            let has_unsent = |conn: &&Conn| {
                !conn.state.is_connecting() && (Self::unsent_on(conn) > 0 || conn.transport.owes_goodbye())
            };
            conns.iter().filter(has_unsent).map(|conn| conn.id).collect()
        };
        unsent.iter().for_each(|id| self.begin_close(*id, CloseReason::Shutdown));
        // What waited for the next tick.
        self.flush_dirty();
        self.flush_udp();
        let (limit, mut least, mut until) = (self.life.get().limit(SEND_MAX), usize::MAX, clock::now());
        while let Some(left) = self.left_to_send(&unsent) {
            let now = clock::now();
            if left < least {
                (least, until) = (left, now + if left > 0 { STALL_MAX } else { LINGER_MAX });
            }
            if now >= until.min(limit) || !self.turn_to_send(&unsent) {
                return;
            }
        }
    }

    /// What was accepted for a connection and is not with its peer, or with the kernel: 0 if that is all. Not the queue of
    /// a datagram socket, which many share.
    fn unsent_on(conn: &Conn) -> usize {
        conn.out.len() + conn.transport.unsent() + conn.transport.unacknowledged()
    }

    /// What is still awaited; `None`: nothing.
    fn left_to_send(&self, closing: &[ConnId]) -> Option<usize> {
        let draining =
            |id: &ConnId| self.conns.with(*id, |conn| conn.is_draining().then(|| Self::unsent_on(conn)));
        let of_conns = closing.iter().filter_map(draining).flatten().reduce(|one, other| one + other);
        match self.udp.queued_on_all() {
            0 => of_conns,
            queued => Some(of_conns.unwrap_or(0) + queued),
        }
    }

    /// Turns the driver once for those that close; `false` if it cannot.
    fn turn_to_send(self: &Rc<Self>, closing: &[ConnId]) -> bool {
        let wait = self.timers.until_next().map_or(TURN_MAX, |timer| timer.min(TURN_MAX));
        if self.driver.borrow_mut().turn(Some(wait)).is_err() {
            return false;
        }
        self.timers.read_clock();
        while let Some(event) = { self.driver.borrow_mut().next_event() } {
            match event {
                Event::Writable { token } => self.socket_writable(token),
                Event::DatagramWritable { token } => self.udp_writable(token),
                // Acknowledgements.
                Event::DatagramReadable { token } if self.is_carrying(token, closing) => {
                    self.udp_readable(token)
                }
                Event::Failed { token, error } => self.failed(token, error),
                Event::ReadClosed { token } => {
                    self.conns.with_socket(token, |conn| conn.state.note_read_ended());
                }
                _ => {}
            }
        }
        while let Some(action) = { self.timers.expire() } {
            match action {
                TimerAction::Udp(socket) if self.is_carrying(socket, closing) => self.udp_timer(socket),
                // Of what ends now.
                other => self.guard(|| drop(other)),
            }
        }
        self.flush_udp();
        true
    }

    /// A conversation that closes is on this socket.
    fn is_carrying(&self, socket: Token, closing: &[ConnId]) -> bool {
        let carries =
            |conn: &mut Conn| conn.transport.own_socket().is_none() && conn.transport.socket() == socket;
        closing.iter().any(|id| self.conns.with(*id, carries) == Some(true))
    }

    /// Gives the peers a last moment to take what was sent to them, then closes what is left.
    pub(crate) fn finish_lingers(&self) {
        let until = self.life.get().limit(LINGER_MAX);
        while self.has_lingering() && clock::now() < until {
            if self.driver.borrow_mut().turn(Some(TURN_MAX)).is_err() {
                break;
            }
            while let Some(event) = { self.driver.borrow_mut().next_event() } {
                if let Event::ReadClosed { token } | Event::Failed { token, .. } = event {
                    self.end_linger(token);
                }
            }
        }
        self.end_all_lingers();
    }
}
