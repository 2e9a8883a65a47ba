//! Encryption with a key that both ends know beforehand.
//!
//! A sealed datagram has 48 bytes beside what it carries:
//!
//! | bytes | |
//! |---|---|
//! | 0 | kind: 1 hello, 2 challenge, 3 echo, 4 data |
//! | 1 to 3 | the first bytes of the recipient's id; 0 in a hello |
//! | 4 to 7 | the key's id ([`Keys::id`]) |
//! | 8 to 23 | the sender's id, drawn at random for each envelope |
//! | 24 to 31 | the sender's count of datagrams, little-endian |
//! | 32 … | the ciphertext, and a tag of 16 bytes |
//!
//! It is XChaCha20-Poly1305: bytes 8 to 31 are the nonce, so that none is used twice under a key; the associated data is
//! [`LABEL`], the kind, the direction (0 to the server, 1 to the client), and the recipient's id (16 bytes, 0 in a hello). So
//! a datagram opens for the one envelope that it was sealed for, in the one direction.
//!
//! A client says hello; the server answers, without keeping anything, by a challenge: its time and the count of
//! what it answers, 8 bytes each. From then on the client knows the server's id. It echoes the time, and only then is its
//! data taken. Data of a client that the server does not know, because the echo was lost or the server is a new one, is
//! answered by a challenge too.

mod client;
mod keys;
mod replay;
mod server;

pub use self::client::ClientEnvelope;
use self::keys::Cipher;
pub use self::keys::Keys;
pub use self::server::ServerEnvelope;

const LABEL: &[u8; 14] = b"corewire kcp 2";
const ID_LEN: usize = 16;
const NONCE_LEN: usize = 24;
const TAG_LEN: usize = 16;
const HEAD_LEN: usize = 8 + NONCE_LEN;
/// Bytes that sealing adds to a datagram.
pub const ENVELOPE_OVERHEAD: usize = HEAD_LEN + TAG_LEN;
/// What hello, challenge and echo carry: of one length, so that no answer is longer than what it answers.
const GREETING_LEN: usize = 16;
const SEALED_GREETING_LEN: usize = ENVELOPE_OVERHEAD + GREETING_LEN;

type Id = [u8; ID_LEN];
const NOBODY: Id = [0; ID_LEN];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Kind {
    Hello = 1,
    Challenge = 2,
    Echo = 3,
    Data = 4,
}

#[derive(Debug, Clone, Copy)]
enum Direction {
    ToServer,
    ToClient,
}

/// What a datagram that was opened is for.
#[derive(Debug, PartialEq, Eq)]
pub enum Opened<'a> {
    /// A datagram of a conversation.
    Data(&'a mut [u8]),
    /// A datagram to send back to where this one came from.
    Answer(&'a [u8]),
    /// Nothing more.
    Nothing,
}

/// A datagram was not opened. None of these needs an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Fewer bytes than the envelope alone takes, or of no known kind.
    #[error("{len} bytes are no sealed datagram: is the other end without a key, or of another version?")]
    Malformed {
        /// The datagram's length in bytes.
        len: usize,
    },
    /// Sealed with a key that is not known here.
    #[error("the datagram was sealed with key {}, which is not known here", hex(*.id))]
    UnknownKey {
        /// The key's id.
        id: [u8; 4],
    },
    /// Changed on the way, for somebody else, or sent back to where it was sealed.
    #[error("the datagram was changed on the way, or was sealed for another recipient")]
    Forged,
    /// Seen before, or so old that it cannot be told.
    #[error("datagram {counter} of its sender was seen before or is too old to tell")]
    Replayed {
        /// The sender's count.
        counter: u64,
    },
    /// Of a server whose challenge was not answered, or an echo that comes too late.
    #[error("the datagram is of a server or a time that is not known here")]
    Stale,
}

/// A datagram was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The counter is used up.
    #[error("this envelope has sealed all the datagrams it can: make a new one")]
    Exhausted,
    /// No client has been heard from that address, or it was forgotten; it is asked again when it sends something.
    #[error("no client is known at that address")]
    UnknownClient,
}

