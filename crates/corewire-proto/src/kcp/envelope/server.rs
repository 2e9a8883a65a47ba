//! The server's side.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;

use super::super::transmit::Transmit;
use super::keys::Keys;
use super::replay::Seen;
use super::{
    Direction, ENVELOPE_OVERHEAD, Head, Id, Kind, NOBODY, OpenError, Opened, SEALED_GREETING_LEN, SealError,
    Sealer, greeting, open, read_greeting,
};

/// How long a challenge may be echoed, in milliseconds.
const ECHO_WITHIN_MS: u64 = 10_000;
/// Challenges in a second for datagrams that cannot be opened, since they are for another server.
const UNPROVED_CHALLENGES_MAX: u32 = 256;

/// Seals and opens the datagrams of one socket of a server; `A` is the address of a client.
///
/// Nobody without the key can have a datagram taken, read or change one, or play one back: not to this socket, which
/// remembers what it has seen of each client and wants an echo of its own time from those that it does not
/// remember; and not to another socket, server or client, since each datagram is sealed for one recipient and direction.
/// There is no forward secrecy: who learns the key can read what was recorded before.
pub struct ServerEnvelope<A> {
    keys: Keys,
    sealer: Sealer,
    clients: HashMap<Id, Client<A>>,
    by_address: HashMap<A, Id>,
    clients_max: usize,
    opened: u64,
    /// The second in which challenges without proof are counted, and how many there were.
    unproved: (u64, u32),
    answer: Vec<u8>,
}

#[derive(Debug)]
struct Client<A> {
    address: A,
    key: [u8; 4],
    seen: Seen,
    last_use: u64,
}

impl<A: Copy + Eq + Hash> ServerEnvelope<A> {
    /// An envelope for one socket. `id` must come from a cryptographic random source and be drawn anew for every
    /// envelope: two that share key and id give the plain text away.
    pub fn new(keys: Keys, id: [u8; 16]) -> Self {
        Self {
            keys,
            sealer: Sealer::new(id, Direction::ToClient),
            clients: HashMap::new(),
            by_address: HashMap::new(),
            clients_max: 65_536,
            opened: 0,
            unproved: (0, 0),
            answer: Vec::new(),
        }
    }

    /// How many clients are remembered (default 65,536, at least 1; some 250 bytes each). Beyond that those not heard for
    /// longest are forgotten, one in 16 of them at once; they are asked for another echo when they send something.
    pub fn clients_max(mut self, clients: usize) -> Self {
        self.clients_max = clients.max(1);
        self
    }

    /// Appends the datagrams of `transmit`, which are in `plain`, sealed for the client at `to`, to `out`; each is
    /// [`ENVELOPE_OVERHEAD`] longer, as the result says.
    ///
    /// # Errors
    /// [`SealError::UnknownClient`], or [`SealError::Exhausted`] after 2⁶⁴ − 1 datagrams; nothing that was appended may be
    /// sent then.
    pub fn seal(
        &mut self,
        to: A,
        plain: &[u8],
        transmit: Transmit,
        out: &mut Vec<u8>,
    ) -> Result<Transmit, SealError> {
        let before = out.len();
        let id = self.by_address.get(&to).ok_or(SealError::UnknownClient)?;
        let client = self.clients.get(id).ok_or(SealError::UnknownClient)?;
        let cipher = self.keys.find(client.key).map_err(|_| SealError::UnknownClient)?;
        for datagram in plain.chunks(transmit.segment_size.max(1)) {
            self.sealer.seal(cipher, Kind::Data, id, datagram, out)?;
        }
        let segment_size = transmit.segment_size + ENVELOPE_OVERHEAD;
        Ok(Transmit { segment_size, datagrams: transmit.datagrams, len: out.len() - before })
    }

