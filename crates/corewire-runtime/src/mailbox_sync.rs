//! The primitives of the mailbox. `tests/loom_mailbox.rs` puts loom's in their place.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
pub(crate) use std::sync::{Mutex, MutexGuard};
