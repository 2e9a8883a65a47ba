//! What is particular to `tls://`: certificates, and whom to trust.
//!
//! A URI names files in PEM, so that nothing else need be said:
//!
//! | parameter | of a server | of a client |
//! |---|---|---|
//! | `cert` | its certificate, and those between it and the CA; required | its certificate, if the server asks for one |
//! | `key` | the private key of it; required | the same |
//! | `client-ca` | clients must have a certificate of this CA (mutual TLS); default: nobody is asked | – |
//! | `ca` | – | servers must have a certificate of this CA; default: those that this machine trusts |
//! | `server-name` | – | what the server's certificate must be for; default: the host of the URI |
//! | `alpn` | protocols, the best first, with commas between them; default: none | the same |
//!
//! `tls://*:7777?cert=server.pem&key=server.key&client-ca=ca.pem` is a server, and
//! `tls://10.0.0.1:7777?ca=ca.pem&cert=client.pem&key=client.key&server-name=app.lan` a client of it. A configuration of `rustls`
//! says more: `ServerTls` and `ClientTls`, by the methods `tls` of servers and clients (feature `tls`).
//!
//! TLS 1.2 and 1.3 are spoken, and sessions are resumed. Early data (0-RTT) is off.

#[cfg(not(feature = "tls"))]
#[path = "absent.rs"]
mod files;
#[cfg(feature = "tls")]
mod files;

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(feature = "tls")]
pub use corewire_runtime::transport::tls::rustls;
pub use corewire_runtime::transport::tls::{ClientTls, ServerName, ServerTls};
pub use corewire_runtime::{TlsError, TlsInfo, TlsVersion};

pub(crate) use self::files::{name_of, system_client};

/// The files of a TLS configuration, as a `tls` URI names them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct TlsFiles {
    /// The own certificate and those between it and its CA, in PEM.
    pub cert: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    pub key: Option<PathBuf>,
    /// Who has issued the certificates of servers, in PEM.
    pub ca: Option<PathBuf>,
    /// Who has issued the certificates of clients, in PEM.
    pub client_ca: Option<PathBuf>,
    /// What the certificate of the server must be for.
    pub server_name: Option<String>,
    /// Protocols for ALPN, the best first.
    pub alpn: Vec<String>,
}

impl TlsFiles {
    /// Reads the files of a server.
    ///
    /// # Errors
    /// A file is missing or is not what it should be, or the feature `tls` is off.
    pub fn server(&self) -> Result<ServerTls, TlsConfigError> {
        if self.ca.is_some() || self.server_name.is_some() {
            return Err(TlsConfigError::OfClient);
        }
        files::server(self)
    }

    /// Reads the files anew, for the connections from now on. If something is wrong with them the server goes on with what
    /// it has.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub fn reload(&self, server: &ServerTls) -> Result<(), TlsConfigError> {
        files::reload(self, server)
    }

    /// Reads the files of a client.
    ///
    /// # Errors
    /// As [`server`](Self::server).
    pub fn client(&self) -> Result<ClientTls, TlsConfigError> {
        if self.client_ca.is_some() {
            return Err(TlsConfigError::OfServer);
        }
        files::client(self)
    }

    pub(crate) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Takes a parameter of a URI; false if there is none of this name, or it has one already.
    pub(crate) fn set(&mut self, name: &str, value: &str) -> bool {
        if value.is_empty() {
            return false;
        }
        let path = match name {
            "cert" => &mut self.cert,
            "key" => &mut self.key,
            "ca" => &mut self.ca,
            "client-ca" => &mut self.client_ca,
            "server-name" => return self.server_name.replace(value.to_owned()).is_none(),
            "alpn" if self.alpn.is_empty() => {
                self.alpn = value.split(',').map(str::to_owned).collect();
                return self.alpn.iter().all(|protocol| !protocol.is_empty());
            }
            _ => return false,
        };
        path.replace(value.into()).is_none()
    }
}

/// As it stands in a URI.
impl fmt::Display for TlsFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let paths =
            [("cert", &self.cert), ("key", &self.key), ("ca", &self.ca), ("client-ca", &self.client_ca)];
        let mut separator = "";
        for (name, path) in paths {
            if let Some(path) = path {
                write!(f, "{separator}{name}={}", path.display())?;
                separator = "&";
            }
        }
        if let Some(name) = &self.server_name {
            write!(f, "{separator}server-name={name}")?;
            separator = "&";
        }
        if !self.alpn.is_empty() {
            write!(f, "{separator}alpn={}", self.alpn.join(","))?;
        }
        Ok(())
    }
}

/// TLS cannot be configured so.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsConfigError {
    /// The program was built without TLS.
    #[error("tls:// needs the feature `tls` of corewire, which is off: build with it")]
    NotBuilt,
    /// A server has no certificate or no key.
    #[error(
        "a server on tls:// needs a certificate and its key: write tls://HOST:PORT?cert=server.pem&key=server.key, or give \
         it a configuration by .tls(…)"
    )]
    NoCertificate,
    /// A client has a certificate without a key, or the reverse.
    #[error("{present}= is given and {missing}= is not: a certificate and its key go together")]
    Incomplete {
        /// What is there.
        present: &'static str,
        /// What is not.
        missing: &'static str,
    },
    /// A parameter of clients is given to a server.
    #[error(
        "ca= and server-name= are of clients: a server that asks clients for certificates takes client-ca="
    )]
    OfClient,
    /// A parameter of servers is given to a client.
    #[error("client-ca= is of servers: a client says by ca= whom it trusts")]
    OfServer,
    /// A file cannot be read.
    #[error("cannot read {name}={}: {source}", path.display())]
    File {
        /// The parameter.
        name: &'static str,
        /// Its value.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A file is not what it should be.
    #[error("{name}={} {problem}", path.display())]
    Content {
        /// The parameter.
        name: &'static str,
        /// Its value.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// The certificates that this machine trusts cannot be had.
    #[error("this machine has no certificates of CAs that it trusts ({0}): name one by ca=")]
    NoSystemRoots(String),
    /// A certificate cannot be for this name.
    #[error(
        "{name:?} is neither a name nor an address that a certificate can be for: set another by server-name="
    )]
    ServerName {
        /// The name.
        name: String,
    },
    /// The files do not go together.
    #[error("cert={} and key={} do not go together: {problem}", cert.display(), key.display())]
    Mismatch {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// There are no files to read anew.
    #[error(
        "this server does not serve TLS from files that a URI names: replace its configuration by ServerTls::replace"
    )]
    NotFromFiles,
}
