//! Sessions that are over, remembered for a while, so that late datagrams do not open them again.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::super::wire::{Command, Header, fin};

#[derive(Debug)]
pub(super) struct Ended<A> {
    /// Until when, and whether it broke off.
    until: HashMap<(A, u32), (u64, bool)>,
    /// In the order of their times.
    order: VecDeque<(u64, (A, u32))>,
    kept_max: usize,
    quiet_ms: u64,
}

impl<A: Copy + Eq + Hash> Ended<A> {
    pub(super) fn new(kept_max: usize, quiet_ms: u64) -> Self {
        Self { until: HashMap::new(), order: VecDeque::new(), kept_max, quiet_ms }
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

    /// What to tell a peer that repeats its end, or goes on sending: the flags of a [`Command::Fin`].
    pub(super) fn answer(&self, address: A, header: &Header) -> Option<u8> {
        let is_broken =
            self.until.get(&(address, header.conversation)).is_some_and(|(_, is_broken)| *is_broken);
        match header.command {
            Command::Fin if header.fragment & fin::END != 0 => Some(fin::ACKNOWLEDGE),
            Command::Push if is_broken => Some(fin::RESET),
            _ => None,
        }
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
