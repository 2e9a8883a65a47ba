//! From PEM files to configurations of `rustls`.

use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use corewire_runtime::transport::tls::rustls::crypto::{CryptoProvider, aws_lc_rs};
use corewire_runtime::transport::tls::rustls::pki_types::pem::{self, PemObject};
use corewire_runtime::transport::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use corewire_runtime::transport::tls::rustls::server::WebPkiClientVerifier;
use corewire_runtime::transport::tls::rustls::{ClientConfig, Error, RootCertStore, ServerConfig};

use super::{ClientTls, ServerName, ServerTls, TlsConfigError, TlsFiles};

type Chain = Vec<CertificateDer<'static>>;

pub(super) fn server(files: &TlsFiles) -> Result<ServerTls, TlsConfigError> {
    server_config(files).map(ServerTls::new)
}

pub(super) fn reload(files: &TlsFiles, server: &ServerTls) -> Result<(), TlsConfigError> {
    server_config(files).map(|config| server.replace(config))
}

fn server_config(files: &TlsFiles) -> Result<ServerConfig, TlsConfigError> {
    let (Some((chain, key)), Some(mismatch)) = (identity(files)?, mismatch(files)) else {
        return Err(TlsConfigError::NoCertificate);
    };
    let builder = ServerConfig::builder_with_provider(provider());
    let builder = builder.with_safe_default_protocol_versions().map_err(&mismatch)?;
    let builder = match &files.client_ca {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let roots = Arc::new(roots("client-ca", path)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider()).build();
            builder.with_client_cert_verifier(
                verifier.map_err(|error| content("client-ca", path, format!("cannot be used: {error}")))?,
            )
        }
    };
    let mut config = builder.with_single_cert(chain, key).map_err(&mismatch)?;
    config.alpn_protocols = alpn(files);
    // Sessions of many clients are resumed without memory for each.
    if let Ok(ticketer) = aws_lc_rs::Ticketer::new() {
        config.ticketer = ticketer;
    }
    Ok(config)
}

pub(super) fn client(files: &TlsFiles) -> Result<ClientTls, TlsConfigError> {
    let trusted = match &files.ca {
        Some(path) => roots("ca", path)?,
        None => system_roots()?,
    };
    let builder = ClientConfig::builder_with_provider(provider());
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsConfigError::NoSystemRoots(error.to_string()))?
        .with_root_certificates(trusted);
    let mut config = match (identity(files)?, mismatch(files)) {
        (Some((chain, key)), Some(mismatch)) => {
            builder.with_client_auth_cert(chain, key).map_err(mismatch)?
        }
        _ => builder.with_no_client_auth(),
    };
    config.alpn_protocols = alpn(files);
    let tls = ClientTls::new(config);
    match &files.server_name {
        Some(name) => Ok(tls.with_server_name(server_name(name)?)),
        None => Ok(tls),
    }
}

/// A client that trusts whom this machine does. The first asks the system, all share the sessions.
pub(crate) fn system_client() -> Result<ClientTls, TlsConfigError> {
    static SYSTEM: Mutex<Option<ClientTls>> = Mutex::new(None);
    let mut system = SYSTEM.lock().unwrap_or_else(PoisonError::into_inner);
    match &*system {
        Some(tls) => Ok(tls.clone()),
        None => Ok(system.insert(client(&TlsFiles::default())?).clone()),
    }
}

/// What the certificate of a server at this host must be for.
pub(crate) fn name_of(tls: &ClientTls, host: &str) -> Result<ServerName, TlsConfigError> {
    tls.server_name().cloned().map_or_else(|| server_name(host), Ok)
}

fn server_name(name: &str) -> Result<ServerName, TlsConfigError> {
    ServerName::try_from(name.to_owned()).map_err(|_| TlsConfigError::ServerName { name: name.to_owned() })
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn alpn(files: &TlsFiles) -> Vec<Vec<u8>> {
    files.alpn.iter().map(|protocol| protocol.clone().into_bytes()).collect()
}

/// The own certificate and its key.
fn identity(files: &TlsFiles) -> Result<Option<(Chain, PrivateKeyDer<'static>)>, TlsConfigError> {
    match (&files.cert, &files.key) {
        (Some(cert), Some(key)) => {
            let chain = certificates("cert", cert)?;
            let found = PrivateKeyDer::from_pem_file(key);
            let what = "a private key (-----BEGIN PRIVATE KEY-----, without a pass phrase)";
            Ok(Some((chain, found.map_err(|error| pem_error("key", key, error, what))?)))
        }
        (Some(_), None) => Err(TlsConfigError::Incomplete { present: "cert", missing: "key" }),
        (None, Some(_)) => Err(TlsConfigError::Incomplete { present: "key", missing: "cert" }),
        (None, None) => Ok(None),
    }
}

/// Says that the two do not go together.
fn mismatch(files: &TlsFiles) -> Option<impl Fn(Error) -> TlsConfigError> {
    let (cert, key) = (files.cert.clone()?, files.key.clone()?);
    Some(move |error: Error| TlsConfigError::Mismatch {
        cert: cert.clone(),
        key: key.clone(),
        problem: match error {
            Error::InconsistentKeys(_) => "the key is that of another certificate".to_owned(),
            other => other.to_string(),
        },
    })
}

fn roots(name: &'static str, path: &Path) -> Result<RootCertStore, TlsConfigError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(name, path)? {
        let added = roots.add(certificate);
        added.map_err(|error| {
            content(name, path, format!("has a certificate that cannot be used: {error}"))
        })?;
    }
    Ok(roots)
}

fn system_roots() -> Result<RootCertStore, TlsConfigError> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let errors: Vec<_> = found.errors.iter().map(ToString::to_string).collect();
        let none = || "there are none".to_owned();
        return Err(TlsConfigError::NoSystemRoots(errors.first().cloned().unwrap_or_else(none)));
    }
    Ok(roots)
}

fn certificates(name: &'static str, path: &Path) -> Result<Chain, TlsConfigError> {
    let what = "a certificate (-----BEGIN CERTIFICATE-----)";
    let error = |error| pem_error(name, path, error, what);
    let found: Result<Chain, _> = CertificateDer::pem_file_iter(path).map_err(error)?.collect();
    let found = found.map_err(error)?;
    if found.is_empty() {
        return Err(error(pem::Error::NoItemsFound));
    }
    Ok(found)
}

fn pem_error(name: &'static str, path: &Path, error: pem::Error, what: &str) -> TlsConfigError {
    match error {
        pem::Error::Io(source) if source.kind() == io::ErrorKind::InvalidData => {
            content(name, path, format!("is not PEM: it should have {what}"))
        }
        pem::Error::Io(source) => TlsConfigError::File { name, path: path.to_owned(), source },
        pem::Error::NoItemsFound => content(name, path, format!("has no PEM block of {what}")),
        other => content(name, path, format!("is broken PEM ({other}): it should have {what}")),
    }
}

fn content(name: &'static str, path: &Path, problem: String) -> TlsConfigError {
    TlsConfigError::Content { name, path: path.to_owned(), problem }
}
