//! What can go wrong with a client.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::codec::EncodeError;
use corewire_runtime::{BuildError, SettingError};

use crate::kcp::KeyError;
use crate::tls::TlsConfigError;
use crate::uri::{Scheme, UriError};

/// A client could not connect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// The URI is wrong, or its host has no address.
    #[error(transparent)]
    Uri(#[from] UriError),
    /// No client for this scheme.
    #[error("a client cannot connect to \"{}\" yet: use tcp, tls, kcp, unix, or udp where no stream is needed", .0.as_str())]
    Scheme(Scheme),
    /// The key that the URI names cannot be had.
    #[error(transparent)]
    Key(#[from] KeyError),
    /// TLS cannot be configured so.
    #[error(transparent)]
    Tls(#[from] TlsConfigError),
    /// The address does not answer; the last one tried, if there are several.
    #[error("cannot connect to {address}: {source}")]
    Refused {
        /// Which.
        address: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// The address did not answer in time.
    #[error("cannot connect to {address}: no answer within {timeout:?}")]
    TimedOut {
        /// Which.
        address: String,
        /// The connect timeout.
        timeout: Duration,
    },
    /// Nothing could ever work with this setting.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// No worker can be had.
    #[error(transparent)]
    Runtime(#[from] BuildError),
    /// The worker has stopped.
    #[error("the client's worker has stopped: its runtime was shut down")]
    Stopped,
}

/// A call got no reply. Every call ends in exactly one of these or its reply.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered that the request failed; this is what it says.
    #[error("the server answers with an error: {}", String::from_utf8_lossy(.0))]
    Remote(Bytes),
    /// No reply in time. Whether the server has done the work is not known.
    #[error("no reply within {0:?}")]
    TimedOut(Duration),
    /// The connection was lost before the reply came. Whether the server has done the work is not known.
    #[error("the connection was lost before the reply came: {0}")]
    ConnectionLost(String),
    /// The codec cannot carry this payload; nothing was sent.
    #[error(transparent)]
    Encode(#[from] EncodeError),
    /// The codec has no requests.
    #[error("this client's codec has no requests: choose one that has, such as StandardCodec, by .codec(…)")]
    NoRequests,
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
}

/// A message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ClientSendError {
    /// The codec cannot carry this payload.
    #[error(transparent)]
    Encode(Box<EncodeError>),
    /// A connection was lost with this many bytes that had been accepted, and not sent; told by
    /// [`flush`](super::NetClient::flush). What the kernel had taken and the server had not got is not among them.
    #[error("the connection was lost with {unsent} bytes unsent")]
    ConnectionLost {
        /// Bytes, those of headers included.
        unsent: usize,
    },
    /// The client is closed.
    #[error("the client is closed")]
    Closed,
}

impl From<EncodeError> for ClientSendError {
    fn from(error: EncodeError) -> Self {
        Self::Encode(Box::new(error))
    }
}
