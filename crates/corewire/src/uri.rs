//! Addresses of servers and clients as text: `tcp://127.0.0.1:7777`, `udp://*:0`, `unix:///run/app.sock`.

mod error;
mod parse;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::str::FromStr;

pub use error::UriError;

use crate::kcp::{KeySource, Parameters};
use crate::tls::TlsFiles;

/// Where a server listens or a client connects: `[scheme "://"] host [":" port] [rest]`.
///
/// - The scheme is one of [`Scheme`], in any case; without one it is `tcp`.
/// - The host is a name, an IPv4 address, an IPv6 address (in brackets, or bare if no port follows), or `*` for
///   any address. `unix://` has `/path` or `@abstract` in its place, and neither port nor rest.
/// - The port is 0 to 65,535. `http` and `ws` default to 80, `https` and `wss` to 443.
/// - The rest, from the first `/`, `?` or `#`, is ignored; but `kcp` and `tls` take the parameters that the modules
///   [`kcp`](crate::kcp) and [`tls`](crate::tls) list, such as `?key-file=PATH` and `?ca=PATH`, and nothing else after a `?`.
///   (`#` and `&` cannot be part of them.)
///
/// Names, schemes and addresses are brought to one form, so that equal addresses compare equal and
/// [`Display`](fmt::Display) writes what [`parse`](Self::parse) reads back.
///
/// ```
/// use corewire::uri::{NetUri, Scheme};
///
/// let uri = NetUri::parse("HTTP://Example.org/index.html")?;
/// assert_eq!(uri.scheme(), Scheme::Http);
/// assert_eq!(uri.port(), Some(80));
/// assert_eq!(uri.to_string(), "http://example.org:80");
///
/// // A bare IPv6 address has no port.
/// assert_eq!(NetUri::parse("2001:db8::1")?.port(), None);
/// assert_eq!(NetUri::parse("[2001:db8::1]:7777")?.port(), Some(7777));
/// # Ok::<(), corewire::uri::UriError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NetUri {
    scheme: Scheme,
    host: Host,
    port: Option<u16>,
    kcp: Parameters,
    tls: Option<Box<TlsFiles>>,
}

/// The protocols that a [`NetUri`] can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Scheme {
    /// `tcp`, which is also the default.
    Tcp,
    /// `udp`.
    Udp,
    /// `http`, port 80.
    Http,
    /// `https`, port 443.
    Https,
    /// `ws`, WebSocket, port 80.
    Ws,
    /// `wss`, WebSocket over TLS, port 443.
    Wss,
    /// `unix`, a stream socket in the file system, or abstract (Linux).
    Unix,
    /// `kcp`, KCP over UDP.
    Kcp,
    /// `tls`, TLS over TCP.
    Tls,
}

/// The host of a [`NetUri`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Host {
    /// `*`: any address, IPv4 and IPv6.
    Any,
    /// An IP address.
    Ip(IpAddr),
    /// A name to resolve, in lower case.
    Name(String),
    /// The path of a Unix socket. It begins with `/`.
    UnixPath(String),
    /// The name of a Unix socket in Linux's abstract namespace, without the `@`.
    UnixAbstract(String),
}

impl NetUri {
    /// The longest text that [`parse`](Self::parse) looks at, in bytes: 4,096.
    pub const LEN_MAX: usize = 4_096;
    /// The longest host name, in bytes: 253, the limit of DNS.
    pub const NAME_LEN_MAX: usize = 253;
    /// The longest path or abstract name of a Unix socket, in bytes: 107, the limit of Linux.
    pub const UNIX_LEN_MAX: usize = 107;

    /// Reads a URI. White space around it is ignored.
    ///
    /// # Errors
    ///
    /// [`UriError`] tells which part is wrong and how to write it.
    pub fn parse(text: &str) -> Result<Self, UriError> {
        parse::parse(text)
    }

    /// The protocol.
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// The host, or the path or name of a Unix socket.
    pub fn host(&self) -> &Host {
        &self.host
    }

    /// The port: as written, or else the scheme's default, if it has one.
    pub fn port(&self) -> Option<u16> {
        self.port
    }

    /// Where the key of a `kcp` URI is kept, if it has one.
    pub fn key_source(&self) -> Option<&KeySource> {
        self.kcp.key.as_ref()
    }

