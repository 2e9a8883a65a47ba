//! What is told to those who have no session. No answer is longer than what it answers.

use std::collections::VecDeque;

use super::super::wire::{Command, Header, challenge, fin};

/// Answers that may wait; the peer repeats its question.
const ANSWERS_MAX: usize = 1024;
/// Resets of unknown conversations in a second.
const RESETS_MAX: u32 = 256;

#[derive(Debug)]
pub(super) struct Answers<A> {
    queue: VecDeque<(A, Header)>,
    /// The second in which resets are counted, and how many there were.
    resets: (u64, u32),
}

impl<A> Default for Answers<A> {
    fn default() -> Self {
        Self { queue: VecDeque::new(), resets: (0, 0) }
    }
}

impl<A> Answers<A> {
    pub(super) fn take(&mut self) -> Option<(A, Header)> {
        self.queue.pop_front()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Tells the peer of a session that is over; `flags` are of [`fin`].
    pub(super) fn end(&mut self, address: A, header: &Header, flags: u8) {
        let is_end = header.command == Command::Fin;
        self.push(
            address,
            Header {
                command: Command::Fin,
                fragment: flags,
                number: fin::NUMBER,
                timestamp: header.unacknowledged,
                unacknowledged: if is_end { header.timestamp } else { 0 },
                len: 0,
                ..*header
            },
        );
    }

    /// Tells a peer that its conversation is not known here any more.
    pub(super) fn reset(&mut self, now: u64, address: A, header: &Header) {
        let second = now / 1000;
        if self.resets.0 != second {
            self.resets = (second, 0);
        }
        if self.resets.1 < RESETS_MAX {
            self.resets.1 += 1;
            self.end(address, header, fin::RESET);
        }
    }

    /// Offers a cookie to a peer for whom there is no room.
    pub(super) fn offer(&mut self, address: A, header: &Header, cookie: u64) {
        self.push(
            address,
            Header {
                command: Command::Cookie,
                fragment: challenge::COOKIE_OFFER,
                timestamp: cookie as u32,
                number: (cookie >> 32) as u32,
                unacknowledged: 0,
                len: 0,
                ..*header
            },
        );
    }

    fn push(&mut self, address: A, answer: Header) {
        if self.queue.len() < ANSWERS_MAX {
            self.queue.push_back((address, answer));
        }
    }
}
