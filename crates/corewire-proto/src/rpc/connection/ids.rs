//! From the ids of the wire to the slots of the call table.

use std::collections::HashMap;

/// A table from id to slot in which an id that is missing costs as much as one that is there.
///
/// Ids come in sequence from every known client, so an id's low bits are its index in the table of recent ids: neighbours
/// lie side by side, and a look-up is one read. There is no second place to look at in that table: an id that finds its
/// entry taken moves the older one to a hash table. That holds what lives far longer than those that came after it, and
/// the ids of clients of version 1, which number as they like; its hash has a key, so that no client can choose ids that
/// collide.
#[derive(Debug, Default)]
pub(super) struct Ids {
    recent: Vec<Entry>,
    /// Entries of `recent` in use.
    recent_len: usize,
    others: HashMap<u32, u32>,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    id: u32,
    slot: u32,
}

const EMPTY: u32 = u32::MAX;
const SMALLEST: usize = 16;

impl Ids {
    #[inline]
    pub(super) fn find(&self, id: u32) -> Option<u32> {
        match self.recent.get(self.index(id)) {
            Some(entry) if entry.id == id && entry.slot != EMPTY => Some(entry.slot),
            _ if self.others.is_empty() => None,
            _ => self.others.get(&id).copied(),
        }
    }

    /// Adds an id that is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, slot: u32) {
        if (self.recent_len + 1) * 2 > self.recent.len() {
            self.grow();
        }
        let index = self.index(id);
        let before = std::mem::replace(&mut self.recent[index], Entry { id, slot });
        if before.slot == EMPTY {
            self.recent_len += 1;
        } else {
            self.others.insert(before.id, before.slot);
        }
    }

    /// Takes an id out, if it is there.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        let index = self.index(id);
        match self.recent.get_mut(index) {
            Some(entry) if entry.id == id && entry.slot != EMPTY => {
                entry.slot = EMPTY;
                self.recent_len -= 1;
            }
            _ if self.others.is_empty() => {}
            _ => drop(self.others.remove(&id)),
        }
    }

    #[inline]
    fn index(&self, id: u32) -> usize {
        id as usize & self.recent.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.recent.len() * 2).max(SMALLEST);
        let before = std::mem::replace(&mut self.recent, vec![Entry { id: 0, slot: EMPTY }; size]);
        // What was apart in the smaller table is apart in the larger one.
        for entry in before.into_iter().filter(|entry| entry.slot != EMPTY) {
            let index = self.index(entry.id);
            self.recent[index] = entry;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    #[test]
    fn finds_what_a_hash_map_finds_under_colliding_ids() {
        let (mut ids, mut model) = (Ids::default(), HashMap::new());
        let mut seed = 7u64;
        for step in 0..20_000u32 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            // Few ids, of which many share their low bits.
            let id = ((seed >> 33) as u32 % 8) | ((seed >> 40) as u32 % 16) << 20;
            if let Some(slot) = model.remove(&id) {
                assert_eq!(ids.find(id), Some(slot));
                ids.remove(id);
            } else {
                ids.insert(id, step);
                model.insert(id, step);
            }
            assert_eq!(ids.recent_len + ids.others.len(), model.len());
            for id in (0..16).map(|high| high << 20 | (step % 8)) {
                assert_eq!(ids.find(id), model.get(&id).copied());
            }
        }
    }

    #[test]
    fn ids_on_both_sides_of_the_wrap_are_different() {
        let mut ids = Ids::default();
        ids.insert(u32::MAX, 1);
        ids.insert(0, 2);
        assert_eq!((ids.find(u32::MAX), ids.find(0), ids.find(1)), (Some(1), Some(2), None));
        ids.remove(u32::MAX);
        ids.remove(u32::MAX);
        assert_eq!((ids.find(u32::MAX), ids.find(0)), (None, Some(2)));
    }

    #[test]
    fn ids_in_sequence_need_no_hash_and_those_overtaken_are_found() {
        let mut ids = Ids::default();
        for id in 0..16_000 {
            ids.insert(id, id);
        }
        assert!(ids.others.is_empty());
        for id in 16_000..100_000 {
            ids.remove(id - 8_000);
            ids.insert(id, id);
            assert_eq!(ids.find(id - 8_000), None);
        }
        assert_eq!((ids.recent_len, ids.others.len()), (8_000, 8_000), "the first 8,000 live long");
        assert!((0..8_000).all(|id| ids.find(id) == Some(id)));
        (0..8_000).chain(92_000..100_000).for_each(|id| ids.remove(id));
        assert_eq!((ids.recent_len, ids.others.len()), (0, 0));
    }

    #[test]
    fn ids_that_share_their_low_bits_do_not_lengthen_a_look_up() {
        let mut ids = Ids::default();
        for id in 0..4_000 {
            ids.insert(id << 16, id);
        }
        assert_eq!((ids.recent.len(), ids.others.len()), (SMALLEST, 3_999));
        assert!((0..4_000).all(|id| ids.find(id << 16) == Some(id)));
        assert_eq!(ids.find(5 << 16 | 1), None);
    }
}
