//! Encryption with a key that both ends know beforehand.
//!
//! A sealed datagram is `sender (16) | counter (8, little-endian) | ciphertext | tag (16)`: XChaCha20-Poly1305 with
//! sender and counter as its 24-byte nonce and [`LABEL`] as its associated data. Each envelope draws its sender id
//! at random when it is made and counts its datagrams, so no nonce is ever used twice under a key.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};

use super::transmit::Transmit;

const LABEL: &[u8] = b"corewire kcp 1";
const SENDER_LEN: usize = 16;
const NONCE_LEN: usize = 24;
const TAG_LEN: usize = 16;

/// Seals and opens the datagrams of one socket with a pre-shared key.
///
/// It goes between the socket and [`Sessions`](super::Sessions) (or a [`Kcp`](super::Kcp)): open what was received
/// before it is handed on, seal what [`poll_transmit`](super::Kcp::poll_transmit) gave. Make the conversations' MTU
/// [`OVERHEAD`](Self::OVERHEAD) smaller than the path's.
///
/// Nobody without the key can open a session, read or change a datagram, or play one back to this envelope while
/// it remembers the sender. What it does not do: there is no forward secrecy, and an envelope made anew (after a
/// restart) has forgotten which datagrams it has seen. Use a new key when that matters.
///
/// ```
/// use corewire_proto::kcp::{Config, Envelope, Kcp};
///
/// let key = [7; 32]; // agreed beforehand
/// let mut alice = Envelope::new(&key, [1; 16]); // 16 bytes from the system's random source, here and below
/// let mut bob = Envelope::new(&key, [2; 16]);
///
/// let mut kcp = Kcp::new(1, Config::default().mtu(1400 - Envelope::OVERHEAD))?;
/// kcp.send(b"secret")?;
/// let (mut plain, mut sealed) = (Vec::new(), Vec::new());
/// let transmit = kcp.poll_transmit(0, &mut plain, 64).ok_or("nothing to send")?;
/// alice.seal(&plain, transmit, &mut sealed)?;
/// assert_eq!(bob.open(&mut sealed)?, plain);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Envelope {
    cipher: XChaCha20Poly1305,
    sender: [u8; SENDER_LEN],
    counter: u64,
    seen: HashMap<[u8; SENDER_LEN], Seen>,
    shared: Option<Senders>,
    senders_max: usize,
    opened: u64,
}

/// Which senders are heard by which of the envelopes that share one key and one address, as the sockets of a server's
/// threads do: what one of them has opened, none of the others takes. It is looked at when a sender is heard for the
/// first time, not for each datagram.
#[derive(Debug, Clone, Default)]
pub struct Senders(Arc<Mutex<HashMap<[u8; SENDER_LEN], [u8; SENDER_LEN]>>>);

impl Senders {
    /// Whether this envelope may hear the sender: it is new, or was heard here before.
    fn claim(&self, sender: [u8; SENDER_LEN], by: [u8; SENDER_LEN]) -> bool {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *heard.entry(sender).or_insert(by) == by
    }

    fn release(&self, sender: &[u8; SENDER_LEN]) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(sender);
    }
}

/// A datagram was not opened. None of these needs an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// Fewer bytes than the envelope alone takes.
    #[error("{len} bytes are no sealed datagram: the envelope alone has {}", Envelope::OVERHEAD)]
    TooShort {
        /// The datagram's length in bytes.
        len: usize,
    },
    /// Made with another key, or changed on the way.
    #[error("the datagram was sealed with another key or changed on the way")]
    Forged,
    /// Seen before, or so old that it cannot be told.
    #[error("datagram {counter} of its sender was seen before or is too old to tell")]
    Replayed {
        /// The sender's count.
        counter: u64,
    },
    /// Sealed by this envelope itself and sent back.
    #[error("the datagram was sealed here and sent back")]
    Reflected,
}

/// A datagram was not sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SealError {
    /// The counter is used up.
    #[error("this envelope has sealed all the datagrams it can: make a new one")]
    Exhausted,
}

impl Envelope {
    /// Bytes that sealing adds to a datagram.
    pub const OVERHEAD: usize = NONCE_LEN + TAG_LEN;

