//! The client's side.

use std::collections::VecDeque;

use super::super::transmit::Transmit;
use super::keys::Keys;
use super::replay::Seen;
use super::{
    Direction, ENVELOPE_OVERHEAD, GREETING_LEN, Head, Id, Kind, NOBODY, OpenError, Opened, SealError, Sealer,
    greeting, open, read_greeting,
};

/// Datagrams kept until the server has answered, in bytes; more are dropped, as a path would.
const WAITING_MAX: usize = 128 * 1024;
/// How long to wait for the answer to a hello, in milliseconds.
const HELLO_EVERY_MS: u64 = 100;
/// A challenge answers one of so many datagrams sent last.
const ANSWERED_MAX: u64 = 1024;

/// Seals and opens the datagrams between one client's socket and its server.
///
/// It goes between the socket and the conversation: open what was received before it is handed on, seal what
/// [`poll_transmit`](super::super::Kcp::poll_transmit) gave. Make the MTU [`ENVELOPE_OVERHEAD`] smaller than the path's.
///
/// The first datagrams wait until the server has answered a hello, one round trip; then
/// [`poll_waiting`](Self::poll_waiting) gives them out.
///
/// ```
/// use corewire_proto::kcp::{ClientEnvelope, Keys, Opened, ServerEnvelope, Transmit};
///
/// let keys = Keys::new(&[7; 32]); // agreed beforehand
/// // 16 bytes from the system's random source, here and below.
/// let mut client = ClientEnvelope::new(keys.clone(), [1; 16]);
/// let mut server = ServerEnvelope::new(keys, [2; 16]);
///
/// let mut out = Vec::new();
/// let one = Transmit { segment_size: 6, datagrams: 1, len: 6 };
/// client.seal(0, b"secret", one, &mut out)?; // a hello
/// let mut challenge = match server.open(0, "client", &mut out)? {
///     Opened::Answer(challenge) => challenge.to_vec(),
///     _ => return Err("a hello is answered".into()),
/// };
/// let mut echo = match client.open(&mut challenge)? {
///     Opened::Answer(echo) => echo.to_vec(),
///     _ => return Err("a challenge is echoed".into()),
/// };
/// server.open(0, "client", &mut echo)?;
/// out.clear();
/// client.poll_waiting(&mut out)?.ok_or("the first datagram waits")?;
/// assert_eq!(server.open(0, "client", &mut out)?, Opened::Data(&mut b"secret".clone()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct ClientEnvelope {
    keys: Keys,
    sealer: Sealer,
    server: Server,
    answer: Vec<u8>,
}

#[derive(Debug)]
enum Server {
    /// It has not answered yet.
    Greeted { hello_at: Option<u64>, waiting: VecDeque<Vec<u8>>, waiting_bytes: usize },
    /// It has; the first datagrams may still wait to be sent.
    Known { id: Id, seen: Seen, waiting: VecDeque<Vec<u8>> },
}

impl ClientEnvelope {
    /// An envelope for one socket. `id` must come from a cryptographic random source and be drawn anew for every
    /// envelope: two that share key and id give the plain text away.
    pub fn new(keys: Keys, id: [u8; 16]) -> Self {
        Self {
            keys,
            sealer: Sealer::new(id, Direction::ToServer),
            server: Server::Greeted { hello_at: None, waiting: VecDeque::new(), waiting_bytes: 0 },
            answer: Vec::new(),
        }
    }

