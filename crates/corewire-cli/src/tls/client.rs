//! The client of all rows: rustls on blocking sockets, one thread.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use corewire::tls::rustls::client::Resumption;
use corewire::tls::rustls::crypto::aws_lc_rs;
use corewire::tls::rustls::pki_types::CertificateDer;
use corewire::tls::rustls::pki_types::pem::PemObject;
use corewire::tls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::failure::Failure;
use crate::system;

/// Connections of an echo.
const CONNECTIONS: usize = 4;

pub(super) type Connection = StreamOwned<ClientConnection, TcpStream>;

pub(super) struct Client {
    address: String,
    /// Resumes no session.
    full: Arc<ClientConfig>,
    resuming: Arc<ClientConfig>,
}

impl Client {
    /// Runs on this core from now on.
    pub(super) fn new(address: &str, ca: &str, core: usize) -> Result<Self, Failure> {
        system::pin_to(core)?;
        let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
        let mut roots = RootCertStore::empty();
        let authority = CertificateDer::from_pem_file(ca).map_err(|error| library(&error))?;
        roots.add(authority).map_err(|error| library(&error))?;
        let config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| library(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let mut full = config.clone();
        full.resumption = Resumption::disabled();
        Ok(Self { address: address.to_owned(), full: Arc::new(full), resuming: Arc::new(config) })
    }

    pub(super) fn connect(&self) -> Result<Connection, Failure> {
        self.connect_by(&self.full)
    }

    fn connect_by(&self, config: &Arc<ClientConfig>) -> Result<Connection, Failure> {
        let failed = || Failure::io("a TLS connection of the load");
        let name = "localhost".try_into().map_err(|_| Failure::Setting("no name".into()))?;
        let connection = ClientConnection::new(config.clone(), name)
            .map_err(|error| Failure::Library(error.to_string()))?;
        let socket = TcpStream::connect(&self.address).map_err(failed())?;
        socket.set_nodelay(true).map_err(failed())?;
        let mut stream = StreamOwned::new(connection, socket);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock).map_err(failed())?;
        }
        Ok(stream)
    }

    /// Messages echoed, `depth` in flight on each connection, and in how many seconds. `begin` is called when the time does.
    pub(super) fn echo(
        &self,
        size: usize,
        depth: usize,
        duration: Duration,
        begin: &mut dyn FnMut() -> Result<(), Failure>,
    ) -> Result<(usize, f64), Failure> {
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut connection = self.connect()?;
            connection.conn.set_buffer_limit(None);
            connections.push(connection);
        }
        let sent = vec![0x5a; size * depth];
        let mut received = vec![0; size * depth];
        let mut round = |connections: &mut Vec<Connection>| -> Result<(), Failure> {
            for connection in connections.iter_mut() {
                connection.read_exact(&mut received).map_err(Failure::io("an echo over TLS"))?;
                connection.write_all(&sent).map_err(Failure::io("an echo over TLS"))?;
            }
            Ok(())
        };
        for connection in &mut connections {
            connection.write_all(&sent).map_err(Failure::io("an echo over TLS"))?;
        }
        let warm = Instant::now();
        while warm.elapsed() < duration / 5 {
            round(&mut connections)?;
        }
        begin()?;
        let (begun, mut rounds) = (Instant::now(), 0);
        while begun.elapsed() < duration {
            round(&mut connections)?;
            rounds += 1;
        }
        Ok((rounds * depth * CONNECTIONS, begun.elapsed().as_secs_f64()))
    }

    /// Handshakes one after the other, each with a byte echoed, and in how many seconds.
    pub(super) fn handshakes(&self, resumed: bool, duration: Duration) -> Result<(usize, f64), Failure> {
        let config = if resumed { &self.resuming } else { &self.full };
        let (begun, mut done) = (Instant::now(), 0);
        while begun.elapsed() < duration {
            let mut connection = self.connect_by(config)?;
            // Behind this are the session tickets.
            connection.write_all(b"x").map_err(Failure::io("an echo over TLS"))?;
            connection.read_exact(&mut [0]).map_err(Failure::io("an echo over TLS"))?;
            done += 1;
        }
        Ok((done, begun.elapsed().as_secs_f64()))
    }
}