    /// An envelope for one socket. `sender` must come from a cryptographic random source and be drawn anew for
    /// every envelope: two that share key and sender give the plain text away.
    pub fn new(key: &[u8; 32], sender: [u8; 16]) -> Self {
        Self {
            cipher: XChaCha20Poly1305::new(key.into()),
            sender,
            counter: 0,
            seen: HashMap::new(),
            shared: None,
            senders_max: 65_536,
            opened: 0,
        }
    }

    /// How many senders are remembered (default 65,536, at least 1; 160 bytes each). Beyond that those not heard for
    /// longest are forgotten, one in 16 of them at once.
    pub fn senders_max(mut self, senders: usize) -> Self {
        self.senders_max = senders.max(1);
        self
    }

    /// Shares what senders are heard with other envelopes of the same key and address, so that nobody can play back to
    /// one of them what another has opened.
    pub fn shared(mut self, senders: Senders) -> Self {
        self.shared = Some(senders);
        self
    }

    /// Appends the datagrams of `transmit`, which are in `plain`, sealed to `out`; each is
    /// [`OVERHEAD`](Self::OVERHEAD) longer, as the result says.
    ///
    /// # Errors
    /// [`SealError::Exhausted`] after 2⁶⁴ − 1 datagrams; nothing that was appended may be sent then.
    pub fn seal(
        &mut self,
        plain: &[u8],
        transmit: Transmit,
        out: &mut Vec<u8>,
    ) -> Result<Transmit, SealError> {
        let before = out.len();
        for datagram in plain.chunks(transmit.segment_size.max(1)) {
            self.seal_one(datagram, out)?;
        }
        Ok(Transmit {
            segment_size: transmit.segment_size + Self::OVERHEAD,
            datagrams: transmit.datagrams,
            len: out.len() - before,
        })
    }

    /// Opens a datagram in place and gives what it holds.
    ///
    /// # Errors
    /// The datagram is too short, forged, reflected or replayed; its bytes are of no use then.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<&'a mut [u8], OpenError> {
        let len = datagram.len();
        let Some((nonce, rest)) = datagram.split_first_chunk_mut::<NONCE_LEN>() else {
            return Err(OpenError::TooShort { len });
        };
        let Some((text, tag)) = rest.split_last_chunk_mut::<TAG_LEN>() else {
            return Err(OpenError::TooShort { len });
        };
        let (sender, counter) = split_nonce(nonce);
        if sender == self.sender {
            return Err(OpenError::Reflected);
        }
        let (nonce, tag) = (XNonce::from(*nonce), Tag::from(*tag));
        let opened = self.cipher.decrypt_inout_detached(&nonce, LABEL, (&mut *text).into(), &tag);
        opened.map_err(|_| OpenError::Forged)?;
        // Only now: a forged counter must not move the window.
        if !self.is_first_sight(sender, counter) {
            return Err(OpenError::Replayed { counter });
        }
        Ok(text)
    }

    fn seal_one(&mut self, datagram: &[u8], out: &mut Vec<u8>) -> Result<(), SealError> {
        let counter = self.counter;
        self.counter = counter.checked_add(1).ok_or(SealError::Exhausted)?;
        let mut nonce = [0; NONCE_LEN];
        nonce[..SENDER_LEN].copy_from_slice(&self.sender);
        nonce[SENDER_LEN..].copy_from_slice(&counter.to_le_bytes());
        out.extend_from_slice(&nonce);
        let begin = out.len();
        out.extend_from_slice(datagram);
        let text = &mut out[begin..];
        let tag = self.cipher.encrypt_inout_detached(&XNonce::from(nonce), LABEL, text.into());
        out.extend_from_slice(&tag.map_err(|_| SealError::Exhausted)?);
        Ok(())
    }

    fn is_first_sight(&mut self, sender: [u8; SENDER_LEN], counter: u64) -> bool {
        self.opened += 1;
        if let Some(seen) = self.seen.get_mut(&sender) {
            seen.last_use = self.opened;
            return seen.insert(counter);
        }
        if self.shared.as_ref().is_some_and(|shared| !shared.claim(sender, self.sender)) {
            return false;
        }
        self.make_room();
        let seen = self.seen.entry(sender).or_default();
        seen.last_use = self.opened;
        seen.insert(counter)
    }

    /// Forgets the senders not heard for longest, some at once, since to find them is some work.
    fn make_room(&mut self) {
        if self.seen.len() < self.senders_max {
            return;
        }
        let mut uses: Vec<u64> = self.seen.values().map(|seen| seen.last_use).collect();
        let forgotten = self.senders_max / 16;
        let (_, last, _) = uses.select_nth_unstable(forgotten);
        let last = *last;
        let shared = &self.shared;
        self.seen.retain(|sender, seen| {
            let stays = seen.last_use > last;
            if !stays && let Some(shared) = shared {
                shared.release(sender);
            }
            stays
        });
    }
}

