//! The members that were connected to, so that one that is ready is found without a look at all others.

use std::collections::VecDeque;
use std::rc::Rc;

use super::member::Member;

/// The members of a channel that have been opened, each in one of the two.
#[derive(Default)]
pub(super) struct Opened {
    /// Those that were found established; it is seen only when they are looked at that they are not any more.
    ready: Vec<Rc<Member>>,
    waiting: VecDeque<Rc<Member>>,
    /// Where to look on among those that are ready.
    next: usize,
}

/// How many of those that are waiting are looked at for each call that looks for one that is ready.
const LOOKS: usize = 8;

impl Opened {
    pub(super) fn add(&mut self, member: Rc<Member>) {
        self.waiting.push_back(member);
    }

    /// Forgets those that are given up.
    pub(super) fn prune(&mut self) {
        self.ready.retain(|member| !member.is_closed());
        self.waiting.retain(|member| !member.is_closed());
    }

    /// In turn, one that is ready and good for the call.
    pub(super) fn find(&mut self, is_good: impl Fn(&Member) -> bool) -> Option<Rc<Member>> {
        self.look_at(LOOKS);
        self.find_ready(&is_good).or_else(|| {
            self.look_at(usize::MAX);
            self.find_ready(&is_good)
        })
    }

    /// Has those among so many that were established since be ready.
    fn look_at(&mut self, looks: usize) {
        for _ in 0..self.waiting.len().min(looks) {
            let Some(member) = self.waiting.pop_front() else { return };
            if member.is_established() {
                self.ready.push(member);
            } else if !member.is_closed() {
                self.waiting.push_back(member);
            }
        }
    }

    fn find_ready(&mut self, is_good: impl Fn(&Member) -> bool) -> Option<Rc<Member>> {
        for _ in 0..self.ready.len() {
            if self.next >= self.ready.len() {
                self.next = 0;
            }
            let member = self.ready.get(self.next)?;
            if !member.is_established() {
                let lost = self.ready.swap_remove(self.next);
                self.waiting.push_back(lost);
                continue;
            }
            self.next += 1;
            if is_good(member) {
                return Some(member.clone());
            }
        }
        None
    }
}
