//! The server of the baseline: rustls over epoll, one thread, each call made where the event is seen.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

use clap::Args;
use corewire::tls::rustls::crypto::aws_lc_rs;
use corewire::tls::rustls::pki_types::pem::PemObject;
use corewire::tls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use corewire::tls::rustls::{ServerConfig, ServerConnection};
use rustix::event::epoll::EventFlags;

use crate::baseline::poll::Poll;
use crate::control::{Traffic, attend_server};
use crate::failure::Failure;
use crate::lists::{Cpus, cpus};
use crate::system;

const LISTENER: u64 = u64::MAX;
const BUFFER: usize = 64 * 1024;

/// Options of the baseline's server.
#[derive(Debug, Clone, Args)]
pub(crate) struct TlsBaselineArgs {
    /// Where to listen
    #[arg(long, value_name = "URI")]
    pub(crate) listen: String,
    /// The certificate, a PEM file
    #[arg(long, value_name = "FILE")]
    pub(crate) cert: String,
    /// The key of it
    #[arg(long, value_name = "FILE")]
    pub(crate) key: String,
    /// The core
    #[arg(long, value_name = "LIST", value_parser = cpus)]
    pub(crate) cpus: Cpus,
    /// Answer control lines on standard input
    #[arg(long, hide = true)]
    pub(crate) control: bool,
}

/// Echoes until standard input says `stop` or ends.
pub(crate) fn serve(args: &TlsBaselineArgs) -> Result<(), Failure> {
    let library = |error: &dyn std::fmt::Display| Failure::Library(error.to_string());
    let certificate = CertificateDer::from_pem_file(&args.cert).map_err(|error| library(&error))?;
    let key = PrivateKeyDer::from_pem_file(&args.key).map_err(|error| library(&error))?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| library(&error))?
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .map_err(|error| library(&error))?;
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(|error| library(&error))?;
    let address = args.listen.trim_start_matches("tls://");
    let listener = TcpListener::bind(address).map_err(Failure::io(format!("cannot listen on {address}")))?;
    listener.set_nonblocking(true).map_err(Failure::io("cannot set up the listener"))?;
    let local = listener.local_addr().map_err(Failure::io("cannot read the listening address"))?;
    println!("listening on tls://{local}");
    std::io::stdout().flush().map_err(Failure::io("cannot write to standard output"))?;
    let cpu = args.cpus.0.first().copied();
    std::thread::spawn(move || {
        let run = || -> Result<(), Failure> {
            cpu.map_or(Ok(()), system::pin_to)?;
            Server::new(listener, Arc::new(config))?.run()
        };
        if let Err(failure) = run() {
            eprintln!("corewire: {failure}");
        }
        std::process::exit(1);
    });
    let traffic = Traffic::default();
    attend_server("baseline", |snapshot| traffic.add_to(snapshot))
}

struct Server {
    poll: Poll,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    connections: Vec<Option<(TcpStream, ServerConnection)>>,
    received: Vec<u8>,
    plain: Vec<u8>,
}

impl Server {
    fn new(listener: TcpListener, config: Arc<ServerConfig>) -> Result<Self, Failure> {
        let poll = Poll::new()?;
        poll.add(&listener, LISTENER, EventFlags::IN)?;
        let (received, plain) = (vec![0; BUFFER], vec![0; BUFFER]);
        Ok(Self { poll, listener, config, connections: Vec::new(), received, plain })
    }

    fn run(&mut self) -> Result<(), Failure> {
        loop {
            for at in 0..self.poll.wait()? {
                let (token, _) = self.poll.event(at);
                if token == LISTENER {
                    self.accept()?;
                } else if !self.ready(token as usize) {
                    self.connections[token as usize] = None;
                }
            }
        }
    }

    fn accept(&mut self) -> Result<(), Failure> {
        while let Ok((socket, _)) = self.listener.accept() {
            socket.set_nonblocking(true).map_err(Failure::io("cannot set up a connection"))?;
            socket.set_nodelay(true).map_err(Failure::io("cannot set up a connection"))?;
            let mut tls = ServerConnection::new(self.config.clone())
                .map_err(|error| Failure::Library(error.to_string()))?;
            tls.set_buffer_limit(None);
            let vacant = self.connections.iter().position(Option::is_none);
            let slot = vacant.unwrap_or_else(|| {
                self.connections.push(None);
                self.connections.len() - 1
            });
            self.poll.add(&socket, slot as u64, EventFlags::IN)?;
            self.connections[slot] = Some((socket, tls));
        }
        Ok(())
    }

    /// Echoes what has come. False if the connection is over.
    fn ready(&mut self, slot: usize) -> bool {
        let Some((socket, tls)) = &mut self.connections[slot] else { return true };
        let mut is_over = false;
        match socket.read(&mut self.received) {
            Ok(0) => is_over = true,
            Ok(len) => {
                let mut rest = &self.received[..len];
                while !rest.is_empty() {
                    if tls.read_tls(&mut rest).is_err() {
                        return false;
                    }
                    match tls.process_new_packets() {
                        Ok(state) => is_over |= state.peer_has_closed(),
                        Err(_) => return false,
                    }
                    while let Ok(len @ 1..) = tls.reader().read(&mut self.plain) {
                        if tls.writer().write_all(&self.plain[..len]).is_err() {
                            return false;
                        }
                    }
                }
            }
            Err(error) => return error.kind() == std::io::ErrorKind::WouldBlock,
        }
        // The load reads what it is sent before it sends more, so that a short wait for room ends by itself.
        while tls.wants_write() {
            match tls.write_tls(socket) {
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
                Err(_) => return false,
            }
        }
        !is_over
    }
}
