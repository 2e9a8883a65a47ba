//! Forward error correction for the peers of a port.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

use super::super::fec::{Decoder, Encoder, Shard, Shards};
use super::super::transmit::Transmit;
use super::settings::SessionId;

/// The groups of each peer that has a session.
#[derive(Debug)]
pub(super) struct Repair<A> {
    shards: Shards,
    peers: HashMap<A, Peer>,
    /// Datagrams to be sent, back to back, and to whom each goes and how long it is.
    ready: Vec<u8>,
    sizes: VecDeque<(A, usize)>,
    sent: usize,
    /// Datagrams without their heads yet.
    plain: Vec<u8>,
}

#[derive(Debug)]
struct Peer {
    sessions: u32,
    /// Where its last datagram went.
    last: SessionId,
    encoder: Encoder,
    decoder: Decoder,
}

impl<A: Copy + Eq + Hash> Repair<A> {
    pub(super) fn new(shards: Shards) -> Self {
        Self {
            shards,
            peers: HashMap::new(),
            ready: Vec::new(),
            sizes: VecDeque::new(),
            sent: 0,
            plain: Vec::new(),
        }
    }

    pub(super) fn opened(&mut self, address: A, id: SessionId) {
        let shards = self.shards;
        let peer = self.peers.entry(address).or_insert_with(|| Peer {
            sessions: 0,
            last: id,
            encoder: Encoder::new(shards),
            decoder: Decoder::new(shards),
        });
        peer.sessions += 1;
    }

    pub(super) fn closed(&mut self, address: A) {
        if let Some(peer) = self.peers.get_mut(&address) {
            peer.sessions -= 1;
            if peer.sessions == 0 {
                self.peers.remove(&address);
            }
        }
    }

    /// The session that the last datagram of a peer was for.
    pub(super) fn last(&self, address: A) -> Option<SessionId> {
        self.peers.get(&address).map(|peer| peer.last)
    }

    /// The datagrams that can be made up with this one; `received` says where it went.
    pub(super) fn make_up(&mut self, from: A, shard: Shard<'_>, received: Option<SessionId>) -> Vec<Vec<u8>> {
        let Some(peer) = self.peers.get_mut(&from) else { return Vec::new() };
        peer.last = received.unwrap_or(peer.last);
        peer.decoder.take(shard)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.sizes.is_empty()
    }

    /// Memory to write datagrams into.
    pub(super) fn take_plain(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.plain)
    }

    /// Takes the datagrams in `plain`, and the memory back.
    pub(super) fn encode(
        &mut self,
        now: u64,
        to: A,
        mut plain: Vec<u8>,
        transmit: Transmit,
        may_repair: bool,
    ) {
        let (ready, sizes) = (&mut self.ready, &mut self.sizes);
        let mut emit = |parts: &[&[u8]]| {
            parts.iter().for_each(|part| ready.extend_from_slice(part));
            sizes.push_back((to, parts.iter().map(|part| part.len()).sum()));
        };
        for datagram in plain.chunks(transmit.segment_size) {
            match self.peers.get_mut(&to) {
                Some(peer) => peer.encoder.encode(now, datagram, may_repair, &mut emit),
                // An answer to somebody who has no session.
                None => emit(&[datagram]),
            }
        }
        plain.clear();
        self.plain = plain;
    }

    /// Appends datagrams of one size for one peer to `out`, as [`Kcp::poll_transmit`](super::super::Kcp::poll_transmit)
    /// does.
    pub(super) fn poll(&mut self, out: &mut Vec<u8>, max_datagrams: usize) -> Option<(A, Transmit)> {
        let &(to, segment_size) = self.sizes.front()?;
        let (mut datagrams, mut len) = (0, 0);
        while let Some(&(other, size)) = self.sizes.front()
            && datagrams < max_datagrams
            && other == to
            && size <= segment_size
        {
            self.sizes.pop_front();
            datagrams += 1;
            len += size;
            if size < segment_size {
                break;
            }
        }
        out.extend_from_slice(&self.ready[self.sent..self.sent + len]);
        self.sent += len;
        if self.sizes.is_empty() {
            self.ready.clear();
            self.sent = 0;
        }
        Some((to, Transmit { segment_size, datagrams, len }))
    }
}
