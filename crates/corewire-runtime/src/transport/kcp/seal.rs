//! Encryption between the socket and the conversations.

use std::io;
use std::net::SocketAddr;

use corewire_driver::entropy;
use corewire_proto::kcp::{ClientEnvelope, Keys, OpenError, Opened, SealError, ServerEnvelope, Transmit};

/// Seals what leaves a socket and opens what arrives at it, in memory that is used again and again.
pub(super) struct Seal {
    envelope: Envelope,
    opened: Vec<u8>,
    sealed: Vec<u8>,
}

enum Envelope {
    Client(ClientEnvelope),
    Server(ServerEnvelope<SocketAddr>),
}

impl Seal {
    /// `sessions_max` is how many clients a server's socket may have.
    pub(super) fn new(keys: &Keys, is_client: bool, sessions_max: usize) -> io::Result<Self> {
        let mut id = [0; 16];
        entropy::fill(&mut id)?;
        let envelope = if is_client {
            Envelope::Client(ClientEnvelope::new(keys.clone(), id))
        } else {
            // One that is forgotten could not be sent anything.
            let clients_max = sessions_max.saturating_mul(2);
            Envelope::Server(ServerEnvelope::new(keys.clone(), id).clients_max(clients_max))
        };
        Ok(Self { envelope, opened: Vec::new(), sealed: Vec::new() })
    }

    /// Opens a datagram. After an answer ask [`poll_waiting`](Self::poll_waiting).
    pub(super) fn open(
        &mut self,
        now: u64,
        from: SocketAddr,
        datagram: &[u8],
    ) -> Result<Opened<'_>, OpenError> {
        self.opened.clear();
        self.opened.extend_from_slice(datagram);
        match &mut self.envelope {
            Envelope::Client(client) => client.open(&mut self.opened),
            Envelope::Server(server) => server.open(now, from, &mut self.opened),
        }
    }

    /// The sealed datagrams and their size; none while they have to wait.
    pub(super) fn seal(
        &mut self,
        now: u64,
        to: SocketAddr,
        plain: &[u8],
        transmit: Transmit,
    ) -> Result<Option<(&[u8], usize)>, SealError> {
        self.sealed.clear();
        let sealed = match &mut self.envelope {
            Envelope::Client(client) => client.seal(now, plain, transmit, &mut self.sealed)?,
            Envelope::Server(server) => Some(server.seal(to, plain, transmit, &mut self.sealed)?),
        };
        Ok(sealed.map(|sealed| (&self.sealed[..sealed.len], sealed.segment_size)))
    }

    /// The next datagram that has waited for the peer's answer.
    pub(super) fn poll_waiting(&mut self) -> Option<&[u8]> {
        let Envelope::Client(client) = &mut self.envelope else { return None };
        self.sealed.clear();
        let sealed = client.poll_waiting(&mut self.sealed).ok()??;
        Some(&self.sealed[..sealed.len])
    }
}
