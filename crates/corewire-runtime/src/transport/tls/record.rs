//! The record layer: what TLS makes of bytes once a handshake has agreed on keys. No I/O, no clock.

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use bytes::BytesMut;
use rustls::ConnectionTrafficSecrets;

use crate::secured::{TlsError, TlsVersion};

/// Before each record: its type, a version, its length.
pub(super) const HEADER_BYTES: usize = 5;
/// What one record carries at the most.
pub(super) const PLAIN_MAX: usize = 16 * 1024;
/// What a record is longer than what it carries, in all suites here.
pub(super) const OVERHEAD_MAX: usize = HEADER_BYTES + EXPLICIT_NONCE_BYTES + TAG_BYTES;

const TAG_BYTES: usize = 16;
/// AES-GCM of TLS 1.2 sends a part of its nonce.
const EXPLICIT_NONCE_BYTES: usize = 8;
/// Blocks of 16 bytes under one key, headers and tags included: 256 GiB, which is what RFC 8446 5.5 allows in records of full
/// size. AES-GCM only.
const BLOCKS_MAX: u64 = 1 << 34;

/// What a record carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    ChangeCipherSpec,
    Alert,
    Handshake,
    Data,
}

impl Content {
    const fn to_byte(self) -> u8 {
        match self {
            Self::ChangeCipherSpec => 20,
            Self::Alert => 21,
            Self::Handshake => 22,
            Self::Data => 23,
        }
    }

    fn parse(byte: u8) -> Result<Self, TlsError> {
        match byte {
            20 => Ok(Self::ChangeCipherSpec),
            21 => Ok(Self::Alert),
            22 => Ok(Self::Handshake),
            23 => Ok(Self::Data),
            other => Err(TlsError::Protocol(format!("there is no content type {other}"))),
        }
    }
}

/// How long the record is that `bytes` begin with, its header included; `None` if that is not there yet.
pub(super) fn record_len(bytes: &[u8]) -> Result<Option<usize>, TlsError> {
    let Some(header) = bytes.get(..HEADER_BYTES) else { return Ok(None) };
    let body = usize::from(u16::from_be_bytes([header[3], header[4]]));
    if header[1] != 3 {
        return Err(TlsError::Protocol(format!("a record has the version {}.{}", header[1], header[2])));
    }
    // TLS 1.2 allows 2,048 more than what is carried, TLS 1.3 256.
    if body > PLAIN_MAX + 2048 {
        return Err(TlsError::Protocol(format!("a record has {body} bytes, of at most 18,432")));
    }
    Ok(Some(HEADER_BYTES + body))
}

/// The key of one direction, and how it is used.
pub(super) struct RecordKey {
    key: LessSafeKey,
    iv: [u8; aead::NONCE_LEN],
    /// Of the next record.
    sequence: u64,
    scheme: Scheme,
    blocks_left: u64,
}

/// What differs between the suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scheme {
    /// The nonce is never sent; the content type is encrypted.
    Tls13,
    /// A part of the nonce is sent.
    Tls12Gcm,
    Tls12ChaCha,
}

impl RecordKey {
    pub(super) fn new(
        version: TlsVersion,
        sequence: u64,
        secrets: &ConnectionTrafficSecrets,
    ) -> Result<Self, TlsError> {
        let (algorithm, key, iv) = match secrets {
            ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (&aead::AES_128_GCM, key, iv),
            ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (&aead::AES_256_GCM, key, iv),
            ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (&aead::CHACHA20_POLY1305, key, iv),
            _ => return Err(TlsError::Local("the cipher suite is not supported".to_owned())),
        };
        let is_chacha = std::ptr::eq(algorithm, &aead::CHACHA20_POLY1305);
        let unusable = || TlsError::Local("the key that was agreed on cannot be used".to_owned());
        let key = UnboundKey::new(algorithm, key.as_ref()).map_err(|_| unusable())?;
        Ok(Self {
            key: LessSafeKey::new(key),
            iv: iv.as_ref().try_into().map_err(|_| unusable())?,
            sequence,
            scheme: match version {
                TlsVersion::Tls13 => Scheme::Tls13,
                TlsVersion::Tls12 if is_chacha => Scheme::Tls12ChaCha,
                TlsVersion::Tls12 => Scheme::Tls12Gcm,
            },
            blocks_left: if is_chacha { u64::MAX } else { BLOCKS_MAX },
        })
    }

    /// No more records may be sealed by it.
    pub(super) const fn is_used_up(&self) -> bool {
        self.blocks_left < 2 * (PLAIN_MAX as u64 / 16)
    }

