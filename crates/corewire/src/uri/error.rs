use std::io;

use super::NetUri;

/// What is wrong with the text of a [`NetUri`], or with what it names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UriError {
    /// The text is longer than [`NetUri::LEN_MAX`].
    #[error("the URI has {len} bytes, over the limit of {}", NetUri::LEN_MAX)]
    TooLong {
        /// Its length in bytes.
        len: usize,
    },
    /// The word before `://` is no known scheme.
    #[error(
        "unknown scheme {scheme:?} in {uri:?}; use tcp, tls, udp, kcp, unix, http, https, ws or wss, or leave it out for tcp"
    )]
    UnknownScheme {
        /// The word.
        scheme: String,
        /// The whole text.
        uri: String,
    },
    /// No host where one should stand.
    #[error("no host in {uri:?}; write a name, an address, or * for any address, as in tcp://*:7777")]
    EmptyHost {
        /// The whole text.
        uri: String,
    },
    /// The host is neither a name nor an IPv4 address.
    #[error("invalid host {host:?}: {reason}")]
    InvalidHost {
        /// The host.
        host: String,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// The host has brackets or several colons but is no IPv6 address.
    #[error(
        "invalid IPv6 address {host:?}; with a port, write it in brackets, as in tcp://[2001:db8::1]:7777"
    )]
    InvalidIpv6 {
        /// The host.
        host: String,
    },
    /// What follows the host's colon is no number.
    #[error("invalid port {port:?} in {uri:?}; write a number from 0 to 65535 after the colon")]
    InvalidPort {
        /// The text in place of the port.
        port: String,
        /// The whole text.
        uri: String,
    },
    /// The port is over 65,535.
    #[error("port {port} in {uri:?} is over 65535; write a number from 0 to 65535")]
    PortTooLarge {
        /// The digits of the port.
        port: String,
        /// The whole text.
        uri: String,
    },
    /// The address of a Unix socket is not usable.
    #[error("invalid Unix socket address {uri:?}: {reason}")]
    InvalidUnixAddress {
        /// The whole text.
        uri: String,
        /// What is wrong with it, and what to do.
        reason: &'static str,
    },
    /// What follows the `?` of a `kcp` URI is not known, or has no value.
    #[error(
        "invalid parameter {name:?} of a kcp URI; write key-file=PATH or key-env=NAME (a key itself has no place in a URI), the same with second- before it, congestion=off, kcp or bbr, windows-max=SEGMENTS, fec=DATA,PARITY, or leave it out"
    )]
    InvalidParameter {
        /// Its name.
        name: String,
    },
    /// What follows the `?` of a `tls` URI is not known, has no value, or stands there twice.
    #[error(
        "invalid parameter {name:?} of {host}; each of cert=PATH, key=PATH, ca=PATH, client-ca=PATH, server-name=NAME and \
         alpn=NAME,NAME may stand there once"
    )]
    InvalidTlsParameter {
        /// Its name.
        name: String,
        /// The text before the `?`.
        host: String,
    },
    /// A `kcp` URI has a parameter twice, or two for one thing.
    #[error("{name} is given twice, or beside another for the same thing; leave one of them")]
    RepeatedParameter {
        /// The second of them.
        name: String,
    },
    /// A port is needed and the scheme has no default.
    #[error("no port in {uri}; add one after the host, as in tcp://127.0.0.1:7777")]
    MissingPort {
        /// The URI.
        uri: String,
    },
    /// A Unix socket has no IP address to resolve.
    #[error("{uri} is a Unix socket and has no IP address; connect to its path instead")]
    NotAnIpAddress {
        /// The URI.
        uri: String,
    },
    /// The name could not be resolved.
    #[error("cannot resolve host {host:?}: {source}; check the name and the resolver")]
    Unresolvable {
        /// The name.
        host: String,
        /// What the resolver said.
        source: io::Error,
    },
}
