//! What is known of a connection over TLS, and why one failed. Here whether or not the feature `tls` is on, so that who asks
//! need not know.

use std::fmt;
use std::time::Duration;

/// What was agreed in the handshake of a TLS connection.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TlsInfo {
    /// The version of the protocol.
    pub version: TlsVersion,
    /// The cipher suite by its name in the registry of IANA, such as `TLS13_AES_256_GCM_SHA384`.
    pub cipher_suite: String,
    /// The protocol chosen by ALPN, if both ends named some.
    pub alpn: Option<Vec<u8>>,
    /// The name that the client asked for (SNI); `None` if it asked for none, or for an IP address.
    pub server_name: Option<String>,
    /// The certificates of the peer in DER, its own first, verified. Of a client: empty unless the server asks for them
    /// (mutual TLS).
    pub peer_certificates: Vec<Vec<u8>>,
    /// The handshake took up an earlier session: no certificate was sent, those above are that session's.
    pub resumed: bool,
}

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl fmt::Display for TlsVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tls12 => "TLS 1.2",
            Self::Tls13 => "TLS 1.3",
        })
    }
}

/// Why a connection over TLS ended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// What arrived is not TLS.
    #[error(
        "the peer does not speak TLS: its first bytes are {start:?}; use tls:// on both sides or on neither"
    )]
    NotTls {
        /// The first bytes.
        start: String,
    },
    /// The handshake took too long.
    #[error(
        "the TLS handshake was not complete after {0:?}: the peer may not speak TLS, or raise the handshake timeout"
    )]
    HandshakeTimeout(Duration),
    /// The peer closed, or was lost, during the handshake.
    #[error("the peer closed the connection during the TLS handshake; its own log should say why")]
    ClosedInHandshake,
    /// The certificate of the peer is not trusted.
    #[error("the certificate of the peer is not trusted: {0}")]
    Certificate(String),
    /// The peer ended the connection with an alert.
    #[error("the peer refuses with the TLS alert {alert}{}", with_hint(.hint))]
    Alert {
        /// Its name.
        alert: String,
        /// What may have caused it.
        hint: &'static str,
    },
    /// The two have no version, cipher suite, key exchange or ALPN protocol in common.
    #[error("the peer has nothing in common with this side: {0}; widen the TLS configuration of one of them")]
    Incompatible(String),
    /// The stream ended without a close_notify: what is missing at its end, nobody can tell.
    #[error(
        "the stream was cut: the peer ended the connection without a TLS close_notify, so its last bytes may be missing"
    )]
    Truncated,
    /// A record was changed on its way.
    #[error("a TLS record cannot be decrypted: it was changed on its way, or the peer is at fault")]
    Corrupted,
    /// The peer broke the protocol.
    #[error("the peer broke the TLS protocol: {0}")]
    Protocol(String),
    /// So much was sent by one key that it would no longer be safe, and TLS 1.2 cannot change it.
    #[error("the key of this TLS 1.2 connection is used up after 256 GiB: connect again, or use TLS 1.3")]
    KeyExhausted,
    /// This side cannot do what it was configured for.
    #[error("TLS on this side: {0}")]
    Local(String),
}

fn with_hint(hint: &str) -> String {
    if hint.is_empty() { String::new() } else { format!(": {hint}") }
}
