//! When it is worth to look at what a session holds: that costs as much as it holds segments.

use super::super::control::Kcp;

/// A session whose memory has changed by less than this is not looked at, in bytes.
const STEP_MIN: usize = 16 * 1024;
/// What a datagram or a segment counts at the least: small ones take and free memory too.
const COUNTED_MIN: usize = 1024;

/// What was told of a session's memory, and how much may have changed since.
#[derive(Debug, Default)]
pub(super) struct MemoryMeter {
    told: usize,
    /// Segments that waited to be acknowledged then.
    waiting: usize,
    /// Bytes received since then.
    received: usize,
}

impl MemoryMeter {
    #[inline]
    pub(super) fn note_received(&mut self, len: usize) {
        self.received += len.max(COUNTED_MIN);
    }

    /// What the session holds, if that may be much more or less than was told: by a quarter, or by 16 KiB.
    #[inline]
    pub(super) fn look(&mut self, kcp: &Kcp) -> Option<usize> {
        let changed = self.received + kcp.waiting_send().abs_diff(self.waiting) * COUNTED_MIN;
        if changed >= STEP_MIN.max(self.told / 4) { self.look_now(kcp) } else { None }
    }

    /// The same, whatever has moved.
    pub(super) fn look_now(&mut self, kcp: &Kcp) -> Option<usize> {
        let memory = kcp.memory();
        (self.received, self.waiting) = (0, kcp.waiting_send());
        let is_news =
            memory.abs_diff(self.told) >= STEP_MIN.max(self.told / 8) || (memory == 0 && self.told > 0);
        is_news.then(|| {
            self.told = memory;
            memory
        })
    }
}
