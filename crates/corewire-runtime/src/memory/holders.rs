//! Connections by what they hold, so that the largest are found without a look at all of them.

use slab::Slab;

use super::budget::{Excess, Pressure};

/// Marks the end of a list.
const NONE: u32 = u32::MAX;

/// Connections of a class that are looked at for the largest of them; what they hold differs by a quarter at the most.
const LOOKS_MAX: usize = 32;

/// Those that hold something, each in the list of its size class.
#[derive(Debug)]
pub(crate) struct Holders<K> {
    nodes: Slab<Node<K>>,
    running: Lists,
    paused: Lists,
    /// Connections that were looked at.
    #[cfg(test)]
    looks: usize,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Relief<K> {
    /// To receive again.
    pub(crate) resume: Vec<K>,
    /// To receive nothing more until there is room again.
    pub(crate) pause: Vec<K>,
    /// To be closed, with what each holds.
    pub(crate) close: Vec<(K, usize)>,
}

/// A place in the lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place(u32);

#[derive(Debug)]
struct Node<K> {
    key: K,
    held: usize,
    standing: Standing,
    before: u32,
    after: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Running,
    /// It is paused for what it holds.
    Paused,
    /// It is being closed, and in no list.
    Closing,
}

/// A list for each class.
#[derive(Debug)]
struct Lists {
    first: Box<[u32]>,
    held: usize,
}

impl Lists {
    const CLASSES: usize = 4 * usize::BITS as usize;

    /// Four classes for each power of two.
    fn class_of(held: usize) -> usize {
        let power = held.max(4).ilog2() as usize;
        4 * power + ((held >> (power - 2)) & 3)
    }

    fn new() -> Self {
        Self { first: vec![NONE; Self::CLASSES].into(), held: 0 }
    }

    fn last_class(&self) -> Option<usize> {
        self.first.iter().rposition(|first| *first != NONE)
    }
}

impl<K: Copy> Holders<K> {
    pub(crate) fn new() -> Self {
        Self {
            nodes: Slab::new(),
            running: Lists::new(),
            paused: Lists::new(),
            #[cfg(test)]
            looks: 0,
        }
    }

    /// What they hold together.
    pub(crate) fn held(&self) -> usize {
        self.running.held + self.paused.held
    }

    /// A connection holds so many bytes now.
    pub(crate) fn set(&mut self, place: &mut Option<Place>, key: K, held: usize) {
        match *place {
            None if held == 0 => {}
            None => {
                let node = Node { key, held, standing: Standing::Running, before: NONE, after: NONE };
                // There are never as many connections as there are bytes in 4 GiB.
                let at = self.nodes.insert(node) as u32;
                self.link(at);
                *place = Some(Place(at));
            }
            Some(Place(at)) if held == 0 && self.nodes[at as usize].standing == Standing::Running => {
                self.remove(place);
            }
            Some(Place(at)) => {
                let node = &mut self.nodes[at as usize];
                let before = std::mem::replace(&mut node.held, held);
                let standing = node.standing;
                if Lists::class_of(before) == Lists::class_of(held) {
                    if let Some(lists) = self.lists(standing) {
                        lists.held = lists.held - before + held;
                    }
                    return;
                }
                self.nodes[at as usize].held = before;
                self.unlink(at);
                self.nodes[at as usize].held = held;
                self.link(at);
            }
        }
    }

    /// It is gone.
    pub(crate) fn remove(&mut self, place: &mut Option<Place>) {
        if let Some(Place(at)) = place.take() {
            self.unlink(at);
            self.nodes.remove(at as usize);
        }
    }

