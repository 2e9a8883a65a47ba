//! How fast the path delivers, measured over the round trip of each segment.

use super::super::send_ring::Outgoing;

/// What was known when a segment was sent. Kept with it, and looked at when it is acknowledged.
#[derive(Debug, Clone, Copy, Default)]
pub(in super::super) struct Stamp {
    /// Bytes acknowledged by then.
    pub(super) delivered: u64,
    /// When the last of these were acknowledged. Times here are milliseconds, and wrap around.
    pub(super) delivered_at: u32,
    /// When the segment was sent that was acknowledged last.
    pub(super) first_sent_at: u32,
    pub(super) is_app_limited: bool,
}

/// What a datagram acknowledges for the first time.
#[derive(Debug, Default)]
pub(in super::super) struct Delivered {
    pub(in super::super) segments: u32,
    pub(super) bytes: u64,
    /// The shortest round trip among those acknowledged by name.
    pub(in super::super) round_trip_ms: Option<u32>,
    /// Of the segment that was sent last.
    pub(super) newest: Option<(Stamp, u32)>,
}

impl Delivered {
    #[inline]
    pub(in super::super) fn add(&mut self, slot: &Outgoing) {
        self.segments += 1;
        self.bytes += slot.payload.as_slice().len() as u64;
        if self.newest.is_none_or(|(newest, _)| slot.stamp.delivered >= newest.delivered) {
            self.newest = Some((slot.stamp, slot.sent_at as u32));
        }
    }

    #[inline]
    pub(in super::super) fn add_round_trip(&mut self, ms: u32) {
        self.round_trip_ms = Some(self.round_trip_ms.map_or(ms, |least| least.min(ms)));
    }
}
