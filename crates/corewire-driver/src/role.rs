//! What a socket is to a driver, whichever backend watches it.

use crate::event::{Event, Token};
use crate::net;
use crate::socket::Socket;

/// What a socket is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Listener,
    /// A connect that has begun; a stream when it is done.
    Connecting,
    Stream,
    Datagram,
    /// A descriptor of the user's own, of which only readiness is told.
    Watched,
}

/// Whether a socket receives (a listener: accepts).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Receiving {
    On,
    /// The owner wants nothing now. A pending edge: something came meanwhile.
    Paused {
        pending_edge: bool,
    },
    /// A listener that could not accept, until it is resumed.
    AcceptBackoff,
    /// The end, or the error that ended it, was told: whatever the kernel says later would tell it again.
    Ended,
}

impl Receiving {
    pub(crate) fn pause(&mut self) {
        match self {
            Self::On => *self = Self::Paused { pending_edge: false },
            // When it is resumed it tries again.
            Self::AcceptBackoff => *self = Self::Paused { pending_edge: true },
            Self::Paused { .. } | Self::Ended => {}
        }
    }

    /// The pending edge, if it was paused.
    pub(crate) fn resume(&mut self) -> Option<bool> {
        let Self::Paused { pending_edge } = *self else { return None };
        *self = Self::On;
        Some(pending_edge)
    }

    /// Ends the backoff of a listener; true if it accepts again.
    pub(crate) fn resume_accept(&mut self) -> bool {
        match self {
            Self::AcceptBackoff => *self = Self::On,
            Self::Paused { pending_edge } => *pending_edge = true,
            Self::On | Self::Ended => {}
        }
        *self == Self::On
    }

    pub(crate) const fn is_paused(self) -> bool {
        matches!(self, Self::Paused { .. })
    }

    /// The peer of a stream has hung up. While it is paused nobody receives and finds that: tells it here if no bytes
    /// are left before it; else it is found behind them.
    pub(crate) fn hang_up_in_pause(&mut self, token: Token, socket: &Socket) -> Option<Event> {
        let event = match net::is_at_end(socket) {
            Ok(true) => Event::ReadClosed { token },
            Ok(false) => {
                self.note_edge();
                return None;
            }
            Err(error) => Event::Failed { token, error },
        };
        *self = Self::Ended;
        Some(event)
    }

    /// Something came. True if it may be received now; if it is paused, that is remembered.
    pub(crate) fn note_edge(&mut self) -> bool {
        if let Self::Paused { pending_edge } = self {
            *pending_edge = true;
        }
        *self == Self::On
    }
}
