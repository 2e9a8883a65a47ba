//! What is particular to `kcp://`: the settings of a conversation, and encryption with a key that both ends know.
//!
//! Servers and clients take a [`Config`] and a [`Key`] by their own methods (`kcp_config`, `kcp_key`). A URI can name
//! the place of a key, never the key itself, and change single settings:
//! `kcp://10.0.0.1:7000?key-file=/etc/app.key&congestion=bbr&windows-max=8192`.
//!
//! | parameter | means |
//! |---|---|
//! | `key-file=PATH`, `key-env=NAME` | where the key is kept; one that the program has set comes before it |
//! | `second-key-file=PATH`, `second-key-env=NAME` | the same of a key that is taken too, while keys are changed |
//! | `congestion=off`, `kcp`, `bbr` | [`Config::congestion`] |
//! | `windows-max=SEGMENTS` | [`Config::windows_max`] |
//! | `fec=DATA,PARITY` | [`Config::fec`]; both ends need it |
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
//! let reply = corewire::block_on(client.connect_blocking()?.request(b"secret"))?;
//! assert_eq!(&reply[..], b"secret");
//! # Ok(())
//! # }
//! ```

mod key;
mod parameters;

pub use corewire_proto::kcp::{Config, CongestionControl, Mode};

pub use self::key::{Key, KeyError, KeySource};
pub(crate) use self::parameters::{Parameters, Refused};
