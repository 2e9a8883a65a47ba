//! Sessions that are over, remembered for a while, so that late datagrams do not open them again.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::wire::{Command, Header, fin};

#[derive(Debug)]
pub(super) struct Ended<A> {
    /// Until when, and whether it broke off.
    until: HashMap<(A, u32), (u64, bool)>,
    /// In the order of their times.
    order: VecDeque<(u64, (A, u32))>,
    kept_max: usize,
    quiet_ms: u64,
    answers: VecDeque<(A, Header)>,
}

/// Answers that may wait; the peer repeats its question.
const ANSWERS_MAX: usize = 64;

impl<A: Copy + Eq + Hash> Ended<A> {
    pub(super) fn new(kept_max: usize, quiet_ms: u64) -> Self {
        Self { until: HashMap::new(), order: VecDeque::new(), kept_max, quiet_ms, answers: VecDeque::new() }
    }

    /// `is_broken`: the peer may not know yet that it is over.
    pub(super) fn insert(&mut self, now: u64, address: A, conversation: u32, is_broken: bool) {
        self.forget(now);
        if self.order.len() >= self.kept_max
            && let Some((_, oldest)) = self.order.pop_front()
        {
            self.until.remove(&oldest);
        }
        let until = now + self.quiet_ms;
        self.until.insert((address, conversation), (until, is_broken));
        self.order.push_back((until, (address, conversation)));
    }

    pub(super) fn contains(&mut self, now: u64, address: A, conversation: u32) -> bool {
        self.forget(now);
        self.until.contains_key(&(address, conversation))
    }

    /// Tells a peer that repeats its end that it has been seen, and one that goes on sending that it need not.
    pub(super) fn answer(&mut self, address: A, header: &Header) {
        let key = (address, header.conversation);
        let is_broken = self.until.get(&key).is_some_and(|(_, is_broken)| *is_broken);
        let is_end = header.command == Command::Fin && header.fragment & fin::END != 0;
        let flags = match header.command {
            Command::Fin if is_end => fin::ACKNOWLEDGE,
            Command::Push if is_broken => fin::RESET,
            _ => return,
        };
        if self.answers.len() >= ANSWERS_MAX {
            return;
        }
        let answer = Header {
            command: Command::Fin,
            fragment: flags,
            number: fin::NUMBER,
            timestamp: header.unacknowledged,
            unacknowledged: if is_end { header.timestamp } else { 0 },
            len: 0,
            ..*header
        };
        self.answers.push_back((address, answer));
    }

    pub(super) fn take_answer(&mut self) -> Option<(A, Header)> {
        self.answers.pop_front()
    }

    pub(super) fn owes_answer(&self) -> bool {
        !self.answers.is_empty()
    }

    fn forget(&mut self, now: u64) {
        while let Some((until, key)) = self.order.front()
            && *until <= now
        {
            self.until.remove(key);
            self.order.pop_front();
        }
    }
}