    /// Appends the datagrams of `transmit`, which are in `plain`, sealed to `out`; each is [`ENVELOPE_OVERHEAD`] longer, as
    /// the result says. Until the server has answered they are kept, and a hello is appended instead, if it is time for
    /// one; `None`: there is nothing to send. `now` is in milliseconds.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] after 2⁶⁴ − 1 datagrams; nothing that was appended may be sent then.
    pub fn seal(
        &mut self,
        now: u64,
        plain: &[u8],
        transmit: Transmit,
        out: &mut Vec<u8>,
    ) -> Result<Option<Transmit>, SealError> {
        let before = out.len();
        let datagrams = plain.chunks(transmit.segment_size.max(1));
        match &mut self.server {
            Server::Known { id, .. } => {
                for datagram in datagrams {
                    self.sealer.seal(self.keys.first(), Kind::Data, id, datagram, out)?;
                }
                let segment_size = transmit.segment_size + ENVELOPE_OVERHEAD;
                Ok(Some(Transmit { segment_size, datagrams: transmit.datagrams, len: out.len() - before }))
            }
            Server::Greeted { hello_at, waiting, waiting_bytes } => {
                for datagram in datagrams {
                    if *waiting_bytes + datagram.len() <= WAITING_MAX {
                        *waiting_bytes += datagram.len();
                        waiting.push_back(datagram.to_vec());
                    }
                }
                if hello_at.is_some_and(|at| now < at + HELLO_EVERY_MS) {
                    return Ok(None);
                }
                *hello_at = Some(now);
                self.sealer.seal(self.keys.first(), Kind::Hello, &NOBODY, &[0; GREETING_LEN], out)?;
                let len = out.len() - before;
                Ok(Some(Transmit { segment_size: len, datagrams: 1, len }))
            }
        }
    }

    /// Appends one of the datagrams that have waited for the server's answer; `None` when there is none, or it has not
    /// answered.
    ///
    /// # Errors
    /// [`SealError::Exhausted`].
    pub fn poll_waiting(&mut self, out: &mut Vec<u8>) -> Result<Option<Transmit>, SealError> {
        let Server::Known { id, waiting, .. } = &mut self.server else { return Ok(None) };
        let Some(datagram) = waiting.pop_front() else { return Ok(None) };
        let before = out.len();
        self.sealer.seal(self.keys.first(), Kind::Data, id, &datagram, out)?;
        let len = out.len() - before;
        Ok(Some(Transmit { segment_size: len, datagrams: 1, len }))
    }

    /// Opens a datagram from the server in place. After [`Opened::Answer`] ask [`poll_waiting`](Self::poll_waiting).
    ///
    /// # Errors
    /// The datagram is not for this envelope, or of no use; its bytes are of no use then.
    pub fn open<'a>(&'a mut self, datagram: &'a mut [u8]) -> Result<Opened<'a>, OpenError> {
        let head = Head::parse(datagram)?;
        let cipher = self.keys.find(head.key)?;
        let text = open(cipher, &head, Direction::ToClient, &self.sealer.id, datagram)?;
        match (head.kind, &mut self.server) {
            (Kind::Data, Server::Known { id, seen, .. }) if *id == head.sender => {
                // Only now: a forged counter must not move the window.
                if !seen.insert(head.counter) {
                    return Err(OpenError::Replayed { counter: head.counter });
                }
                Ok(Opened::Data(text))
            }
            (Kind::Challenge, _) => {
                let (time, answered) = read_greeting(text).ok_or(OpenError::Forged)?;
                self.take_challenge(&head, time, answered)
            }
            _ => Err(OpenError::Stale),
        }
    }

    /// The server asks for an echo: at the beginning, and when it has forgotten this client or is a new one.
    fn take_challenge(&mut self, head: &Head, time: u64, answered: u64) -> Result<Opened<'_>, OpenError> {
        let is_fresh = answered < self.sealer.counter && self.sealer.counter - answered <= ANSWERED_MAX;
        if !is_fresh {
            return Err(OpenError::Stale);
        }
        match &mut self.server {
            Server::Known { id, seen, .. } if *id == head.sender => {
                if !seen.insert(head.counter) {
                    return Err(OpenError::Replayed { counter: head.counter });
                }
            }
            Server::Known { waiting, .. } | Server::Greeted { waiting, .. } => {
                let (waiting, mut seen) = (std::mem::take(waiting), Seen::default());
                seen.insert(head.counter);
                self.server = Server::Known { id: head.sender, seen, waiting };
            }
        }
        self.answer.clear();
        let echo = greeting(time, 0);
        let sealed = self.sealer.seal(self.keys.first(), Kind::Echo, &head.sender, &echo, &mut self.answer);
        Ok(if sealed.is_ok() { Opened::Answer(&self.answer) } else { Opened::Nothing })
    }
}