    /// Decides which make room, so that those that hold little notice nothing.
    ///
    /// Over the high mark the largest are paused, as many of them as hold what is over the low mark; over the limit as many
    /// of the largest are closed as hold what is over the limit. Below the low mark all that was paused goes on.
    pub(crate) fn relieve(&mut self, pressure: Pressure, excess: Excess) -> Relief<K> {
        let mut relief = Relief { resume: Vec::new(), pause: Vec::new(), close: Vec::new() };
        match pressure {
            Pressure::Low => {
                while let Some(at) = self.paused.last_class().map(|class| self.paused.first[class]) {
                    relief.resume.push(self.stand(at, Standing::Running).0);
                }
            }
            Pressure::Kept => {}
            Pressure::High | Pressure::Over => {
                let mut closed = 0;
                while pressure == Pressure::Over && closed < excess.over_limit {
                    let Some(at) = self.largest() else { break };
                    let (key, held) = self.stand(at, Standing::Closing);
                    relief.close.push((key, held));
                    closed += held;
                }
                while self.paused.held + closed < excess.over_low {
                    let Some(at) = self.largest_of(Standing::Running) else { break };
                    relief.pause.push(self.stand(at, Standing::Paused).0);
                }
            }
        }
        relief
    }

    /// Of all, paused or not.
    fn largest(&mut self) -> Option<u32> {
        let of_each = [Standing::Running, Standing::Paused].map(|standing| self.largest_of(standing));
        of_each.into_iter().flatten().max_by_key(|at| self.nodes[*at as usize].held)
    }

    fn largest_of(&mut self, standing: Standing) -> Option<u32> {
        let lists = self.lists(standing)?;
        let mut at = lists.first[lists.last_class()?];
        let mut largest = at;
        for _ in 0..LOOKS_MAX {
            #[cfg(test)]
            {
                self.looks += 1;
            }
            if self.nodes[at as usize].held > self.nodes[largest as usize].held {
                largest = at;
            }
            at = self.nodes[at as usize].after;
            if at == NONE {
                break;
            }
        }
        (self.nodes[largest as usize].held > 0).then_some(largest)
    }

    fn stand(&mut self, at: u32, standing: Standing) -> (K, usize) {
        self.unlink(at);
        self.nodes[at as usize].standing = standing;
        self.link(at);
        (self.nodes[at as usize].key, self.nodes[at as usize].held)
    }

    fn lists(&mut self, standing: Standing) -> Option<&mut Lists> {
        match standing {
            Standing::Running => Some(&mut self.running),
            Standing::Paused => Some(&mut self.paused),
            Standing::Closing => None,
        }
    }

    fn link(&mut self, at: u32) {
        let Node { held, standing, .. } = self.nodes[at as usize];
        let Some(lists) = self.lists(standing) else { return };
        lists.held += held;
        let after = std::mem::replace(&mut lists.first[Lists::class_of(held)], at);
        let node = &mut self.nodes[at as usize];
        (node.before, node.after) = (NONE, after);
        if after != NONE {
            self.nodes[after as usize].before = at;
        }
    }

