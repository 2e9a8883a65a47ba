//! An established connection: records in both directions, and the few messages that may follow a handshake.

use bytes::BytesMut;
use rustls::AlertDescription;

use super::errors::{local, of_alert};
use super::handshake::{Agreed, Kernel};
use super::record::{Content, PLAIN_MAX, RecordKey};
use crate::secured::{TlsError, TlsVersion};

/// Records in a row that carry nothing; as in BoringSSL and `rustls`.
const EMPTY_MAX: u8 = 32;
/// Key updates of the peer without data between them.
const KEY_UPDATES_MAX: u8 = 32;
/// Warnings of a peer that speaks TLS 1.2.
const WARNINGS_MAX: u8 = 4;
/// A message behind the handshake: session tickets are the longest.
const MESSAGE_MAX: usize = 64 * 1024;

const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;
const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;

pub(super) struct Channel {
    opening: RecordKey,
    sealing: RecordKey,
    kernel: Kernel,
    version: TlsVersion,
    /// A message that has begun.
    message: Vec<u8>,
    empty: u8,
    key_updates: u8,
    warnings: u8,
    has_refused_renegotiation: bool,
}

/// What a record carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opened {
    /// Data, which was appended; or nothing of concern to anybody else.
    Data,
    /// A close_notify: nothing follows.
    Closed,
}

impl Channel {
    pub(super) fn new(agreed: Agreed) -> Self {
        let Agreed { opening, sealing, kernel, info, .. } = agreed;
        Self {
            opening,
            sealing,
            kernel,
            version: info.version,
            message: Vec::new(),
            empty: 0,
            key_updates: 0,
            warnings: 0,
            has_refused_renegotiation: false,
        }
    }

    /// Bytes of memory beside the channel itself.
    pub(super) fn held(&self) -> usize {
        self.message.capacity()
    }

    /// Opens a record. Data is appended to `out`, which has room for the whole record; an answer that is due to
    /// `outgoing`.
    pub(super) fn open(
        &mut self,
        record: &[u8],
        out: &mut BytesMut,
        outgoing: &mut Vec<u8>,
    ) -> Result<Opened, TlsError> {
        let begin = out.len();
        let content = self.opening.open(record, out)?;
        if content == Content::Data {
            if !self.message.is_empty() {
                return Err(protocol("data came within a message"));
            }
            match out.len() > begin {
                true => (self.empty, self.key_updates) = (0, 0),
                false => self.note_empty()?,
            }
            return Ok(Opened::Data);
        }
        let carried = out[begin..].to_vec();
        out.truncate(begin);
        match content {
            Content::Alert => self.alert(&carried),
            Content::Handshake => {
                if carried.is_empty() {
                    self.note_empty()?;
                }
                self.handshake(&carried, outgoing).map(|()| Opened::Data)
            }
            Content::ChangeCipherSpec | Content::Data => {
                Err(protocol("a change_cipher_spec came after the handshake"))
            }
        }
    }

    fn note_empty(&mut self) -> Result<(), TlsError> {
        self.empty += 1;
        if self.empty > EMPTY_MAX { Err(protocol("too many empty records")) } else { Ok(()) }
    }

    fn alert(&mut self, carried: &[u8]) -> Result<Opened, TlsError> {
        const WARNING: u8 = 1;
        let &[level, code] = carried else { return Err(protocol("an alert has not two bytes")) };
        let alert = AlertDescription::from(code);
        match alert {
            AlertDescription::CloseNotify => return Ok(Opened::Closed),
            AlertDescription::UserCanceled => {}
            _ if level == WARNING && self.version == TlsVersion::Tls12 => {}
            _ => return Err(of_alert(alert)),
        }
        self.warnings += 1;
        if self.warnings > WARNINGS_MAX { Err(protocol("too many warnings")) } else { Ok(Opened::Data) }
    }

    /// Takes messages that follow the handshake, whole or not.
    fn handshake(&mut self, carried: &[u8], outgoing: &mut Vec<u8>) -> Result<(), TlsError> {
        let mut bytes = std::mem::take(&mut self.message);
        bytes.extend_from_slice(carried);
        let mut rest = &bytes[..];
        while let Some((header, body)) = rest.split_at_checked(4) {
            let len = usize::from(header[1]) << 16 | usize::from(header[2]) << 8 | usize::from(header[3]);
            if len > MESSAGE_MAX {
                return Err(protocol(format!("a message has {len} bytes, of at most 65,536")));
            }
            let Some((message, behind)) = body.split_at_checked(len) else { break };
            if header[0] == KEY_UPDATE && !behind.is_empty() {
                return Err(protocol("something follows a key update in its record"));
            }
            self.message_after_handshake(header[0], message, outgoing)?;
            rest = behind;
        }
        // Most of the time nothing is left, and no memory is kept.
        self.message = rest.to_vec();
        Ok(())
    }

