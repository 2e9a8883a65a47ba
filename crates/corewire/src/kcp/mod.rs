//! What is particular to `kcp://`: the settings of a conversation, and encryption with a key that both ends know.
//!
//! Servers and clients take a [`Config`] and a [`Key`] by their own methods (`kcp_config`, `kcp_key`). A URI can name
//! the place of a key, never the key itself: `kcp://10.0.0.1:7000?key-file=/etc/app.key` or `?key-env=APP_KEY`.
//!
//! ```
//! use corewire::kcp::Key;
//! use corewire::{Frame, NetServer, NetUri, Session, StandardCodec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let key = Key::generate()?; // elsewhere: Key::from_file("/etc/app.key")?
//! let server = NetServer::bind("kcp://127.0.0.1:0")
//!     .kcp_key(key.clone())
//!     .codec(StandardCodec::default)
//!     .handler(|| |session: &Session, frame: Frame<'_>| {
//!         let _ = session.reply(&frame, frame.payload());
//!     })
//!     .workers(1)
//!     .start()?;
//!
//! let client = NetUri::parse(server.uri())?.client().kcp_key(key).codec(StandardCodec::default);
//! let reply = corewire::wait(client.connect_blocking()?.request(b"secret"))?;
//! assert_eq!(&reply[..], b"secret");
//! # Ok(())
//! # }
//! ```

mod key;

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

pub use corewire_proto::kcp::{Config, Mode};
use corewire_runtime::udp::UdpOptions;
use corewire_runtime::{Connection, ConnectionOptions, Protocol};

pub(crate) use self::key::random;
pub use self::key::{Key, KeyError, KeySource};
use crate::datagram::{self, DatagramKind, DatagramSettings};

/// What a client's KCP connection is told, for those who serve a [`Protocol`] of their own on it: see [`connect`].
#[derive(Debug, Clone, Default)]
pub struct ClientOptions {
    datagram: DatagramSettings,
}

impl ClientOptions {
    /// Settings of the conversation; default: [`Config::turbo`] in stream mode with windows of 1,024 segments.
    pub fn config(mut self, config: Config) -> Self {
        self.datagram.kcp = config;
        self
    }

    /// Options of the socket; default: 8 MiB to receive, 2 MiB to send, with offload.
    pub fn udp(mut self, options: UdpOptions) -> Self {
        self.datagram.udp = options;
        self
    }

    /// Encrypts all datagrams, and takes none that are not; default: no encryption.
    pub fn key(mut self, key: Key) -> Self {
        self.datagram.key = Some(key);
        self
    }

    /// Whether there is a key.
    pub fn has_key(&self) -> bool {
        self.datagram.key.is_some()
    }

    /// How long the first data may stay without any answer before the connection counts as failed; default 5 s.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.datagram.answer_timeout = timeout;
        self
    }
}

/// Opens a KCP connection on the current worker. KCP has no handshake: it stands at once, [`Protocol::on_open`] has been
/// called when this returns, and whether somebody is there shows when something is sent.
///
/// The connection ends with `CloseReason::Io` of kind `ConnectionRefused` when nobody has the port, and of kind
/// `TimedOut` when nothing is answered within [`ClientOptions::answer_timeout`]; so it does when the keys differ.
///
/// # Errors
/// A setting is out of range, or the kernel refuses the socket.
///
/// # Panics
/// Outside a worker.
pub fn connect(
    peer: SocketAddr,
    options: &ClientOptions,
    connection: Rc<ConnectionOptions>,
    protocol: impl Protocol,
) -> io::Result<Connection> {
    let peer = datagram::reachable(peer);
    datagram::connect(DatagramKind::Kcp, peer, &options.datagram, connection, Box::new(protocol))
}
