//! Datagram sockets of a worker.
//!
//! There are two ways to use one, as for connections:
//! - a [`UdpProtocol`] is called for each datagram (*push*): what servers are built on, the fastest;
//! - a [`UdpSocket`] is received from and sent on by tasks.
//!
//! A [`Carried`] connection is one that lives on a shared socket: it looks like any [`Connection`](crate::Connection) to
//! its [`Protocol`](crate::Protocol).

mod carried;
mod part;
mod port;
mod socket;
mod socket_options;

pub(crate) use carried::CarriedTimer;
pub use carried::{Carried, Carrier};
pub use corewire_driver::udp::{
    BufferSizes, Cursor, Datagram, Ecn, MulticastInterface, PAYLOAD_MAX_V4, PAYLOAD_MAX_V6, RecvBatch, Run,
    SendBatch, SendMeta, UdpError, UdpOptions, open, payload_max,
};
pub(crate) use part::UdpPart;
pub use port::{UdpPort, UdpProtocol};
pub use socket::{Received, UdpSocket};
