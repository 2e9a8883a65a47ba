//! The receiver's side.

use std::collections::VecDeque;

use super::code::Code;
use super::{SIZE_LEN, Shard, Shards};

/// Groups that are kept, the newest ones: what was delayed for longer comes again anyway.
const GROUPS_MAX: usize = 4;
/// No shard is longer, so that a peer cannot make this end hold more than this times the shards of the groups.
const SHARD_MAX: usize = 2048;

#[derive(Debug)]
pub(in super::super) struct Decoder {
    shards: Shards,
    code: Code,
    groups: VecDeque<Group>,
}

#[derive(Debug)]
struct Group {
    number: u32,
    here: usize,
    /// Empty once nothing is missing any more.
    shards: Vec<Option<Vec<u8>>>,
}

impl Decoder {
    pub(in super::super) fn new(shards: Shards) -> Self {
        Self { shards, code: Code::new(shards), groups: VecDeque::new() }
    }

    /// Takes a shard and gives the datagrams that can be made up with it.
    pub(in super::super) fn take(&mut self, shard: Shard<'_>) -> Vec<Vec<u8>> {
        let (sequence, bytes, is_data) = match shard {
            Shard::Data { sequence, bytes } => (sequence, bytes, true),
            Shard::Parity { sequence, bytes } => (sequence, bytes, false),
        };
        let index = (sequence % self.shards.all()) as usize;
        let data = usize::from(self.shards.data);
        // The peer has groups of another size: what it sends can be read, but not made up.
        if (index < data) != is_data || bytes.len() > SHARD_MAX || sequence >= self.shards.sequence_end() {
            return Vec::new();
        }
        let all = self.shards.all() as usize;
        let Some(group) = self.group(sequence / self.shards.all()) else { return Vec::new() };
        if group.shards.is_empty() || group.shards[index].is_some() {
            return Vec::new();
        }
        group.shards[index] = Some(bytes.to_vec());
        group.here += 1;
        if group.here < data {
            return Vec::new();
        }
        debug_assert_eq!(group.shards.len(), all);
        let shards = std::mem::take(&mut group.shards);
        if shards[..data].iter().all(Option::is_some) {
            return Vec::new();
        }
        self.code.missing(&shards).into_iter().filter_map(datagram_of).collect()
    }

    fn group(&mut self, number: u32) -> Option<&mut Group> {
        if let Some(at) = self.groups.iter().position(|group| group.number == number) {
            return self.groups.get_mut(at);
        }
        let groups = self.shards.sequence_end() / self.shards.all();
        if let Some(newest) = self.groups.back() {
            let ahead = if number >= newest.number {
                number - newest.number
            } else {
                groups - newest.number + number
            };
            if ahead > groups / 2 {
                return None;
            }
        }
        if self.groups.len() == GROUPS_MAX {
            self.groups.pop_front();
        }
        self.groups.push_back(Group { number, here: 0, shards: vec![None; self.shards.all() as usize] });
        self.groups.back_mut()
    }
}

/// Cuts a made-up shard to its length.
fn datagram_of(mut shard: Vec<u8>) -> Option<Vec<u8>> {
    let size = usize::from(u16::from_le_bytes(*shard.first_chunk::<SIZE_LEN>()?));
    if !(SIZE_LEN..=shard.len()).contains(&size) {
        return None;
    }
    shard.truncate(size);
    shard.drain(..SIZE_LEN);
    Some(shard)
}
