//! Certificates for tests, made anew for each.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use corewire_runtime::transport::tls::rustls::pki_types::pem::PemObject;
use corewire_runtime::transport::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use corewire_runtime::transport::tls::rustls::server::WebPkiClientVerifier;
use corewire_runtime::transport::tls::rustls::version::{TLS12, TLS13};
use corewire_runtime::transport::tls::rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion, crypto::aws_lc_rs,
};
use corewire_runtime::transport::tls::{ClientTls, ServerName, ServerTls};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

pub type Versions = &'static [&'static SupportedProtocolVersion];

pub const ONLY_12: Versions = &[&TLS12];
pub const ONLY_13: Versions = &[&TLS13];
pub const BOTH: Versions = &[&TLS13, &TLS12];

/// A CA.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// A certificate and its key.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Two of the same name would be taken for one that has changed its key.
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        params.distinguished_name.push(rcgen::DnType::CommonName, format!("authority {number}"));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub fn roots(&self) -> Arc<RootCertStore> {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).unwrap();
        Arc::new(roots)
    }

    pub fn identity(&self, name: &str) -> Identity {
        self.identity_with(name, |_| {})
    }

    pub fn identity_with(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> Identity {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        Identity {
            chain: vec![certificate.der().clone()],
            key: PrivateKeyDer::from_pem_slice(key.serialize_pem().as_bytes()).unwrap(),
        }
    }

    /// A server of the name `localhost` that asks clients for nothing.
    pub fn server(&self, versions: Versions) -> ServerTls {
        ServerTls::new(self.server_config(versions, self.identity("localhost")))
    }

    pub fn server_config(&self, versions: Versions, identity: Identity) -> ServerConfig {
        ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(identity.chain, identity.key)
            .unwrap()
    }

    /// A server that asks clients for a certificate of this authority.
    pub fn mutual(&self, versions: Versions) -> ServerConfig {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(self.roots(), provider.clone()).build().unwrap();
        let identity = self.identity("localhost");
        ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(versions)
            .unwrap()
            .with_client_cert_verifier(verifier)
            .with_single_cert(identity.chain, identity.key)
            .unwrap()
    }

    /// A client that trusts this authority and has no certificate.
    pub fn client(&self, versions: Versions) -> ClientTls {
        ClientTls::new(self.client_config(versions, None))
    }

    pub fn client_config(&self, versions: Versions, identity: Option<Identity>) -> ClientConfig {
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(versions)
            .unwrap()
            .with_root_certificates(self.roots());
        match identity {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key).unwrap(),
            None => builder.with_no_client_auth(),
        }
    }
}

pub fn name(name: &str) -> ServerName {
    ServerName::try_from(name.to_owned()).unwrap()
}
