//! Thread-per-core workers.
#![forbid(unsafe_code)]

pub mod backoff;
pub mod blocking;
pub mod mailbox;
mod mailbox_sync;
pub mod timer_wheel;
