//! The sender's side.

use super::code::Code;
use super::{DATA, HEAD_LEN, PARITY, SIZE_LEN, Shards};

/// A group whose last datagram comes so long after the one before gets no parity, as with kcp-go: it would come too late
/// to be of use.
const CONTINUOUS_MS: u64 = 500;

#[derive(Debug)]
pub(in super::super) struct Encoder {
    shards: Shards,
    code: Code,
    next: u32,
    /// Shards of the group so far, and the length of its longest.
    count: usize,
    longest: usize,
    parity: Vec<Vec<u8>>,
    last_at: u64,
}

impl Encoder {
    pub(in super::super) fn new(shards: Shards) -> Self {
        let parity = vec![Vec::new(); shards.parity.into()];
        Self { shards, code: Code::new(shards), next: 0, count: 0, longest: 0, parity, last_at: 0 }
    }

    /// Gives `emit` the datagram with its head, and those of parity if it is the last of a group; `may_repair` is false
    /// where no more than needed may be sent.
    pub(in super::super) fn encode(
        &mut self,
        now: u64,
        datagram: &[u8],
        may_repair: bool,
        emit: &mut impl FnMut(&[&[u8]]),
    ) {
        let size = ((SIZE_LEN + datagram.len()) as u16).to_le_bytes();
        emit(&[&self.head(DATA), &size, datagram]);
        self.add(&[&size, datagram].concat());
        let is_continuous = now < self.last_at + CONTINUOUS_MS;
        self.last_at = now;
        if self.count < usize::from(self.shards.data) {
            return;
        }
        for index in 0..self.parity.len() {
            let head = self.head(PARITY);
            if is_continuous && may_repair {
                emit(&[&head, &self.parity[index][..self.longest]]);
            }
            self.parity[index].clear();
        }
        (self.count, self.longest) = (0, 0);
    }

    fn add(&mut self, shard: &[u8]) {
        if shard.len() > self.longest {
            self.longest = shard.len();
            self.parity.iter_mut().for_each(|parity| parity.resize(shard.len(), 0));
        }
        self.code.add_to_parity(self.count, shard, &mut self.parity);
        self.count += 1;
    }

    fn head(&mut self, kind: u16) -> [u8; HEAD_LEN] {
        let mut head = [0; HEAD_LEN];
        head[..4].copy_from_slice(&self.next.to_le_bytes());
        head[4..].copy_from_slice(&kind.to_le_bytes());
        self.next = (self.next + 1) % self.shards.sequence_end();
        head
    }
}