    /// What it says of KCP.
    pub(crate) const fn kcp_parameters(&self) -> &Parameters {
        &self.kcp
    }

    /// The files of certificates that a `tls` URI names, if it names some.
    pub fn tls_files(&self) -> Option<&TlsFiles> {
        self.tls.as_deref()
    }

    /// Whether the host is `*`. The addresses `0.0.0.0` and `::` stand for one family each and are not.
    pub fn is_any(&self) -> bool {
        self.host == Host::Any
    }

    /// The same with another port. A Unix socket has none and stays as it is.
    #[must_use]
    pub fn with_port(&self, port: u16) -> Self {
        let port = if self.scheme == Scheme::Unix { None } else { Some(port) };
        Self { port, ..self.clone() }
    }

    /// The socket addresses, at least one, in the resolver's order. `*` gives `0.0.0.0` and `::`, in this order.
    ///
    /// This **blocks** while a name is looked up: call it from the blocking pool, not from a worker.
    ///
    /// # Errors
    ///
    /// [`UriError::MissingPort`] without a port, [`UriError::NotAnIpAddress`] for a Unix socket,
    /// [`UriError::Unresolvable`] when the name is not found or the resolver fails.
    pub fn resolve(&self) -> Result<Vec<SocketAddr>, UriError> {
        self.resolve_with(|name, port| Ok((name, port).to_socket_addrs()?.collect()))
    }

    fn resolve_with(
        &self,
        look_up: impl FnOnce(&str, u16) -> io::Result<Vec<SocketAddr>>,
    ) -> Result<Vec<SocketAddr>, UriError> {
        let port = || self.port.ok_or_else(|| UriError::MissingPort { uri: self.to_string() });
        match &self.host {
            Host::Any => {
                let port = port()?;
                Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()])
            }
            Host::Ip(ip) => Ok(vec![(*ip, port()?).into()]),
            Host::Name(name) => match look_up(name, port()?) {
                Ok(addresses) if addresses.is_empty() => {
                    let source = io::Error::new(io::ErrorKind::NotFound, "it has no address");
                    Err(UriError::Unresolvable { host: name.clone(), source })
                }
                Ok(addresses) => Ok(addresses),
                Err(source) => Err(UriError::Unresolvable { host: name.clone(), source }),
            },
            Host::UnixPath(_) | Host::UnixAbstract(_) => {
                Err(UriError::NotAnIpAddress { uri: self.to_string() })
            }
        }
    }
}

impl FromStr for NetUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        Self::parse(text)
    }
}

impl fmt::Display for NetUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        if let Some(port) = self.port {
            write!(f, ":{port}")?;
        }
        write!(f, "{}", self.kcp)?;
        match &self.tls {
            Some(files) => write!(f, "?{files}"),
            None => Ok(()),
        }
    }
}

impl Scheme {
    const ALL: [Self; 9] = [
        Self::Tcp,
        Self::Udp,
        Self::Http,
        Self::Https,
        Self::Ws,
        Self::Wss,
        Self::Unix,
        Self::Kcp,
        Self::Tls,
    ];

    /// The scheme in lower case, as it stands before `://`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Http => "http",
            Self::Https => "https",
            Self::Ws => "ws",
            Self::Wss => "wss",
            Self::Unix => "unix",
            Self::Kcp => "kcp",
            Self::Tls => "tls",
        }
    }

    /// The port that a URI without one means: 80 for `http` and `ws`, 443 for `https` and `wss`, else none.
    pub fn default_port(self) -> Option<u16> {
        match self {
            Self::Http | Self::Ws => Some(80),
            Self::Https | Self::Wss => Some(443),
            Self::Tcp | Self::Udp | Self::Unix | Self::Kcp | Self::Tls => None,
        }
    }
}

impl fmt::Display for Scheme {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// As it stands in a URI: IPv6 in brackets, abstract names after `@`.
impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("*"),
            Self::Ip(IpAddr::V4(ip)) => write!(f, "{ip}"),
            Self::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]"),
            Self::Name(text) | Self::UnixPath(text) => f.write_str(text),
            Self::UnixAbstract(name) => write!(f, "@{name}"),
        }
    }
}
