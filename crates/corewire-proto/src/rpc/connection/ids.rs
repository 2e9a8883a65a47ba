//! From the ids of the wire to the slots of the call table.

/// A hash table from id to slot: open addressing, linear probing in the order of the entries' homes (Robin Hood), no
/// tombstones.
///
/// Ids come in sequence from every known client, so an id's low bits are its place: neighbours lie side by side, and
/// a lookup is one read. Calls in flight then fill a run of neighbours, each at home; the order is what ends a removal
/// at the first of them instead of at the end of the run. A peer that picks colliding ids makes its own connection's
/// lookups walk, at most over its calls in flight, which are limited.
#[derive(Debug, Default)]
pub(super) struct Ids {
    entries: Vec<Entry>,
    len: usize,
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
        let mask = self.entries.len().wrapping_sub(1);
        let mut at = home(id, mask);
        loop {
            // An empty table has no entry at all, and ends the walk here.
            let entry = self.entries.get(at)?;
            if entry.slot == EMPTY {
                return None;
            }
            if entry.id == id {
                return Some(entry.slot);
            }
            at = (at + 1) & mask;
        }
    }

    /// Adds an id that is not in the table.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, slot: u32) {
        if (self.len + 1) * 2 > self.entries.len() {
            self.grow();
        }
        self.len += 1;
        place(&mut self.entries, Entry { id, slot });
    }

    /// Takes an id out, if it is there.
    #[inline]
    pub(super) fn remove(&mut self, id: u32) {
        let mask = self.entries.len().wrapping_sub(1);
        let mut hole = home(id, mask);
        loop {
            match self.entries.get(hole) {
                None | Some(Entry { slot: EMPTY, .. }) => return,
                Some(entry) if entry.id == id => break,
                Some(_) => hole = (hole + 1) & mask,
            }
        }
        self.len -= 1;
        loop {
            let next = (hole + 1) & mask;
            let entry = self.entries[next];
            if entry.slot == EMPTY || home(entry.id, mask) == next {
                break;
            }
            self.entries[hole] = entry;
            hole = next;
        }
        self.entries[hole].slot = EMPTY;
    }

    #[cold]
    fn grow(&mut self) {
        let size = (self.entries.len() * 2).max(SMALLEST);
        let mut entries = vec![Entry { id: 0, slot: EMPTY }; size];
        for &entry in self.entries.iter().filter(|entry| entry.slot != EMPTY) {
            place(&mut entries, entry);
        }
        self.entries = entries;
    }
}

#[inline]
fn place(entries: &mut [Entry], mut entry: Entry) {
    let mask = entries.len() - 1;
    let mut at = home(entry.id, mask);
    while entries[at].slot != EMPTY {
        // The one that is farther from home stays.
        if distance(entries[at].id, at, mask) < distance(entry.id, at, mask) {
            std::mem::swap(&mut entries[at], &mut entry);
        }
        at = (at + 1) & mask;
    }
    entries[at] = entry;
}

/// How far behind its home an id stands.
#[inline]
const fn distance(id: u32, at: usize, mask: usize) -> usize {
    at.wrapping_sub(home(id, mask)) & mask
}

#[inline]
const fn home(id: u32, mask: usize) -> usize {
    id as usize & mask
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
            assert_eq!(ids.len, model.len());
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
}