    fn nonce(&self) -> [u8; aead::NONCE_LEN] {
        let mut nonce = self.iv;
        for (byte, of_sequence) in nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()) {
            *byte ^= of_sequence;
        }
        nonce
    }

    /// Appends a record of at most [`PLAIN_MAX`] bytes, which `fill` appends.
    pub(super) fn seal(
        &mut self,
        content: Content,
        out: &mut Vec<u8>,
        fill: impl FnOnce(&mut Vec<u8>),
    ) -> Result<(), TlsError> {
        let begin = out.len();
        let nonce = self.nonce();
        let outer = if self.scheme == Scheme::Tls13 { Content::Data } else { content };
        out.extend_from_slice(&[outer.to_byte(), 3, 3, 0, 0]);
        if self.scheme == Scheme::Tls12Gcm {
            out.extend_from_slice(&nonce[4..]);
        }
        let plain = out.len();
        fill(out);
        let aad = if self.scheme == Scheme::Tls13 {
            out.push(content.to_byte());
            let header = set_len(&mut out[begin..], TAG_BYTES);
            AadBytes::tls13(header)
        } else {
            set_len(&mut out[begin..], TAG_BYTES);
            AadBytes::tls12(self.sequence, content.to_byte(), out.len() - plain)
        };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = self.key.seal_in_place_separate_tag(nonce, Aad::from(aad), &mut out[plain..]);
        let tag = sealed.map_err(|_| TlsError::Local("encryption has failed".to_owned()))?;
        out.extend_from_slice(tag.as_ref());
        self.advance(out.len() - begin);
        Ok(())
    }

    /// Opens a whole record, header included: what it carries is appended to `out`, which has room for the whole record.
    pub(super) fn open(&mut self, record: &[u8], out: &mut BytesMut) -> Result<Content, TlsError> {
        let (header, body) = record.split_at(HEADER_BYTES);
        let outer = Content::parse(header[0])?;
        let (nonce, body) = match self.scheme {
            Scheme::Tls12Gcm => {
                let (explicit, body) =
                    body.split_at_checked(EXPLICIT_NONCE_BYTES).ok_or(TlsError::Corrupted)?;
                let mut nonce = self.iv;
                nonce[4..].copy_from_slice(explicit);
                (nonce, body)
            }
            Scheme::Tls13 | Scheme::Tls12ChaCha => (self.nonce(), body),
        };
        let plain = body.len().checked_sub(TAG_BYTES).ok_or(TlsError::Corrupted)?;
        let aad = match self.scheme {
            Scheme::Tls13 if outer == Content::Data => {
                AadBytes::tls13([header[0], header[1], header[2], header[3], header[4]])
            }
            Scheme::Tls13 => {
                return Err(TlsError::Protocol("a record came unencrypted after the handshake".to_owned()));
            }
            Scheme::Tls12Gcm | Scheme::Tls12ChaCha => AadBytes::tls12(self.sequence, header[0], plain),
        };
        let begin = out.len();
        out.extend_from_slice(body);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.key.open_in_place(nonce, Aad::from(aad), &mut out[begin..]);
        if opened.is_err() {
            out.truncate(begin);
            return Err(TlsError::Corrupted);
        }
        self.advance(record.len());
        let mut end = begin + plain;
        let mut content = outer;
        if self.scheme == Scheme::Tls13 {
            // Behind what is carried stands its type, and perhaps zeros.
            let typed = out[begin..end].iter().rposition(|byte| *byte != 0);
            let typed = typed.ok_or_else(|| TlsError::Protocol("a record has no content type".to_owned()))?;
            content = Content::parse(out[begin + typed])?;
            end = begin + typed;
        }
        out.truncate(end);
        if end - begin > PLAIN_MAX {
            return Err(TlsError::Protocol(format!(
                "a record carries {} bytes, of at most 16,384",
                end - begin
            )));
        }
        Ok(content)
    }

    const fn advance(&mut self, record: usize) {
        self.sequence += 1;
        // The tag and the header count too: a record is never less than a few blocks.
        self.blocks_left = self.blocks_left.saturating_sub(record as u64 / 16 + 2);
    }
}

/// Writes the length of a record into its header: all that stands there now, and `more`.
fn set_len(record: &mut [u8], more: usize) -> [u8; HEADER_BYTES] {
    let len = ((record.len() - HEADER_BYTES + more) as u16).to_be_bytes();
    record[3..HEADER_BYTES].copy_from_slice(&len);
    [record[0], record[1], record[2], len[0], len[1]]
}

/// What is authenticated beside the record's content.
struct AadBytes {
    bytes: [u8; 13],
    len: usize,
}

impl AadBytes {
    fn tls13(header: [u8; HEADER_BYTES]) -> Self {
        let mut bytes = [0; 13];
        bytes[..HEADER_BYTES].copy_from_slice(&header);
        Self { bytes, len: HEADER_BYTES }
    }

    fn tls12(sequence: u64, content: u8, plain: usize) -> Self {
        let mut bytes = [0; 13];
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..11].copy_from_slice(&[content, 3, 3]);
        bytes[11..].copy_from_slice(&(plain as u16).to_be_bytes());
        Self { bytes, len: bytes.len() }
    }
}

impl AsRef<[u8]> for AadBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}
