//! Datagram sockets of a worker.
//!
//! There are two ways to use one, as for connections:
//! - a [`UdpProtocol`] is called for each datagram (*push*): what servers are built on, the fastest;
//! - a [`UdpSocket`] is received from and sent on by tasks.
//!
//! Peers and KCP conversations as connections are in [`transport`](crate::transport).

mod port;
mod socket;
mod socket_options;
mod sockets;

pub use corewire_driver::udp::{
    BufferSizes, Cursor, Datagram, Ecn, MulticastInterface, PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, RecvBatch, Run,
    SendBatch, SendMeta, UdpError, UdpOptions, open, payload_max,
};
pub use port::{UdpPort, UdpProtocol};
pub use socket::{Received, UdpSocket};
pub(crate) use sockets::UdpSockets;