fn hex(id: [u8; 4]) -> String {
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The first bytes of a sealed datagram, not authenticated.
#[derive(Debug, Clone, Copy)]
struct Head {
    kind: Kind,
    recipient: [u8; 3],
    key: [u8; 4],
    sender: Id,
    counter: u64,
}

impl Head {
    fn parse(datagram: &[u8]) -> Result<Self, OpenError> {
        let malformed = OpenError::Malformed { len: datagram.len() };
        let head = datagram.first_chunk::<HEAD_LEN>().ok_or(malformed)?;
        let kind = match head[0] {
            1 => Kind::Hello,
            2 => Kind::Challenge,
            3 => Kind::Echo,
            4 => Kind::Data,
            _ => return Err(malformed),
        };
        let is_long_enough = datagram.len() >= ENVELOPE_OVERHEAD;
        if !is_long_enough || (kind != Kind::Data && datagram.len() != SEALED_GREETING_LEN) {
            return Err(malformed);
        }
        let mut parsed = Self { kind, recipient: [0; 3], key: [0; 4], sender: NOBODY, counter: 0 };
        parsed.recipient.copy_from_slice(&head[1..4]);
        parsed.key.copy_from_slice(&head[4..8]);
        parsed.sender.copy_from_slice(&head[8..24]);
        let mut counter = [0; 8];
        counter.copy_from_slice(&head[24..]);
        parsed.counter = u64::from_le_bytes(counter);
        Ok(parsed)
    }

    fn is_for(&self, id: &Id) -> bool {
        self.recipient == id[..3]
    }
}

/// Seals what one envelope sends.
#[derive(Debug)]
struct Sealer {
    id: Id,
    counter: u64,
    direction: Direction,
}

impl Sealer {
    const fn new(id: Id, direction: Direction) -> Self {
        Self { id, counter: 0, direction }
    }

    /// Appends `plain`, sealed for `recipient`.
    fn seal(
        &mut self,
        cipher: &Cipher,
        kind: Kind,
        recipient: &Id,
        plain: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        let counter = self.counter;
        self.counter = counter.checked_add(1).ok_or(SealError::Exhausted)?;
        let mut nonce = [0; NONCE_LEN];
        nonce[..ID_LEN].copy_from_slice(&self.id);
        nonce[ID_LEN..].copy_from_slice(&counter.to_le_bytes());
        out.push(kind as u8);
        out.extend_from_slice(&recipient[..3]);
        out.extend_from_slice(&cipher.id());
        out.extend_from_slice(&nonce);
        let begin = out.len();
        out.extend_from_slice(plain);
        let data = associated_data(kind, self.direction, recipient);
        let tag = cipher.encrypt(&nonce, &data, &mut out[begin..])?;
        out.extend_from_slice(&tag);
        Ok(())
    }
}

/// Opens a datagram in place.
fn open<'a>(
    cipher: &Cipher,
    head: &Head,
    direction: Direction,
    recipient: &Id,
    datagram: &'a mut [u8],
) -> Result<&'a mut [u8], OpenError> {
    let data = associated_data(head.kind, direction, recipient);
    cipher.decrypt(&data, datagram)
}

fn associated_data(kind: Kind, direction: Direction, recipient: &Id) -> [u8; LABEL.len() + 2 + ID_LEN] {
    let mut data = [0; LABEL.len() + 2 + ID_LEN];
    data[..LABEL.len()].copy_from_slice(LABEL);
    data[LABEL.len()] = kind as u8;
    data[LABEL.len() + 1] = direction as u8;
    data[LABEL.len() + 2..].copy_from_slice(recipient);
    data
}

/// Two numbers, as challenge and echo carry them.
fn greeting(first: u64, second: u64) -> [u8; GREETING_LEN] {
    let mut bytes = [0; GREETING_LEN];
    bytes[..8].copy_from_slice(&first.to_le_bytes());
    bytes[8..].copy_from_slice(&second.to_le_bytes());
    bytes
}

fn read_greeting(bytes: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = bytes.split_first_chunk::<8>()?;
    Some((u64::from_le_bytes(*first), u64::from_le_bytes(*second.first_chunk()?)))
}

#[cfg(test)]
mod tests;
