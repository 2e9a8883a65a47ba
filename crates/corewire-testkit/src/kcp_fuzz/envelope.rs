//! The body of the fuzz target `kcp_envelope`.

use std::collections::HashSet;

use corewire_proto::kcp::{ClientEnvelope, Keys, Opened, ServerEnvelope, Transmit};

use crate::choices::Choices;

/// A client, two servers with its key and one with another, and everything that was ever sealed, which the input has
/// delivered to any of them, in any order, as often as it likes, whole or changed.
///
/// # Panics
/// When a text is opened that was not sealed, was changed, was sealed for somebody else, or was opened before anywhere.
pub fn kcp_envelope(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = World::new(choices.byte());
    while !choices.is_empty() {
        match choices.below(8) {
            0 => world.now += 1 << choices.below(15),
            1 | 2 => world.seal_at_client(),
            3 => world.seal_at_server(choices.below(3), choices.byte()),
            4 => world.deliver_raw(&mut choices),
            _ => world.deliver(&mut choices),
        }
    }
}

struct World {
    now: u64,
    client: ClientEnvelope,
    servers: [ServerEnvelope<u8>; 3],
    sealed: Vec<Vec<u8>>,
    texts: u32,
    /// Texts of the client and of each server, by their first byte.
    opened: HashSet<Vec<u8>>,
}

const CLIENT: u8 = 9;

impl World {
    fn new(mode: u8) -> Self {
        let (keys, other) = (Keys::new(&[1; 32]), Keys::new(&[2; 32]));
        let server =
            |keys: Keys, id| ServerEnvelope::new(keys, [id; 16]).clients_max(1 + usize::from(mode % 3));
        Self {
            now: 0,
            client: ClientEnvelope::new(keys.clone(), [CLIENT; 16]),
            servers: [server(keys.clone(), 0xa0), server(keys.and(&[2; 32]), 0xa1), server(other, 0xa2)],
            sealed: Vec::new(),
            texts: 0,
            opened: HashSet::new(),
        }
    }

    fn text(&mut self, from: u8) -> (Vec<u8>, Transmit) {
        self.texts += 1;
        let mut text = vec![from; 24 + self.texts as usize % 5];
        text[1..5].copy_from_slice(&self.texts.to_le_bytes());
        let transmit = Transmit { segment_size: text.len(), datagrams: 1, len: text.len() };
        (text, transmit)
    }

    fn keep(&mut self, datagram: Vec<u8>) {
        if !datagram.is_empty() && self.sealed.len() < 4096 {
            self.sealed.push(datagram);
        }
    }

    fn seal_at_client(&mut self) {
        let (text, transmit) = self.text(CLIENT);
        let mut out = Vec::new();
        if self.client.seal(self.now, &text, transmit, &mut out).is_ok() {
            self.keep(out);
        }
    }

    fn seal_at_server(&mut self, index: usize, to: u8) {
        let (text, transmit) = self.text(0xa0 + index as u8);
        let mut out = Vec::new();
        if self.servers[index].seal(to % 4, &text, transmit, &mut out).is_ok() {
            self.keep(out);
        }
    }

    fn deliver_raw(&mut self, choices: &mut Choices<'_>) {
        let len = choices.below(100);
        let mut datagram: Vec<u8> = (0..len).map(|_| choices.byte()).collect();
        assert!(!matches!(self.client.open(&mut datagram.clone()), Ok(Opened::Data(_))));
        let opened = self.servers[0].open(self.now, 0, &mut datagram);
        assert!(!matches!(opened, Ok(Opened::Data(_))));
    }

    fn deliver(&mut self, choices: &mut Choices<'_>) {
        if self.sealed.is_empty() {
            return;
        }
        // The last ones more often, so that something comes of it.
        let back = if choices.flag() { choices.below(3) } else { choices.below(self.sealed.len()) };
        let mut datagram = self.sealed[self.sealed.len() - 1 - back.min(self.sealed.len() - 1)].clone();
        let len = datagram.len();
        let changed = (choices.below(4) == 0).then(|| choices.below(datagram.len() * 8));
        if let Some(bit) = changed {
            datagram[bit / 8] ^= 1 << (bit % 8);
        }
        let mut waiting = Vec::new();
        let to = choices.below(4);
        let opened = match to {
            3 => self.client.open(&mut datagram),
            server => self.servers[server].open(self.now, choices.byte() % 4, &mut datagram),
        };
        let answer = match opened {
            Ok(Opened::Data(text)) => {
                assert!(changed.is_none(), "bit {changed:?} was changed");
                let is_sealed_there = if to == 3 { text[0] >= 0xa0 } else { text[0] == CLIENT };
                assert!(is_sealed_there, "{to} has opened {text:?}");
                assert!(self.opened.insert(text.to_vec()), "{text:?} was opened twice");
                return;
            }
            Ok(Opened::Answer(answer)) => {
                assert!(answer.len() <= len, "{} bytes for {len}", answer.len());
                answer.to_vec()
            }
            Ok(Opened::Nothing) | Err(_) => return,
        };
        self.keep(answer);
        while to == 3 && matches!(self.client.poll_waiting(&mut waiting), Ok(Some(_))) {
            self.keep(std::mem::take(&mut waiting));
        }
    }
}
