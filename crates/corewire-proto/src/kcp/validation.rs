//! Whether the peer receives what is sent to the address that it gives.
//!
//! KCP has no handshake, so anybody can begin a conversation under any address. Until the peer has echoed a number that
//! only somebody who receives there can know, no more than three times the bytes received are sent, as QUIC does
//! (RFC 9000, 8.1). Every KCP echoes the time-stamp of a data segment in its acknowledgement, also of a segment before
//! the first one, which it takes for a repetition and drops: that is the challenge, and its time-stamp is the token.

use super::control::Kcp;
use super::wire::{Command, HEADER_LEN, Header, challenge};

/// Bytes sent for each byte received, at the most.
const AMPLIFICATION: usize = 3;
/// What is held for a peer that is not validated, in bytes, buffers for its data included. A first flight of 128 segments
/// fits.
pub(super) const HELD_MAX: usize = 256 * 1024;

#[derive(Debug)]
pub(super) enum Validation {
    /// Nobody asked for it.
    Trusted,
    Pending {
        token: u32,
        /// Bytes that may be sent.
        credit: usize,
        owes_challenge: bool,
        /// Something is due that the credit does not suffice for.
        is_blocked: bool,
    },
    /// Late echoes of the token say nothing about the round trip.
    Validated { token: u32 },
}

impl Kcp {
    /// The peer receives what is sent to its address: it has echoed a number, or nobody asked for that
    /// (conversations outside of [`Sessions`](super::Sessions), and those begun here).
    pub const fn is_validated(&self) -> bool {
        !matches!(self.validation, Validation::Pending { .. })
    }

    /// What segment `number` with `len` bytes of data would have the conversation hold is not too much for its peer. What is
    /// refused will be sent again.
    #[inline]
    pub(super) fn may_hold(&self, number: u32, len: usize) -> bool {
        self.is_validated() || self.incoming.held_with(number, len) <= HELD_MAX
    }

    /// Sends little until the peer has echoed `token`.
    pub(super) const fn validate_by(&mut self, token: u32) {
        self.validation = Validation::Pending { token, credit: 0, owes_challenge: true, is_blocked: false };
    }

    /// Asks a peer again that has not echoed its token yet.
    pub(super) const fn challenge_again(&mut self) {
        if let Validation::Pending { owes_challenge, .. } = &mut self.validation {
            *owes_challenge = true;
        }
    }

    pub(super) const fn owes_challenge(&self) -> bool {
        matches!(self.validation, Validation::Pending { owes_challenge: true, .. })
    }

    pub(super) const fn is_blocked(&self) -> bool {
        matches!(self.validation, Validation::Pending { is_blocked: true, .. })
    }

    pub(super) const fn set_blocked(&mut self, blocked: bool) {
        if let Validation::Pending { is_blocked, .. } = &mut self.validation {
            *is_blocked = blocked;
        }
    }

    #[inline]
    pub(super) fn earn_credit(&mut self, received: usize) {
        if let Validation::Pending { credit, is_blocked, .. } = &mut self.validation {
            *credit = credit.saturating_add(received.saturating_mul(AMPLIFICATION));
            *is_blocked = false;
        }
    }

    #[inline]
    pub(super) fn spend_credit(&mut self, sent: usize) {
        if let Validation::Pending { credit, .. } = &mut self.validation {
            *credit = credit.saturating_sub(sent);
        }
    }

    /// Bytes that may be sent now.
    #[inline]
    pub(super) const fn credit(&self) -> usize {
        match self.validation {
            Validation::Pending { credit, .. } => credit,
            Validation::Trusted | Validation::Validated { .. } => usize::MAX,
        }
    }

    /// The time-stamp of a data segment sent now.
    #[inline]
    pub(super) const fn data_timestamp(&self, now: u64) -> u32 {
        match self.validation {
            // Any acknowledgement validates then: kcp-go leaves out all but the last of those that it has.
            Validation::Pending { token, .. } => token,
            Validation::Trusted | Validation::Validated { .. } => now as u32,
        }
    }

    /// Takes the time-stamp that an acknowledgement echoes; true when it was the token, and so no time.
    #[inline]
    pub(super) fn take_echo(&mut self, timestamp: u32) -> bool {
        match self.validation {
            Validation::Trusted => false,
            Validation::Pending { token, .. } | Validation::Validated { token } => {
                if timestamp == token {
                    self.validation = Validation::Validated { token };
                }
                timestamp == token
            }
        }
    }

    pub(super) fn write_challenge(&mut self, out: &mut Vec<u8>, end: usize) {
        let window = self.incoming.free_window();
        let unacknowledged = self.incoming.next();
        if let Validation::Pending { token, owes_challenge, .. } = &mut self.validation
            && *owes_challenge
            && out.len() + HEADER_LEN <= end
        {
            *owes_challenge = false;
            let header = Header {
                conversation: self.conversation,
                command: Command::Push,
                fragment: 0,
                window,
                timestamp: *token,
                number: challenge::NUMBER,
                unacknowledged,
                len: 0,
            };
            out.extend_from_slice(&header.to_bytes());
        }
    }

    /// Takes the offer of a cookie: the peer has no room for those that have not shown that they receive it. It is
    /// echoed, and what was sent is sent again.
    pub(super) fn take_cookie(&mut self, now: u64, header: &Header) {
        if header.fragment != challenge::COOKIE_OFFER || self.remote.has_answered || !self.is_validated() {
            return;
        }
        self.cookie = Some((header.timestamp, header.number));
        self.outgoing.time_out_all(now);
        self.resending.look_at(now);
    }

    /// The echo of a cookie, which travels alone.
    pub(super) fn take_due_cookie(&mut self) -> Option<Header> {
        let (timestamp, number) = self.cookie.take()?;
        Some(Header {
            conversation: self.conversation,
            command: Command::Cookie,
            fragment: challenge::COOKIE_ECHO,
            window: self.incoming.free_window(),
            timestamp,
            number,
            unacknowledged: self.incoming.next(),
            len: 0,
        })
    }
}
