//! Which of many peers makes room for a new one.

/// A peer talks once it was heard in so many different milliseconds: to send twice or three times is as easy under a
/// forged address as to send once.
const TALKS_AT: u8 = 4;
/// Of the places of a table, one in so many is for those that do not talk yet, so that a new peer finds one.
const NEW_SHARE: usize = 8;
const NONE: u32 = u32::MAX;

/// The peers of a table in the order in which they were heard last, those that talk apart from those that do not yet.
///
/// The one to make room is the one not heard for longest among those that do not talk; only where all talk, among all. So a
/// flood of new addresses drives out its like, peers that talk stay, and a new peer always gets in. Those that talk have
/// seven eighths of the table at the most: beyond that the one of them not heard for longest has to show again that it talks.
///
/// Peers are known by the index of their place in the caller's table. No call searches.
///
/// ```
/// use corewire_proto::recency::Recency;
///
/// let mut recency = Recency::new(100);
/// recency.insert(0, 7);
/// for now_ms in [8, 9, 10] {
///     recency.heard(now_ms, 7);
/// }
/// recency.insert(10, 8);
/// recency.insert(10, 9);
/// assert_eq!(recency.first_out(), Some(8));
/// recency.heard(10, 8);
/// assert_eq!(recency.first_out(), Some(9));
/// ```
#[derive(Debug)]
pub struct Recency {
    nodes: Vec<Node>,
    new: List,
    talking: List,
    talking_max: usize,
}

#[derive(Debug, Clone, Copy)]
struct Node {
    previous: u32,
    next: u32,
    at_ms: u64,
    standing: Standing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    Absent,
    /// Heard in so many different milliseconds.
    New(u8),
    Talking,
}

/// From the one not heard for longest to the one heard last.
#[derive(Debug)]
struct List {
    first: u32,
    last: u32,
    len: usize,
}

impl Recency {
    /// For a table of so many places.
    pub const fn new(places: usize) -> Self {
        const EMPTY: List = List { first: NONE, last: NONE, len: 0 };
        Self { nodes: Vec::new(), new: EMPTY, talking: EMPTY, talking_max: places - places / NEW_SHARE }
    }

    /// A new peer has the place `index`, which was free, and was heard just now. Times are in milliseconds.
    pub fn insert(&mut self, now_ms: u64, index: u32) {
        let absent = Node { previous: NONE, next: NONE, at_ms: 0, standing: Standing::Absent };
        if self.nodes.len() <= index as usize {
            self.nodes.resize(index as usize + 1, absent);
        }
        debug_assert_eq!(self.nodes[index as usize].standing, Standing::Absent);
        self.push(index, now_ms, Standing::New(1));
    }

    /// The peer at `index` was heard.
    #[inline]
    pub fn heard(&mut self, now_ms: u64, index: u32) {
        let Some(node) = self.nodes.get(index as usize) else { return };
        let is_same_ms = node.at_ms == now_ms;
        if index == self.talking.last || (is_same_ms && index == self.new.last) {
            return;
        }
        let standing = match node.standing {
            Standing::Absent => return,
            Standing::New(times) if is_same_ms => Standing::New(times),
            Standing::New(times) if times + 1 < TALKS_AT => Standing::New(times + 1),
            Standing::New(_) | Standing::Talking => Standing::Talking,
        };
        self.unlink(index);
        self.push(index, now_ms, standing);
        if self.talking.len > self.talking_max {
            let demoted = self.talking.first;
            let at_ms = self.nodes[demoted as usize].at_ms;
            self.unlink(demoted);
            self.push(demoted, at_ms, Standing::New(1));
        }
    }

    /// The place `index` is free again.
    pub fn remove(&mut self, index: u32) {
        if self.nodes.get(index as usize).is_some_and(|node| node.standing != Standing::Absent) {
            self.unlink(index);
            self.nodes[index as usize].standing = Standing::Absent;
        }
    }

    /// The peer that makes room for another.
    pub const fn first_out(&self) -> Option<u32> {
        match (self.new.first, self.talking.first) {
            (NONE, NONE) => None,
            (NONE, talking) => Some(talking),
            (new, _) => Some(new),
        }
    }

