//! The options of TLS: another way to write the parameters of a `tls` URI.

use std::path::{Path, PathBuf};

use clap::Args;
use corewire::tls::{ClientTls, TlsFiles};

use crate::failure::Failure;

/// Certificates of a client, and whom it trusts.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct TlsArgs {
    /// Trust servers with a certificate of this CA, a PEM file, on `tls://` [default: those that this machine trusts]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca: Option<PathBuf>,
    /// The own certificate, a PEM file, for servers on `tls://` that ask for one
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of it, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// What the certificate of the server must be for [default: the host of the URI]
    #[arg(long, value_name = "NAME")]
    pub(crate) server_name: Option<String>,
}

/// Certificates of a server, and which clients it takes.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct ServeTlsArgs {
    /// The certificate to serve `tls://` with, and those between it and its CA, a PEM file
    #[arg(long, value_name = "FILE", requires = "key")]
    pub(crate) cert: Option<PathBuf>,
    /// The private key of it, a PEM file
    #[arg(long, value_name = "FILE", requires = "cert")]
    pub(crate) key: Option<PathBuf>,
    /// Take only clients with a certificate of this CA, a PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca: Option<PathBuf>,
}

impl TlsArgs {
    /// The URI with these parameters.
    pub(crate) fn apply(&self, uri: &str) -> Result<String, Failure> {
        let mut parameters = Parameters::new(uri);
        parameters.file("ca", self.ca.as_deref())?;
        parameters.file("cert", self.cert.as_deref())?;
        parameters.file("key", self.key.as_deref())?;
        parameters.add("server-name", self.server_name.clone())?;
        Ok(parameters.uri)
    }
}

impl TlsArgs {
    /// How TLS is spoken with servers that a registry names; `None`: as this machine does.
    pub(crate) fn client(&self) -> Result<Option<ClientTls>, Failure> {
        let mut files = TlsFiles::default();
        (files.ca, files.cert, files.key) = (self.ca.clone(), self.cert.clone(), self.key.clone());
        files.server_name = self.server_name.clone();
        match files == TlsFiles::default() {
            true => Ok(None),
            false => files.client().map(Some).map_err(|error| Failure::Library(error.to_string())),
        }
    }
}

impl ServeTlsArgs {
    /// The URI with these parameters.
    pub(crate) fn apply(&self, uri: &str) -> Result<String, Failure> {
        let mut parameters = Parameters::new(uri);
        parameters.file("cert", self.cert.as_deref())?;
        parameters.file("key", self.key.as_deref())?;
        parameters.file("client-ca", self.client_ca.as_deref())?;
        Ok(parameters.uri)
    }
}

struct Parameters {
    uri: String,
}

impl Parameters {
    fn new(uri: &str) -> Self {
        Self { uri: uri.to_owned() }
    }

    fn file(&mut self, name: &str, path: Option<&Path>) -> Result<(), Failure> {
        self.add(name, path.map(|path| path.display().to_string()))
    }

    fn add(&mut self, name: &str, value: Option<String>) -> Result<(), Failure> {
        let Some(value) = value else { return Ok(()) };
        if !self.uri.starts_with("tls://") {
            return Err(Failure::Usage(format!("--{name} is for tls://, and not for {}", self.uri)));
        }
        if value.contains(['&', '#']) {
            return Err(Failure::Usage(format!("--{name} {value}: a path with & or # cannot be given")));
        }
        let separator = if self.uri.contains('?') { '&' } else { '?' };
        self.uri += &format!("{separator}{name}={value}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_parameters_of_the_uri() {
        let options = TlsArgs {
            ca: Some("ca.pem".into()),
            server_name: Some("app.lan".to_owned()),
            ..TlsArgs::default()
        };
        assert_eq!(options.apply("tls://h:1").unwrap(), "tls://h:1?ca=ca.pem&server-name=app.lan");
        assert_eq!(
            options.apply("tls://h:1?alpn=x").unwrap(),
            "tls://h:1?alpn=x&ca=ca.pem&server-name=app.lan"
        );
        assert!(matches!(options.apply("tcp://h:1"), Err(Failure::Usage(_))));
        assert_eq!(TlsArgs::default().apply("tcp://h:1").unwrap(), "tcp://h:1");
        let serves = ServeTlsArgs { cert: Some("a#b".into()), ..ServeTlsArgs::default() };
        assert!(serves.apply("tls://h:1").is_err());
    }
}
