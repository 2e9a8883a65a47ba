//! Certificates for tests, in files.

#![allow(clippy::unwrap_used)] // a panic is a failed test

use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

/// A directory with a CA and certificates of it, for a server (`localhost` and 127.0.0.1) and a client; it goes with this.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
}

impl Files {
    /// `test` names the directory and the CA.
    pub fn new(test: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("corewire-tls-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let files = Self { directory };
        files.issue(test);
        files
    }

    /// Writes a new CA of this name, and certificates for a server and a client.
    pub fn issue(&self, authority: &str) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.distinguished_name.push(DnType::CommonName, authority);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        self.write("ca.pem", &issuer.pem());
        for (file, names) in [("server", vec!["localhost", "127.0.0.1"]), ("client", vec!["client.lan"])] {
            let names: Vec<String> = names.into_iter().map(str::to_owned).collect();
            let key = KeyPair::generate().unwrap();
            let certificate = CertificateParams::new(names).unwrap().signed_by(&key, &issuer).unwrap();
            self.write(&format!("{file}.pem"), &certificate.pem());
            self.write(&format!("{file}.key"), &key.serialize_pem());
        }
    }

    /// Writes a file.
    pub fn write(&self, name: &str, content: &str) {
        std::fs::write(self.path(name), content).unwrap();
    }

    /// Where a file is: `ca.pem`, `server.pem`, `server.key`, `client.pem`, `client.key`.
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// The same as text.
    pub fn shown(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// What a server's URI needs.
    pub fn of_server(&self) -> String {
        format!("cert={}&key={}", self.shown("server.pem"), self.shown("server.key"))
    }

    /// What a client's URI needs, if it is asked who it is.
    pub fn of_client(&self) -> String {
        format!("cert={}&key={}", self.shown("client.pem"), self.shown("client.key"))
    }

    /// What a client's URI needs to trust the server.
    pub fn ca(&self) -> String {
        format!("ca={}", self.shown("ca.pem"))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}
