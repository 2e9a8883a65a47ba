//! Counters of a worker.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),* $(,)?) => {
        /// What a worker has done since it started, and what it holds now; sums over workers with `+=`.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        pub struct WorkerStats { $($(#[$doc])* pub $name: u64,)* }

        impl std::ops::AddAssign for WorkerStats {
            fn add_assign(&mut self, other: Self) { $(self.$name += other.$name;)* }
        }

        /// The worker's own counters, cheap to change.
        #[derive(Debug, Default)]
        pub(crate) struct Counters { $(pub(crate) $name: Cell<u64>,)* }

        impl Counters {
            pub(crate) fn publish(&self, to: &PublishedCounters) {
                $(to.$name.store(self.$name.get(), Ordering::Relaxed);)*
            }
        }

        /// What other threads see: brought up to date once a tick.
        #[derive(Debug, Default)]
        pub(crate) struct PublishedCounters { $($name: AtomicU64,)* }

        impl PublishedCounters {
            pub(crate) fn load(&self) -> WorkerStats {
                WorkerStats { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counters! {
    /// Turns of the loop.
    ticks,
    /// Connections accepted.
    accepted,
    /// Connections that were closed as they came, because the memory limit was near or descriptors were short.
    refused,
    /// Connections opened to others.
    connected,
    /// Connections that have ended, of either kind.
    closed,
    /// Receives that brought bytes.
    receives,
    /// Bytes received.
    received_bytes,
    /// System calls that sent bytes.
    sends,
    /// Bytes that the kernel took.
    sent_bytes,
    /// Datagrams received.
    datagrams_received,
    /// Datagrams that the kernel took.
    datagrams_sent,
    /// Datagrams that the kernel refused, each told to its socket's owner.
    datagrams_refused,
    /// Datagrams dropped because their session took none just then.
    datagrams_dropped,
    /// Handshakes of TLS that were completed, on either side.
    tls_handshakes,
    /// Handshakes of TLS that failed; why is in the log at the level `debug`.
    tls_handshake_failures,
    /// Handlers and tasks that panicked.
    panics,
    /// Accepts that failed because a resource was short.
    accept_failures,
    /// Bytes of memory held now for what is queued to send.
    send_queue_bytes,
    /// Bytes of memory held now for what has arrived and was not decoded yet.
    deferred_bytes,
    /// Bytes of memory held now for frames and messages whose rest has not arrived.
    reassembly_bytes,
    /// Bytes of memory held now for what has arrived whole and was not taken.
    inbox_bytes,
    /// Bytes of memory held now for payloads of RPC calls that were not taken.
    payload_bytes,
    /// Bytes of memory held now by KCP conversations, and by TLS for what is not whole or not sent.
    transport_bytes,
}

impl WorkerStats {
    /// Bytes of memory held now for peers, of all kinds.
    pub const fn held_bytes(&self) -> u64 {
        self.send_queue_bytes
            + self.deferred_bytes
            + self.reassembly_bytes
            + self.inbox_bytes
            + self.payload_bytes
            + self.transport_bytes
    }
}

impl Counters {
    #[inline]
    pub(crate) fn add(counter: &Cell<u64>, by: u64) {
        counter.set(counter.get() + by);
    }
}
