//! Time, for this crate and all above it: nothing else of them asks the system for it.

use std::time::{Duration, Instant};

/// The steady clock. Reading it costs tens of nanoseconds: not once a message.
#[inline]
#[expect(clippy::disallowed_methods, reason = "this is what everybody else calls")]
pub fn now() -> Instant {
    Instant::now()
}

/// Time since the beginning of 1970 (UTC), as the system's calendar clock tells it: it may jump.
#[expect(clippy::disallowed_methods, reason = "this is what everybody else calls")]
pub fn unix_time() -> Duration {
    // A clock before 1970 is not set at all.
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default()
}