impl Drop for Envelope {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            self.seen.keys().for_each(|sender| shared.release(sender));
        }
    }
}

impl fmt::Debug for Envelope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Envelope").field("counter", &self.counter).finish_non_exhaustive()
    }
}

fn split_nonce(nonce: &[u8; NONCE_LEN]) -> ([u8; SENDER_LEN], u64) {
    let mut sender = [0; SENDER_LEN];
    let mut counter = [0; 8];
    sender.copy_from_slice(&nonce[..SENDER_LEN]);
    counter.copy_from_slice(&nonce[SENDER_LEN..]);
    (sender, u64::from_le_bytes(counter))
}

const WORDS: usize = 16;
const WINDOW: u64 = WORDS as u64 * 64;

/// Which of the last 1024 counters of a sender were seen.
#[derive(Debug, Default)]
struct Seen {
    /// One more than the highest counter seen.
    end: u64,
    /// Bit `counter % WINDOW`, for counters from `end - WINDOW` to `end - 1`.
    bits: [u64; WORDS],
    last_use: u64,
}

impl Seen {
    /// False when `counter` was inserted before or lies too far back.
    fn insert(&mut self, counter: u64) -> bool {
        if counter >= self.end {
            // The counter after the last possible one is never sealed.
            let Some(end) = counter.checked_add(1) else { return false };
            let skipped = (counter - self.end).min(WINDOW);
            for back in 0..=skipped {
                self.set(counter - back, false);
            }
            self.end = end;
        } else if self.end - counter > WINDOW || self.is_set(counter) {
            return false;
        }
        self.set(counter, true);
        true
    }

    fn is_set(&self, counter: u64) -> bool {
        let bit = counter % WINDOW;
        self.bits[(bit / 64) as usize] >> (bit % 64) & 1 == 1
    }