    fn list(&mut self, standing: Standing) -> &mut List {
        if standing == Standing::Talking { &mut self.talking } else { &mut self.new }
    }

    fn push(&mut self, index: u32, at_ms: u64, standing: Standing) {
        let list = self.list(standing);
        let previous = std::mem::replace(&mut list.last, index);
        list.len += 1;
        if previous == NONE {
            list.first = index;
        } else {
            self.nodes[previous as usize].next = index;
        }
        self.nodes[index as usize] = Node { previous, next: NONE, at_ms, standing };
    }

    fn unlink(&mut self, index: u32) {
        let Node { previous, next, standing, .. } = self.nodes[index as usize];
        let list = self.list(standing);
        list.len -= 1;
        if previous == NONE {
            list.first = next;
        }
        if next == NONE {
            list.last = previous;
        }
        if previous != NONE {
            self.nodes[previous as usize].next = next;
        }
        if next != NONE {
            self.nodes[next as usize].previous = previous;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order_out(mut recency: Recency) -> Vec<u32> {
        std::iter::from_fn(|| recency.first_out().inspect(|index| recency.remove(*index))).collect()
    }

    #[test]
    fn those_that_do_not_talk_go_first_and_the_one_heard_least_recently_before_the_others() {
        let mut recency = Recency::new(80);
        (0..5).for_each(|index| recency.insert(0, index));
        (1..=3).for_each(|now| recency.heard(now, 1));
        recency.heard(4, 2);
        recency.heard(5, 2);
        recency.heard(6, 0);
        recency.remove(3);
        recency.remove(3);
        assert_eq!(order_out(recency), [4, 2, 0, 1]);
    }

    #[test]
    fn a_burst_in_one_millisecond_is_no_talk() {
        let mut recency = Recency::new(80);
        recency.insert(0, 0);
        (1..=2).for_each(|now| (0..100).for_each(|_| recency.heard(now, 0)));
        recency.insert(3, 1);
        assert_eq!(order_out(recency), [0, 1]);
    }

    #[test]
    fn where_all_talk_a_part_of_the_places_is_kept_for_new_peers() {
        let mut recency = Recency::new(16);
        (0..16).for_each(|index| recency.insert(0, index));
        for now in 1..100 {
            (0..16).for_each(|index| recency.heard(now, index));
        }
        assert_eq!((recency.talking.len, recency.new.len), (14, 2));
        // Those that go on talking change places with those that do not.
        for now in 100..110 {
            (2..16).for_each(|index| recency.heard(now, index));
        }
        let mut out = order_out(recency);
        out[..2].sort_unstable();
        assert_eq!(out[..2], [0, 1]);
    }

    #[test]
    fn a_table_of_one_place_gives_it_to_the_next() {
        let mut recency = Recency::new(1);
        (0..10).for_each(|now| {
            if now == 0 {
                recency.insert(0, 0)
            } else {
                recency.heard(now, 0)
            };
        });
        assert_eq!(recency.first_out(), Some(0));
        recency.remove(0);
        assert_eq!(recency.first_out(), None);
        recency.insert(11, 0);
        assert_eq!(recency.first_out(), Some(0));
    }

    #[test]
    fn any_order_of_calls_keeps_the_lists_whole() {
        let (mut recency, mut state, mut present) = (Recency::new(20), 1_u64, [false; 20]);
        for now in 0..20_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let index = (state >> 33) as u32 % 20;
            let is_present = &mut present[index as usize];
            match (state >> 60, *is_present) {
                (0 | 1, true) => (recency.remove(index), *is_present = false).0,
                (_, true) => recency.heard(now / 4, index),
                (_, false) => (recency.insert(now / 4, index), *is_present = true).0,
            }
            let count = present.iter().filter(|is_present| **is_present).count();
            assert_eq!(recency.new.len + recency.talking.len, count);
            assert!(recency.talking.len <= 18);
        }
        let count = present.iter().filter(|is_present| **is_present).count();
        assert_eq!(order_out(recency).len(), count);
    }
}
