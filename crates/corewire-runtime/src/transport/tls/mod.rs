//! TLS over a socket.
//!
//! `rustls` does the handshake. When it is done it hands out the keys, and goes: records are sealed and opened here, from
//! the send queue into one buffer of the worker and from the receive buffer into another. So a message needs no memory of
//! its own, and an idle connection holds little more than its two keys.

mod channel;
mod config;
mod errors;
mod handshake;
mod record;
mod scratch;
mod sni;
mod socket;

pub use rustls;

/// The name of a server: a name of DNS, or an IP address.
pub type ServerName = rustls::pki_types::ServerName<'static>;

pub use self::config::{ClientTls, HANDSHAKE_TIMEOUT, ServerTls};
pub(crate) use self::scratch::Scratch;
pub(crate) use self::socket::{Arrived, Lost, Shaken, TlsSocket};