    fn unlink(&mut self, at: u32) {
        let Node { held, standing, before, after, .. } = self.nodes[at as usize];
        let Some(lists) = self.lists(standing) else { return };
        lists.held -= held;
        if before == NONE {
            lists.first[Lists::class_of(held)] = after;
        } else {
            self.nodes[before as usize].after = after;
        }
        if after != NONE {
            self.nodes[after as usize].before = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn excess(over_low: usize, over_limit: usize) -> Excess {
        Excess { over_low, over_limit }
    }

    fn holders(held: &[usize]) -> (Holders<usize>, Vec<Option<Place>>) {
        let mut holders = Holders::new();
        let mut places = vec![None; held.len()];
        for (key, (held, place)) in held.iter().zip(&mut places).enumerate() {
            holders.set(place, key, *held);
        }
        (holders, places)
    }

    #[test]
    fn the_largest_are_paused_until_they_hold_what_is_too_much() {
        let (mut holders, mut places) = holders(&[10, 60, 5, 30, 40]);
        assert_eq!(holders.relieve(Pressure::High, excess(50, 0)).pause, [1]);
        assert_eq!(
            holders.relieve(Pressure::High, excess(50, 0)).pause,
            [] as [usize; 0],
            "it is paused already"
        );
        holders.set(&mut places[3], 3, 50);
        let relief = holders.relieve(Pressure::High, excess(100, 0));
        assert_eq!(relief.pause, [3], "60 and 50 hold 110");
        assert!(relief.close.is_empty() && relief.resume.is_empty());
    }

    #[test]
    fn over_the_limit_the_worst_is_closed_and_no_more_than_needed() {
        let (mut holders, mut places) = holders(&[10, 60, 5, 50, 40]);
        holders.relieve(Pressure::High, excess(1, 0));
        let relief = holders.relieve(Pressure::Over, excess(100, 30));
        assert_eq!(relief.close, [(1, 60)]);
        assert_eq!(relief.pause, [3], "what is left of the excess");
        let more = holders.relieve(Pressure::Over, excess(1, 1));
        assert_eq!(more.close, [(3, 50)], "nobody is closed twice");
        holders.remove(&mut places[1]);
        holders.remove(&mut places[3]);
        assert_eq!(holders.held(), 55);
    }

    #[test]
    fn nothing_changes_between_the_marks_and_all_go_on_below() {
        let (mut holders, mut places) = holders(&[10, 60, 1]);
        holders.relieve(Pressure::High, excess(70, 0));
        let kept = holders.relieve(Pressure::Kept, excess(30, 0));
        assert!(kept.resume.is_empty() && kept.pause.is_empty() && kept.close.is_empty());
        holders.set(&mut places[0], 0, 0);
        assert_eq!(holders.relieve(Pressure::Low, excess(0, 0)).resume, [1, 0]);
    }

    #[test]
    fn one_that_holds_nothing_is_left_alone() {
        let (mut holders, _places) = holders(&[0, 0]);
        let relief = holders.relieve(Pressure::Over, excess(1000, 1000));
        assert!(relief.pause.is_empty() && relief.close.is_empty());
    }

    #[test]
    fn the_largest_of_a_hundred_thousand_are_found_by_looking_at_few() {
        let held: Vec<_> = (0..100_000).map(|key| 1000 + key % 5000).collect();
        let (mut holders, _places) = holders(&held);
        let all: usize = held.iter().sum();
        assert_eq!(holders.held(), all);
        let relief = holders.relieve(Pressure::High, excess(100_000, 0));
        assert!((17..=30).contains(&relief.pause.len()), "{} of about 6,000 bytes", relief.pause.len());
        assert!(holders.looks <= relief.pause.len() * LOOKS_MAX, "{} were looked at", holders.looks);
        // As long as memory is short, a look that has nothing to do costs nothing.
        holders.looks = 0;
        for _ in 0..1000 {
            holders.relieve(Pressure::High, excess(100_000, 0));
        }
        assert_eq!(holders.looks, 0);
        let relief = holders.relieve(Pressure::Over, excess(0, 50_000));
        assert!(holders.looks <= 2 * relief.close.len() * LOOKS_MAX, "{} were looked at", holders.looks);
    }

    #[test]
    fn the_largest_is_within_a_quarter_of_the_largest_whatever_the_order() {
        let mut state = 1_usize;
        let held = std::iter::repeat_with(|| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            1 + (state >> 33) % 1_000_000
        });
        let held: Vec<_> = held.take(1000).collect();
        let (mut holders, _places) = holders(&held);
        let mut left: Vec<_> = held;
        left.sort_unstable();
        while let Some(largest) = left.last().copied() {
            let (_, closed) = holders.relieve(Pressure::Over, excess(0, 1)).close[0];
            assert!(closed * 5 / 4 >= largest, "{closed} of {largest}");
            left.remove(left.iter().rposition(|held| *held == closed).expect("one of them"));
        }
        assert_eq!(holders.held(), 0);
    }
}
