//! What the worker holds for peers.

use super::Core;
use crate::memory::MemoryKind;
use crate::stats::Counters;

impl Core {
    /// The end of the tick: what is held, for the budget and for whoever asks.
    pub(super) fn note_memory(&self) {
        self.memory.set(MemoryKind::SendQueue, self.pool.borrow().in_use());
        let Counters {
            send_queue_bytes, deferred_bytes, reassembly_bytes, inbox_bytes, payload_bytes, ..
        } = &self.counters;
        let gauges = [
            (MemoryKind::SendQueue, send_queue_bytes),
            (MemoryKind::Deferred, deferred_bytes),
            (MemoryKind::Reassembly, reassembly_bytes),
            (MemoryKind::Inbox, inbox_bytes),
            (MemoryKind::Payload, payload_bytes),
        ];
        for (kind, gauge) in gauges {
            gauge.set(self.memory.held_of(kind) as u64);
        }
    }
}
