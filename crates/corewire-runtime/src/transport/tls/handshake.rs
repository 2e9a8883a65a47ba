//! The handshake, by `rustls`: until both ends have agreed on keys.

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{CommonState, ExtractedSecrets, HandshakeKind, ProtocolVersion};

use super::errors::{self, local};
use super::record::{RecordKey, record_len};
use super::sni::requested_name;
use crate::secured::{TlsError, TlsInfo, TlsVersion};

/// A handshake that is under way.
pub(super) struct Handshake {
    side: Side,
    /// How much of what has come `rustls` has seen: whole records, one at a time. What follows the handshake is not for it.
    seen: usize,
}

enum Side {
    Client(Box<UnbufferedClientConnection>),
    Server { connection: Box<UnbufferedServerConnection>, requested: Requested },
}

/// The name that the client asks for; in its first message.
#[derive(Debug)]
pub(super) enum Requested {
    NotSeen,
    Seen(Option<String>),
}

/// What keeps the secrets of an established connection, for key updates and session tickets.
pub(super) enum Kernel {
    Client(KernelConnection<ClientConnectionData>),
    Server(KernelConnection<ServerConnectionData>),
}

/// What a handshake ends in.
pub(super) struct Agreed {
    pub(super) info: TlsInfo,
    pub(super) opening: RecordKey,
    pub(super) sealing: RecordKey,
    pub(super) kernel: Kernel,
}

/// What is to be done next.
enum Next {
    Again,
    /// More bytes are needed.
    Blocked,
    /// All that has come was looked at, and this side may send.
    Traffic,
    PeerClosed,
}

/// Where a handshake is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    Blocked,
    Done,
}

impl Handshake {
    pub(super) fn client(connection: UnbufferedClientConnection) -> Self {
        Self { side: Side::Client(Box::new(connection)), seen: 0 }
    }

    pub(super) fn server(connection: UnbufferedServerConnection) -> Self {
        let connection = Box::new(connection);
        Self { side: Side::Server { connection, requested: Requested::NotSeen }, seen: 0 }
    }

    /// Takes what has come from the front of `incoming`, up to the end of the handshake, and appends what is to be sent to
    /// `outgoing`, also if it fails.
    pub(super) fn step(
        &mut self,
        incoming: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> Result<Progress, TlsError> {
        if let Side::Server { requested: requested @ Requested::NotSeen, .. } = &mut self.side
            && let Some(name) = requested_name(incoming)
        {
            *requested = Requested::Seen(name);
        }
        loop {
            match self.process(incoming, outgoing) {
                Ok(Next::Again) => {}
                Ok(Next::PeerClosed) => return Err(TlsError::ClosedInHandshake),
                Ok(Next::Traffic) if !self.state().is_handshaking() => return Ok(Progress::Done),
                Ok(Next::Traffic | Next::Blocked) => match record_len(&incoming[self.seen..]) {
                    Ok(Some(len)) if incoming.len() - self.seen >= len => self.seen += len,
                    Ok(_) => return Ok(Progress::Blocked),
                    // `rustls` says what is wrong with it.
                    Err(_) if self.seen < incoming.len() => self.seen = incoming.len(),
                    Err(error) => return Err(error),
                },
                Err(error) => {
                    let error = errors::of_handshake(&error, incoming);
                    while self.state().wants_write() && self.process(incoming, outgoing).is_ok() {}
                    return Err(error);
                }
            }
        }
    }

    fn process(&mut self, incoming: &mut Vec<u8>, outgoing: &mut Vec<u8>) -> Result<Next, rustls::Error> {
        let seen = &mut incoming[..self.seen];
        let (discard, next) = match &mut self.side {
            Side::Client(connection) => take(connection.process_tls_records(seen), outgoing),
            Side::Server { connection, .. } => take(connection.process_tls_records(seen), outgoing),
        };
        if next.is_ok() {
            incoming.drain(..discard);
            self.seen -= discard;
        }
        next
    }

    fn state(&self) -> &CommonState {
        match &self.side {
            Side::Client(connection) => connection,
            Side::Server { connection, .. } => connection,
        }
    }

    /// Takes the keys. To be called once the handshake is done.
    pub(super) fn finish(self) -> Result<Agreed, TlsError> {
        let mut info = info_of(self.state())?;
        let (secrets, kernel) = match self.side {
            Side::Client(connection) => {
                let (secrets, kernel) =
                    connection.dangerous_into_kernel_connection().map_err(|e| local(&e))?;
                (secrets, Kernel::Client(kernel))
            }
            Side::Server { connection, requested } => {
                if let Requested::Seen(name) = requested {
                    info.server_name = name;
                }
                let (secrets, kernel) =
                    connection.dangerous_into_kernel_connection().map_err(|e| local(&e))?;
                (secrets, Kernel::Server(kernel))
            }
        };
        let ExtractedSecrets { tx, rx } = secrets;
        Ok(Agreed {
            opening: RecordKey::new(info.version, rx.0, &rx.1)?,
            sealing: RecordKey::new(info.version, tx.0, &tx.1)?,
            info,
            kernel,
        })
    }
}

fn take<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    outgoing: &mut Vec<u8>,
) -> (usize, Result<Next, rustls::Error>) {
    let UnbufferedStatus { discard, state } = status;
    let next = state.and_then(|state| match state {
        ConnectionState::EncodeTlsData(mut data) => {
            let begin = outgoing.len();
            // The first answer is how much room it needs.
            while let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut outgoing[begin..]) {
                outgoing.resize(begin + needed.required_size, 0);
            }
            Ok(Next::Again)
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Next::Again)
        }
        // It is given nothing behind the handshake, and early data is off.
        ConnectionState::ReadTraffic(_) | ConnectionState::ReadEarlyData(_) => {
            Err(rustls::Error::General("data came within the handshake".to_owned()))
        }
        ConnectionState::PeerClosed => Ok(Next::PeerClosed),
        ConnectionState::WriteTraffic(_) | ConnectionState::Closed => Ok(Next::Traffic),
        _ => Ok(Next::Blocked),
    });
    (discard, next)
}

fn info_of(state: &CommonState) -> Result<TlsInfo, TlsError> {
    let unfinished = || TlsError::Local("the handshake has left no result".to_owned());
    let version = match state.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => TlsVersion::Tls12,
        Some(ProtocolVersion::TLSv1_3) => TlsVersion::Tls13,
        _ => return Err(unfinished()),
    };
    let suite = state.negotiated_cipher_suite().ok_or_else(unfinished)?;
    let chain = state.peer_certificates().unwrap_or_default();
    Ok(TlsInfo {
        version,
        cipher_suite: format!("{:?}", suite.suite()),
        alpn: state.alpn_protocol().map(<[u8]>::to_vec),
        server_name: None,
        peer_certificates: chain.iter().map(|certificate| certificate.to_vec()).collect(),
        resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
    })
}
