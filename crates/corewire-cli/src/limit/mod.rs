//! The limit: what the kernel gives a bare loop that moves the same bytes and does nothing else.
//!
//! One thread, level-triggered epoll, one receive buffer that stays hot in cache, each system call made directly
//! where the event is seen. No framing, no matching, no work per message. What the library reaches is quoted as a
//! share of this, measured on the same cores in the same run.

mod load;
pub(crate) mod poll;
mod rounds;
mod serve;

pub(crate) use load::crew;
pub(crate) use serve::serve;

/// The one buffer of an echo loop. Measured: with 1 MiB messages 640 KiB make twice the rate of 256 KiB, since half a
/// message moves in one call; with 64 KiB messages and below both are the same. It fits the second-level cache.
const HOT_BUFFER: usize = 640 * 1024;
