//! The baseline: what the kernel gives a bare loop that moves the same bytes and does nothing else.
//!
//! One thread, level-triggered epoll, one receive buffer that stays hot in cache, each system call made directly
//! where the event is seen. No framing, no matching, no work per message. What any program needs it has as well: it looks
//! for a moment before it sleeps, as long as the library does, and what it sends is in a buffer of its own. What the
//! library reaches is quoted as a share of this, measured on the same cores in the same run.

mod load;
mod pipeline;
pub(crate) mod poll;
mod serve;
mod spin;

pub(crate) use load::workers;
pub(crate) use serve::serve;

/// The one buffer of an echo loop. Measured: with 1 MiB messages 640 KiB make twice the rate of 256 KiB, since half a
/// message moves in one call; with 64 KiB messages and below both are the same. It fits the second-level cache.
const HOT_BUFFER: usize = 640 * 1024;