    fn message_after_handshake(
        &mut self,
        kind: u8,
        message: &[u8],
        outgoing: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        match (kind, self.version, &mut self.kernel) {
            (NEW_SESSION_TICKET, TlsVersion::Tls13, Kernel::Client(kernel)) => kernel
                .handle_new_session_ticket(message)
                .map_err(|error| protocol(format!("a session ticket: {error}"))),
            (KEY_UPDATE, TlsVersion::Tls13, _) => self.key_update(message, outgoing),
            (HELLO_REQUEST, TlsVersion::Tls12, Kernel::Client(_))
            | (CLIENT_HELLO, TlsVersion::Tls12, Kernel::Server(_)) => self.refuse_renegotiation(outgoing),
            _ => Err(protocol(format!("a message of type {kind} came after the handshake"))),
        }
    }

    /// A handshake within a connection: what attacks on TLS 1.2 were made of, and what nobody needs.
    fn refuse_renegotiation(&mut self, outgoing: &mut Vec<u8>) -> Result<(), TlsError> {
        if std::mem::replace(&mut self.has_refused_renegotiation, true) {
            return Err(protocol("it asks for a renegotiation again, which was refused"));
        }
        self.append_alert(1, AlertDescription::NoRenegotiation, outgoing)
    }

    fn key_update(&mut self, message: &[u8], outgoing: &mut Vec<u8>) -> Result<(), TlsError> {
        self.key_updates += 1;
        if self.key_updates > KEY_UPDATES_MAX {
            return Err(protocol("too many key updates without data between them"));
        }
        let answers = match message {
            [0] => false,
            [1] => true,
            _ => return Err(protocol("a key update is malformed")),
        };
        let (sequence, secrets) = match &mut self.kernel {
            Kernel::Client(kernel) => kernel.update_rx_secret(),
            Kernel::Server(kernel) => kernel.update_rx_secret(),
        }
        .map_err(|error| local(&error))?;
        self.opening = RecordKey::new(self.version, sequence, &secrets)?;
        if answers { self.change_key(outgoing) } else { Ok(()) }
    }

    /// Tells the peer that another key follows, and takes it.
    fn change_key(&mut self, outgoing: &mut Vec<u8>) -> Result<(), TlsError> {
        self.sealing
            .seal(Content::Handshake, outgoing, |out| out.extend_from_slice(&[KEY_UPDATE, 0, 0, 1, 0]))?;
        let (sequence, secrets) = match &mut self.kernel {
            Kernel::Client(kernel) => kernel.update_tx_secret(),
            Kernel::Server(kernel) => kernel.update_tx_secret(),
        }
        .map_err(|error| local(&error))?;
        self.sealing = RecordKey::new(self.version, sequence, &secrets)?;
        Ok(())
    }

    /// Appends a record of data, which `fill` appends: at most [`PLAIN_MAX`] bytes.
    pub(super) fn seal(
        &mut self,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TlsError> {
        if self.sealing.is_used_up() {
            match self.version {
                TlsVersion::Tls13 => self.change_key(out)?,
                TlsVersion::Tls12 => return Err(TlsError::KeyExhausted),
            }
        }
        self.sealing.seal(Content::Data, out, fill)
    }

    pub(super) fn append_close_notify(&mut self, outgoing: &mut Vec<u8>) -> Result<(), TlsError> {
        self.append_alert(1, AlertDescription::CloseNotify, outgoing)
    }

    /// Says why this side ends the connection.
    pub(super) fn append_failure(
        &mut self,
        error: &TlsError,
        outgoing: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let alert = match error {
            // The peer knows.
            TlsError::Alert { .. } | TlsError::Truncated => return Ok(()),
            TlsError::Corrupted => AlertDescription::BadRecordMac,
            TlsError::Protocol(_) => AlertDescription::UnexpectedMessage,
            _ => AlertDescription::InternalError,
        };
        self.append_alert(2, alert, outgoing)
    }

    fn append_alert(
        &mut self,
        level: u8,
        alert: AlertDescription,
        outgoing: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        self.sealing.seal(Content::Alert, outgoing, |out| out.extend_from_slice(&[level, alert.into()]))
    }
}

/// What `seal` is given at once.
pub(super) const RECORD_MAX: usize = PLAIN_MAX;

fn protocol(what: impl Into<String>) -> TlsError {
    TlsError::Protocol(what.into())
}
