//! One key, or two while keys are changed.

use std::fmt;

use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};

use super::{HEAD_LEN, NONCE_LEN, OpenError, SealError, TAG_LEN};

/// The keys that an envelope opens with. A client seals with the first; a server seals with the one that the client used
/// last.
///
/// To change a key without an outage: give all servers the new one as second key, then the clients the new one instead of
/// the old, then take the old one from the servers.
#[derive(Clone)]
pub struct Keys {
    first: Cipher,
    second: Option<Cipher>,
}

#[derive(Clone)]
pub(super) struct Cipher {
    id: [u8; 4],
    cipher: XChaCha20Poly1305,
}

impl Keys {
    /// One key.
    pub fn new(key: &[u8; 32]) -> Self {
        Self { first: Cipher::new(key), second: None }
    }

    /// Another key that is opened with too, in place of one that was given so before.
    pub fn and(mut self, key: &[u8; 32]) -> Self {
        self.second = Some(Cipher::new(key));
        self
    }

    /// The id by which a sealed datagram names its key. It follows from the key and tells nothing about it.
    pub fn id(key: &[u8; 32]) -> [u8; 4] {
        Cipher::new(key).id
    }

    pub(super) const fn first(&self) -> &Cipher {
        &self.first
    }

    pub(super) fn find(&self, id: [u8; 4]) -> Result<&Cipher, OpenError> {
        if self.first.id == id {
            return Ok(&self.first);
        }
        self.second.as_ref().filter(|second| second.id == id).ok_or(OpenError::UnknownKey { id })
    }
}

impl Cipher {
    fn new(key: &[u8; 32]) -> Self {
        let cipher = XChaCha20Poly1305::new(key.into());
        // No envelope has an id of zeros, so this nonce is used for nothing else.
        let tag = cipher.encrypt_inout_detached(
            &XNonce::from([0; NONCE_LEN]),
            b"corewire key id",
            (&mut [][..]).into(),
        );
        let mut id = [0; 4];
        if let Ok(tag) = tag {
            id.copy_from_slice(&tag[..4]);
        }
        Self { id, cipher }
    }

    pub(super) const fn id(&self) -> [u8; 4] {
        self.id
    }

    pub(super) fn encrypt(
        &self,
        nonce: &[u8; NONCE_LEN],
        data: &[u8],
        text: &mut [u8],
    ) -> Result<[u8; TAG_LEN], SealError> {
        let tag = self.cipher.encrypt_inout_detached(&XNonce::from(*nonce), data, text.into());
        tag.map(Into::into).map_err(|_| SealError::Exhausted)
    }

    /// Opens a datagram whose head was parsed, in place.
    pub(super) fn decrypt<'a>(&self, data: &[u8], datagram: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        let malformed = OpenError::Malformed { len: datagram.len() };
        let (head, rest) = datagram.split_first_chunk_mut::<HEAD_LEN>().ok_or(malformed)?;
        let (text, tag) = rest.split_last_chunk_mut::<TAG_LEN>().ok_or(malformed)?;
        let nonce = head.last_chunk::<NONCE_LEN>().ok_or(malformed)?;
        let opened = self.cipher.decrypt_inout_detached(
            &XNonce::from(*nonce),
            data,
            (&mut *text).into(),
            &Tag::from(*tag),
        );
        opened.map_err(|_| OpenError::Forged)?;
        Ok(text)
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}
