//! The end of a conversation, which KCP itself does not have.
//!
//! Each end, once all of its data is acknowledged, sends [`fin::END`] until the peer answers
//! [`fin::ACKNOWLEDGE`], or a few times if the peer is an older KCP that never does.

use super::control::Kcp;
use super::error::CloseReason;
use super::wire::{Command, Header, distance, fin};

/// Where a conversation is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Sends and receives.
    Open,
    /// [`close`](Kcp::close) was called: sends what is queued, still receives.
    Closing,
    /// Over. What arrived before can still be read.
    Closed(CloseReason),
}

#[derive(Debug, Default)]
pub(super) struct Ending {
    phase: Phase,
    /// The number after the peer's last segment, once it has said so.
    remote_end: Option<u32>,
    /// The peer's end waits for an answer.
    pub(super) owes_acknowledgement: bool,
    /// A reset waits to be sent.
    pub(super) owes_reset: bool,
    is_acknowledged: bool,
}

#[derive(Debug, Default)]
enum Phase {
    #[default]
    Open,
    /// Waiting for the last data to be acknowledged.
    Draining {
        since: u64,
    },
    /// Waiting for the peer's answer and for its own end.
    Finishing {
        attempts: u32,
        send_at: u64,
    },
    Closed(CloseReason),
}

impl Ending {
    #[inline]
    pub(super) const fn is_open(&self) -> bool {
        matches!(self.phase, Phase::Open)
    }

    #[inline]
    pub(super) const fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed(_))
    }

    #[inline]
    pub(super) fn is_past_end(&self, number: u32) -> bool {
        self.remote_end.is_some_and(|end| distance(number, end) >= 0)
    }
}

impl Kcp {
    /// Where the conversation is in its life.
    pub const fn state(&self) -> State {
        match self.ending.phase {
            Phase::Open => State::Open,
            Phase::Draining { .. } | Phase::Finishing { .. } => State::Closing,
            Phase::Closed(reason) => State::Closed(reason),
        }
    }

    /// The peer has ended its side and everything it sent was read: nothing will come any more.
    pub fn is_at_end(&self) -> bool {
        let is_drained = self.incoming.unread() == 0;
        is_drained && (self.ending.is_closed() || self.ending.remote_end == Some(self.incoming.next()))
    }

    /// Ends the own side: nothing more can be sent, what is queued still goes out, and what the peer sends can
    /// still be read.
    ///
    /// The conversation is closed when the peer has taken everything and has ended its side too; when it has
    /// taken everything and, being an older KCP, does not answer the end; or when it has acknowledged nothing for the time to
    /// linger ([`Config::linger_ms`](super::Config::linger_ms)). Keep calling [`poll_transmit`](Self::poll_transmit) until
    /// then. A peer that has answered the end may take its time with its own; to wait no longer, [`abort`](Self::abort).
    pub fn close(&mut self, now: u64) {
        if self.ending.is_open() {
            self.ending.phase = Phase::Draining { since: now };
        }
    }

    /// This side was closed, and the peer has everything that was sent.
    pub const fn is_delivered(&self) -> bool {
        matches!(self.ending.phase, Phase::Finishing { .. }) && self.ending.is_acknowledged
    }

    /// When the time to linger is over, if nothing is acknowledged before.
    fn linger_until(&self, since: u64) -> u64 {
        since.max(self.remote.acknowledged_at.unwrap_or(0)) + u64::from(self.config.linger_ms)
    }

    /// Ends the conversation at once. What was not acknowledged is lost; the peer is told so, if it understands,
    /// by the next datagram.
    pub fn abort(&mut self) {
        if !self.ending.is_closed() {
            self.close_now(CloseReason::Aborted);
            self.ending.owes_reset = true;
        }
    }

    pub(super) fn close_now(&mut self, reason: CloseReason) {
        self.ending.phase = Phase::Closed(reason);
        self.outgoing.clear();
        self.congestion.clear();
        self.acks.clear();
        self.resending = Default::default();
        self.cookie = None;
        self.window_news.ask = false;
        self.window_news.tell = false;
        self.window_news.probe = None;
    }

    /// Does what the passing of time alone brings about.
    pub(super) fn pass_time(&mut self, now: u64) {
        if let Phase::Draining { since } = self.ending.phase {
            if self.outgoing.len() == 0 {
                self.ending.phase = Phase::Finishing { attempts: 0, send_at: now };
            } else if now >= self.linger_until(since) {
                self.close_now(CloseReason::LingerExpired);
                self.ending.owes_reset = true;
            }
        }
        let Phase::Finishing { attempts, send_at } = self.ending.phase else { return };
        let both_ended = self.ending.is_acknowledged && self.ending.remote_end == Some(self.incoming.next());
        let gave_up = !self.ending.is_acknowledged && attempts >= self.config.fin_attempts && now >= send_at;
        if both_ended {
            self.close_now(CloseReason::Finished);
        } else if gave_up {
            self.close_now(CloseReason::Unanswered);
        }
    }

    /// When [`pass_time`](Self::pass_time) or an end to be sent needs the next call.
    pub(super) fn ending_due_at(&self, now: u64) -> Option<u64> {
        if self.ending.owes_acknowledgement || self.ending.owes_reset {
            return Some(now);
        }
        match self.ending.phase {
            Phase::Open | Phase::Closed(_) => None,
            Phase::Draining { .. } if self.outgoing.len() == 0 => Some(now),
            Phase::Draining { since } => Some(self.linger_until(since)),
            Phase::Finishing { send_at, .. } => match self.ending.is_acknowledged {
                true => (self.ending.remote_end == Some(self.incoming.next())).then_some(now),
                false => Some(send_at),
            },
        }
    }

    /// The end segment that is due now, if one is.
    pub(super) fn take_due_end(&mut self, now: u64) -> Option<Header> {
        let mut flags = 0;
        if std::mem::take(&mut self.ending.owes_acknowledgement) {
            flags |= fin::ACKNOWLEDGE;
        }
        if std::mem::take(&mut self.ending.owes_reset) {
            flags |= fin::RESET;
        }
        if let Phase::Finishing { attempts, send_at, .. } = &mut self.ending.phase
            && !self.ending.is_acknowledged
            && (now >= *send_at || flags != 0)
        {
            flags |= fin::END;
            *attempts += 1;
            *send_at = now + u64::from(self.round_trip.rto_ms()) * u64::from(*attempts);
        }
        (flags != 0).then(|| Header {
            conversation: self.conversation,
            command: Command::Fin,
            fragment: flags,
            window: self.incoming.free_window(),
            timestamp: self.outgoing.next(),
            number: fin::NUMBER,
            unacknowledged: self.incoming.next(),
            len: 0,
        })
    }

    /// Takes the peer's end segment.
    pub(super) fn take_end(&mut self, header: &Header) {
        let ahead = header.timestamp.wrapping_sub(self.incoming.next());
        let is_plausible = ahead <= u32::from(self.config.receive_window_max());
        if header.fragment & fin::RESET != 0 {
            if is_plausible && !self.ending.is_closed() {
                self.close_now(CloseReason::Reset);
            }
            return;
        }
        if header.fragment & fin::ACKNOWLEDGE != 0 && matches!(self.ending.phase, Phase::Finishing { .. }) {
            self.ending.is_acknowledged = true;
            self.remote.has_answered = true;
        }
        if header.fragment & fin::END != 0 && is_plausible {
            self.ending.remote_end = Some(header.timestamp);
            self.ending.owes_acknowledgement = true;
        }
    }
}
