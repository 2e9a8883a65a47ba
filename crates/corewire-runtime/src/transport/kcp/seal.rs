//! Encryption between the socket and the conversations.

use std::io;

use corewire_driver::entropy;
use corewire_proto::kcp::{Envelope, OpenError, SealError, Senders, Transmit};

/// Seals what leaves a socket and opens what arrives at it, in memory that is used again and again.
pub(super) struct Seal {
    envelope: Envelope,
    opened: Vec<u8>,
    sealed: Vec<u8>,
}

impl Seal {
    /// `senders` is shared by all sockets of a server, so that none takes what another has seen.
    pub(super) fn new(key: &[u8; 32], senders: &Senders) -> io::Result<Self> {
        let mut sender = [0; 16];
        entropy::fill(&mut sender)?;
        let envelope = Envelope::new(key, sender).shared(senders.clone());
        Ok(Self { envelope, opened: Vec::new(), sealed: Vec::new() })
    }

    pub(super) fn open(&mut self, datagram: &[u8]) -> Result<&[u8], OpenError> {
        self.opened.clear();
        self.opened.extend_from_slice(datagram);
        Ok(self.envelope.open(&mut self.opened)?)
    }

    pub(super) fn seal(&mut self, plain: &[u8], transmit: Transmit) -> Result<(&[u8], usize), SealError> {
        self.sealed.clear();
        let sealed = self.envelope.seal(plain, transmit, &mut self.sealed)?;
        Ok((&self.sealed[..sealed.len], sealed.segment_size))
    }
}