    /// Opens a datagram from a client at `from` in place. `now` is in milliseconds and must not go back.
    ///
    /// # Errors
    /// The datagram is not for this envelope, or of no use; its bytes are of no use then.
    pub fn open<'a>(
        &'a mut self,
        now: u64,
        from: A,
        datagram: &'a mut [u8],
    ) -> Result<Opened<'a>, OpenError> {
        let (head, len) = (Head::parse(datagram)?, datagram.len());
        let cipher = self.keys.find(head.key)?;
        if head.kind == Kind::Challenge {
            // Of another server: answers to it would be answered in turn.
            return Err(OpenError::Forged);
        }
        let is_hello = head.kind == Kind::Hello;
        if !is_hello && !head.is_for(&self.sealer.id) {
            return self.challenge_unproved(now, &head, len);
        }
        let recipient = if is_hello { NOBODY } else { self.sealer.id };
        let text = open(cipher, &head, Direction::ToServer, &recipient, datagram)?;
        match head.kind {
            Kind::Hello => self.challenge(now, &head),
            Kind::Echo => {
                let (time, _) = read_greeting(text).ok_or(OpenError::Forged)?;
                self.take_echo(now, from, &head, time)
            }
            Kind::Data if self.is_known(&head.sender) => {
                self.take_data(from, &head).map(|()| Opened::Data(text))
            }
            // No answer is longer than what it answers; a datagram of KCP is long enough.
            Kind::Data if len >= SEALED_GREETING_LEN => self.challenge(now, &head),
            Kind::Data => Err(OpenError::Stale),
            Kind::Challenge => Err(OpenError::Forged),
        }
    }

    fn is_known(&self, sender: &Id) -> bool {
        self.clients.contains_key(sender)
    }

    fn take_data(&mut self, from: A, head: &Head) -> Result<(), OpenError> {
        let replayed = OpenError::Replayed { counter: head.counter };
        self.opened += 1;
        let client = self.clients.get_mut(&head.sender).ok_or(replayed)?;
        // Only now, after it was opened: a forged counter must not move the window.
        if !client.seen.insert(head.counter) {
            return Err(replayed);
        }
        client.last_use = self.opened;
        client.key = head.key;
        if client.address != from {
            let former = std::mem::replace(&mut client.address, from);
            self.by_address.remove(&former);
            self.by_address.insert(from, head.sender);
        }
        Ok(())
    }

    fn take_echo(&mut self, now: u64, from: A, head: &Head, time: u64) -> Result<Opened<'_>, OpenError> {
        if self.is_known(&head.sender) {
            return self.take_data(from, head).map(|()| Opened::Nothing);
        }
        if time > now || now - time > ECHO_WITHIN_MS {
            return Err(OpenError::Stale);
        }
        self.make_room();
        self.opened += 1;
        let mut seen = Seen::default();
        seen.insert(head.counter);
        let client = Client { address: from, key: head.key, seen, last_use: self.opened };
        self.clients.insert(head.sender, client);
        self.by_address.insert(from, head.sender);
        Ok(Opened::Nothing)
    }

    fn challenge(&mut self, now: u64, head: &Head) -> Result<Opened<'_>, OpenError> {
        let cipher = self.keys.find(head.key)?;
        self.answer.clear();
        let text = greeting(now, head.counter);
        let sealed = self.sealer.seal(cipher, Kind::Challenge, &head.sender, &text, &mut self.answer);
        Ok(if sealed.is_ok() { Opened::Answer(&self.answer) } else { Opened::Nothing })
    }

    /// The datagram is for another server, perhaps the one that was here before; whether it is genuine cannot be told.
    fn challenge_unproved(&mut self, now: u64, head: &Head, len: usize) -> Result<Opened<'_>, OpenError> {
        let second = now / 1000;
        if self.unproved.0 != second {
            self.unproved = (second, 0);
        }
        if len < SEALED_GREETING_LEN || self.unproved.1 >= UNPROVED_CHALLENGES_MAX {
            return Err(OpenError::Forged);
        }
        self.unproved.1 += 1;
        self.challenge(now, head)
    }

    /// Forgets the clients not heard for longest, some at once, since to find them is some work.
    fn make_room(&mut self) {
        if self.clients.len() < self.clients_max {
            return;
        }
        let mut uses: Vec<u64> = self.clients.values().map(|client| client.last_use).collect();
        let (_, last, _) = uses.select_nth_unstable(self.clients_max / 16);
        let last = *last;
        self.clients.retain(|_, client| client.last_use > last);
        self.by_address.retain(|_, id| self.clients.contains_key(id));
    }
}

impl<A> fmt::Debug for ServerEnvelope<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerEnvelope").field("clients", &self.clients.len()).finish_non_exhaustive()
    }
}
