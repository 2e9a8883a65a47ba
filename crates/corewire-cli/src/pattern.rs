//! What a message says, so that a reply can be checked, and which messages are timed.

/// Bytes at the front of a message that carry its index (fewer when the message is shorter).
const INDEX_BYTES: usize = 8;
/// Of how many messages of a connection one is timed and checked, unless each one is.
pub(crate) const SAMPLE_EVERY: u64 = 64;
/// Messages up to this size are all checked at depth 1; larger ones are sampled.
const CHECK_ALL_MAX: usize = 4096;

/// The memory that messages made beforehand may take: half of a usual level-one cache.
const TABLE_MAX: usize = 16 * 1024;

/// A message of a given size: the index, little-endian, then bytes that depend on their place.
///
/// Small messages are made beforehand, more of them than are in flight, and their indices begin anew after the last:
/// making messages is not the work that is measured. Others get their index when they are sent.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    /// One message, or all that were made beforehand.
    bytes: Vec<u8>,
    size: usize,
    /// What is kept of an index.
    mask: u64,
}

impl Pattern {
    /// Messages that get their index when they are sent.
    pub(crate) fn new(size: usize) -> Self {
        // 251 is prime, so a shift of any power of two is seen.
        Self { bytes: (0..size).map(|at| (at % 251) as u8).collect(), size, mask: u64::MAX }
    }

    /// Messages for connections with this many in flight, made beforehand if they are small enough.
    pub(crate) fn for_depth(size: usize, depth: usize) -> Self {
        let count = (depth + 1).next_power_of_two();
        if count.saturating_mul(size) > TABLE_MAX {
            return Self::new(size);
        }
        let mut one = Self::new(size);
        let bytes = (0..count as u64).flat_map(|index| one.message(index).to_vec()).collect();
        Self { bytes, size, mask: count as u64 - 1 }
    }

    /// The message with this index.
    #[inline]
    pub(crate) fn message(&mut self, index: u64) -> &[u8] {
        if self.mask != u64::MAX {
            let at = (index & self.mask) as usize * self.size;
            return &self.bytes[at..at + self.size];
        }
        let head = INDEX_BYTES.min(self.size);
        self.bytes[..head].copy_from_slice(&index.to_le_bytes()[..head]);
        &self.bytes
    }

    /// Whether `part`, found `at` bytes into the message with this index, is what was sent.
    pub(crate) fn matches(&self, index: u64, at: usize, part: &[u8]) -> bool {
        let Some(end) = at.checked_add(part.len()).filter(|end| *end <= self.size) else {
            return false;
        };
        let head = INDEX_BYTES.min(self.size);
        let in_head = head.saturating_sub(at).min(part.len());
        let index = (index & self.mask).to_le_bytes();
        (in_head == 0 || part[..in_head] == index[at..at + in_head])
            && part[in_head..] == self.bytes[at + in_head..end]
    }
}

/// Which messages of a connection are timed, and since when the one under way is.
///
/// At depth 1 each message is timed. At larger depths one in 64 is, so that reading the clock does not become
/// the work that is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Probe {
    every: u64,
    timed: Option<(u64, u64)>,
    next: u64,
}

impl Probe {
    pub(crate) fn new(depth: usize) -> Self {
        Self { every: if depth == 1 { 1 } else { SAMPLE_EVERY }, timed: None, next: 0 }
    }

    /// Whether messages `first..end`, about to be sent, hold the one to time next; if so it is timed from `now`.
    #[inline]
    pub(crate) fn sending(&mut self, first: u64, end: u64, now: impl FnOnce() -> u64) {
        if self.timed.is_none() && end > self.next && first < end {
            self.timed = Some((self.next.max(first), now()));
        }
    }

    /// Tells that all messages below `end` are back; the latency of the timed one if it is among them.
    #[inline]
    pub(crate) fn received(&mut self, end: u64, now: impl FnOnce() -> u64) -> Option<u64> {
        let (index, since) = self.timed?;
        if end <= index {
            return None;
        }
        self.timed = None;
        self.next = index + self.every;
        Some(now().saturating_sub(since))
    }
}

/// Whether the message with this index has its content checked.
#[inline]
pub(crate) fn is_checked(index: u64, depth: usize, size: usize) -> bool {
    (depth == 1 && size <= CHECK_ALL_MAX) || index.is_multiple_of(SAMPLE_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cut_of_a_message_matches_and_any_changed_byte_does_not() {
        for size in [1, 4, 8, 9, 32, 300] {
            let mut pattern = Pattern::new(size);
            let message = pattern.message(0x0102_0304_0506_0708).to_vec();
            for cut in 0..=size {
                assert!(pattern.matches(0x0102_0304_0506_0708, 0, &message[..cut]));
                assert!(pattern.matches(0x0102_0304_0506_0708, cut, &message[cut..]));
            }
            for at in 0..size {
                let mut wrong = message.clone();
                wrong[at] ^= 1;
                assert!(!pattern.matches(0x0102_0304_0506_0708, 0, &wrong), "size {size}, byte {at}");
            }
        }
    }

    #[test]
    fn messages_made_beforehand_differ_from_all_that_are_in_flight_with_them() {
        for (size, depth) in [(1, 1), (32, 64), (32, 255), (2, 300)] {
            let mut pattern = Pattern::for_depth(size, depth);
            for index in 0..1000 {
                let message = pattern.message(index).to_vec();
                assert!(pattern.matches(index, 0, &message));
                let distinct = if size == 1 { depth.min(255) } else { depth };
                for other in 1..=distinct as u64 {
                    assert!(!pattern.matches(index + other, 0, &message), "size {size}, {index} + {other}");
                }
            }
        }
    }

    #[test]
    fn another_index_and_a_part_past_the_end_do_not_match() {
        let mut pattern = Pattern::new(32);
        let message = pattern.message(7).to_vec();
        assert!(!pattern.matches(8, 0, &message));
        assert!(!pattern.matches(7, 1, &message));
        assert!(!pattern.matches(7, usize::MAX, &message));
    }

    #[test]
    fn at_depth_one_each_message_is_timed() {
        let mut probe = Probe::new(1);
        for index in 0..5 {
            probe.sending(index, index + 1, || 100);
            assert_eq!(probe.received(index + 1, || 130), Some(30));
        }
    }

    #[test]
    fn at_a_larger_depth_one_in_64_is_timed() {
        let mut probe = Probe::new(8);
        let mut timed = 0;
        for index in 0..640 {
            probe.sending(index, index + 1, || 0);
            timed += u64::from(probe.received(index + 1, || 1).is_some());
        }
        assert_eq!(timed, 10);
    }

    #[test]
    fn a_timed_message_ends_only_when_it_is_back() {
        let mut probe = Probe::new(8);
        probe.sending(0, 8, || 10);
        assert_eq!(probe.received(0, || 20), None);
        assert_eq!(probe.received(3, || 25), Some(15));
        assert_eq!(probe.received(8, || 40), None);
    }
}