    fn set(&mut self, counter: u64, value: bool) {
        let bit = counter % WINDOW;
        let word = &mut self.bits[(bit / 64) as usize];
        *word = *word & !(1 << (bit % 64)) | u64::from(value) << (bit % 64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pair() -> (Envelope, Envelope) {
        (Envelope::new(&[1; 32], [2; 16]), Envelope::new(&[1; 32], [3; 16]))
    }

    fn sealed(envelope: &mut Envelope, plain: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        let transmit = Transmit { segment_size: plain.len(), datagrams: 1, len: plain.len() };
        envelope.seal(plain, transmit, &mut out).unwrap();
        out
    }

    #[test]
    fn a_batch_is_sealed_datagram_by_datagram() {
        let (mut a, mut b) = pair();
        let mut out = Vec::new();
        let transmit = Transmit { segment_size: 4, datagrams: 3, len: 10 };
        let transmit = a.seal(b"aaaabbbbcc", transmit, &mut out).unwrap();
        assert_eq!((transmit.segment_size, transmit.datagrams, transmit.len), (44, 3, 10 + 3 * 40));
        assert_eq!(out[..24], [[2; 16].as_slice(), &[0; 8]].concat());
        assert_eq!(out[44..68], [[2; 16].as_slice(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat());
        let plain: Vec<Vec<u8>> =
            out.chunks_mut(44).map(|datagram| b.open(datagram).unwrap().to_vec()).collect();
        assert_eq!(plain, [&b"aaaa"[..], b"bbbb", b"cc"]);
    }

    #[test]
    fn every_changed_bit_is_noticed_and_moves_no_window() {
        let (mut a, mut b) = pair();
        let good = sealed(&mut a, b"hello");
        for bit in 0..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(b.open(&mut bad), Err(OpenError::Forged), "bit {bit}");
        }
        assert_eq!(b.open(&mut good.clone()).unwrap(), b"hello");
        assert_eq!(Envelope::new(&[9; 32], [4; 16]).open(&mut good.clone()), Err(OpenError::Forged));
    }

    #[test]
    fn replayed_reflected_and_short_datagrams_are_refused() {
        let (mut a, mut b) = pair();
        let good = sealed(&mut a, b"hello");
        b.open(&mut good.clone()).unwrap();
        assert_eq!(b.open(&mut good.clone()), Err(OpenError::Replayed { counter: 0 }));
        assert_eq!(a.open(&mut good.clone()), Err(OpenError::Reflected));
        for len in 0..Envelope::OVERHEAD {
            assert_eq!(b.open(&mut good.clone()[..len]), Err(OpenError::TooShort { len }));
        }
    }

    #[test]
    fn the_window_takes_each_counter_once_in_any_order() {
        let mut seen = Seen::default();
        assert!(seen.insert(5) && seen.insert(3) && !seen.insert(5) && !seen.insert(3) && seen.insert(4));
        assert!(seen.insert(5 + WINDOW - 1) && !seen.insert(5) && seen.insert(6));
        assert!(seen.insert(10 * WINDOW) && !seen.insert(9 * WINDOW) && seen.insert(9 * WINDOW + 1));
        assert!(!seen.insert(10 * WINDOW) && seen.insert(10 * WINDOW - 1));
        assert!(seen.insert(u64::MAX - 1) && !seen.insert(u64::MAX - 1) && !seen.insert(u64::MAX));
    }

    #[test]
    fn the_longest_silent_sender_is_forgotten_first() {
        let mut b = Envelope::new(&[1; 32], [0; 16]).senders_max(2);
        let mut senders: Vec<Envelope> = (1..=3).map(|id| Envelope::new(&[1; 32], [id; 16])).collect();
        let firsts: Vec<Vec<u8>> = senders.iter_mut().map(|sender| sealed(sender, b"x")).collect();
        b.open(&mut firsts[0].clone()).unwrap();
        b.open(&mut firsts[1].clone()).unwrap();
        b.open(&mut sealed(&mut senders[0], b"y")).unwrap();
        b.open(&mut firsts[2].clone()).unwrap();
        assert_eq!(b.seen.len(), 2);
        assert!(b.open(&mut firsts[0].clone()).is_err(), "heard lately, so remembered");
    }

    #[test]
    fn envelopes_that_share_senders_take_each_datagram_in_one_place_only() {
        let senders = Senders::default();
        let [mut one, mut other] =
            [4, 5].map(|id| Envelope::new(&[1; 32], [id; 16]).shared(senders.clone()).senders_max(1));
        let (mut a, mut b) = pair();
        let (first, second) = (sealed(&mut a, b"first"), sealed(&mut a, b"second"));
        assert_eq!(one.open(&mut first.clone()).unwrap(), b"first");
        assert_eq!(other.open(&mut first.clone()), Err(OpenError::Replayed { counter: 0 }));
        assert_eq!(other.open(&mut second.clone()), Err(OpenError::Replayed { counter: 1 }));
        assert_eq!(other.open(&mut sealed(&mut b, b"x")).unwrap(), b"x");
        assert_eq!(one.open(&mut second.clone()).unwrap(), b"second");
        assert_eq!(senders.0.lock().unwrap().len(), 2);
        drop((one, other));
        assert!(senders.0.lock().unwrap().is_empty());
    }

    #[test]
    fn the_key_is_not_shown() {
        let shown = format!("{:?}", pair().0);
        assert_eq!(shown, "Envelope { counter: 0, .. }");
    }
}
