//! Why a server does not start.

use std::io;

use corewire_runtime::{BuildError, SettingError, SpawnError};

use crate::kcp::KeyError;
use crate::tls::TlsConfigError;
use crate::uri::{Scheme, UriError};

/// A server could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The URI is wrong, or its host has no address.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// No server for this scheme; of a [`ProtocolServer`](crate::ProtocolServer) neither for `udp`.
    #[error("{} cannot listen on \"{}\": use {}", whose(*.0).0, .0.as_str(), whose(*.0).1)]
    Scheme(Scheme),
    /// The key that the URI names cannot be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// TLS cannot be configured so.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {source}{}", hint(source))]
    Listen {
        /// Which.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Nothing could ever work with this setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The workers could not be started.
    #[error(transparent)]
    Runtime(#[from] BuildError),
    /// The runtime has stopped.
    #[error(transparent)]
    Stopped(#[from] SpawnError),
    /// It listens, but cannot be made known where it should be; it was stopped.
    #[error("the server cannot be registered: {0}")]
    Registration(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Signals cannot be received.
    #[error("cannot receive SIGINT and SIGTERM: {0}")]
    Signals(#[source] io::Error),
}

/// Who refuses the scheme, and what it takes.
fn whose(refused: Scheme) -> (&'static str, &'static str) {
    match refused {
        Scheme::Udp => ("a server of a protocol, which needs a stream of bytes,", "tcp, tls, kcp or unix"),
        _ => ("a server", "tcp, tls, udp, kcp or unix"),
    }
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another server has it: stop that one or choose another port (0: any free one)"
        }
        io::ErrorKind::PermissionDenied => "; ports below 1024 need a privilege: choose a higher one",
        io::ErrorKind::AddrNotAvailable => "; this machine has no such address",
        _ => "",
    }
}
