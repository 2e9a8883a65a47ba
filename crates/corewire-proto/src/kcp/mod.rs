//! Reliable UDP: KCP, wire-compatible with ikcp.c and kcp-go (with its forward error correction, without its encryption).
//!
//! [`Kcp`] is one conversation: datagrams, messages and the time go in; datagrams, messages and the time of the
//! next call come out. [`Sessions`] finds the conversation of a datagram by peer address and conversation id,
//! accepts new ones without a handshake, as kcp-go does, and keeps their timers.
//!
//! What goes over the wire is KCP's; three things are done differently from the original machine, and no peer
//! can tell but by the better timing:
//!
//! - Nothing waits for a tick. A segment, an acknowledgement or a retransmission leaves with the first
//!   [`poll_transmit`](Kcp::poll_transmit) after it is due, and [`next_timeout`](Kcp::next_timeout) says when
//!   that is.
//! - Acknowledgements that the cumulative number in every header already says are left out, but for the newest
//!   one, which carries the time-stamp that the peer measures the round trip by.
//! - Datagrams of equal size are laid out back to back, as segmentation offload wants them.
//!
//! The end of a conversation, which KCP does not have, is one more command in a datagram of its own
//! ([`Command::Fin`]); older peers reject that datagram and are none the worse. [`Sessions`] sends little to an address
//! until its owner has shown that it receives there ([`challenge`]).
//!
//! Time is in milliseconds from any fixed moment, as `u64`, and must not go back; the 32-bit time-stamps and
//! segment numbers on the wire wrap around safely.

mod acks;
mod close;
mod config;
mod congestion;
mod control;
#[cfg(feature = "aead")]
mod envelope;
mod error;
mod fec;
mod pool;
mod receive;
mod receive_ring;
mod round_trip;
mod send;
mod send_ring;
mod sessions;
mod transmit;
mod validation;
mod wire;

pub use close::State;
pub use config::{Config, Mode};
pub use congestion::CongestionControl;
pub use control::{Kcp, Stats};
#[cfg(feature = "aead")]
pub use envelope::{ClientEnvelope, ENVELOPE_OVERHEAD, Keys, OpenError, Opened, SealError, ServerEnvelope};
pub use error::{CloseReason, ConfigError, ReceiveError, SendError};
pub use sessions::{SessionError, SessionEvent, SessionId, Sessions, SessionsConfig};
pub use transmit::Transmit;
pub use wire::{Command, HEADER_LEN, Header, challenge, conversation, fin};
