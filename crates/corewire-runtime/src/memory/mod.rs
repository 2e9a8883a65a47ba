//! What is held for peers, in bytes, and what is done when it is too much.
//!
//! A *shared budget* is the limit of a runtime; each worker has a *budget* that leases from it in steps, so that no
//! message touches an atomic. What is kept for a connection is *charged* to its account by what it holds (the memory that
//! stays occupied), not by what it says (its payload). Accounts are listed by size, so that who makes room at the limit is
//! found at once. A server may have a limit of its own beside that of its runtime: its connections are charged to both.

mod account;
mod budget;
mod holders;
mod limit;
mod machine;
mod shortage;

pub(crate) use self::account::Account;
pub use self::account::Charge;
pub(crate) use self::budget::{Budget, Excess, Pressure, SharedBudget};
pub(crate) use self::holders::Relief;
pub use self::limit::MemoryLimit;
pub(crate) use self::machine::default_limit;
pub(crate) use self::shortage::Shortage;

/// What memory is held for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryKind {
    /// What is queued to send.
    SendQueue,
    /// What has arrived and was not decoded yet, because its connection is paused.
    Deferred,
    /// The beginning of a frame or message whose rest has not arrived.
    Reassembly,
    /// What has arrived whole and was not taken yet.
    Inbox,
    /// Payloads of RPC calls that were not taken yet.
    Payload,
    /// What KCP keeps: segments that wait to be acknowledged, to be read, or for those before them. What TLS keeps:
    /// handshakes, records that are not whole, and what the socket did not take.
    Transport,
}

impl MemoryKind {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::SendQueue, Self::Deferred, Self::Reassembly, Self::Inbox, Self::Payload, Self::Transport];

    const COUNT: usize = Self::ALL.len();
}
