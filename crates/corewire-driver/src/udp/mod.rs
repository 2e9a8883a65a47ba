//! Datagrams: sockets with their options, and receiving and sending in batches with the kernel's offloads.
//!
//! A driver only tells when a datagram socket can be received from or sent on
//! ([`Driver::add_datagram`](crate::Driver::add_datagram)); the calls themselves are made here, at once, so no memory is
//! ever lent to the kernel:
//!
//! - [`RecvBatch`] takes many datagrams with one system call, and a run of them that the kernel has joined (GRO) as one.
//! - [`SendBatch`] gathers datagrams, joins neighbours of one size and destination (GSO), and sends many with one system
//!   call. Where the kernel refuses a join, its datagrams are sent one by one.

mod error;
pub(crate) mod message;
mod options;
mod recv;
mod send;
mod socket_options;

pub use error::UdpError;
pub use message::SendMeta;
pub use options::{BufferSizes, UdpOptions, buffer_sizes, open};
pub use recv::{Cursor, Datagram, Datagrams, RecvBatch, Run};
pub use send::{Flushed, SendBatch};
pub use socket_options::MulticastInterface;

use std::net::SocketAddr;

/// The longest payload of a datagram over IPv4, in bytes.
pub const PAYLOAD_MAX_V4: usize = 65_507;
/// The longest payload of a datagram over IPv6 (without jumbograms), in bytes.
pub const PAYLOAD_MAX_V6: usize = 65_527;

/// The longest payload of a datagram to this address, in bytes.
pub const fn payload_max(to: SocketAddr) -> usize {
    match to {
        SocketAddr::V4(_) => PAYLOAD_MAX_V4,
        SocketAddr::V6(_) => PAYLOAD_MAX_V6,
    }
}

/// Congestion marks of a datagram (RFC 3168).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Ecn {
    /// The sender does not take part.
    #[default]
    NotCapable = 0,
    /// ECT(1).
    Capable1 = 1,
    /// ECT(0).
    Capable0 = 2,
    /// A router on the way was congested.
    Congested = 3,
}

impl Ecn {
    /// The two low bits of the traffic class.
    pub const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            1 => Self::Capable1,
            2 => Self::Capable0,
            3 => Self::Congested,
            _ => Self::NotCapable,
        }
    }
}
