//! Receiving many datagrams with one system call.

use std::io;
use std::net::{IpAddr, SocketAddr};

use crate::socket::Socket;
use crate::sys::udp::Receiver;
use bytes::{Bytes, BytesMut};

use super::message::Meta;
use super::{Ecn, UdpError};

/// Takes datagrams from a socket, many at a time, into memory that is used again and again.
///
/// ```
/// use corewire_driver::udp::{RecvBatch, UdpOptions, open};
///
/// let options = UdpOptions::default();
/// let here = open("127.0.0.1:0".parse().unwrap(), &options)?;
/// let peer = open("127.0.0.1:0".parse().unwrap(), &options)?;
/// let to = here.local_addr()?.as_socket().unwrap();
/// peer.send_to(b"hello", to)?;
///
/// let mut batch = RecvBatch::new();
/// assert_eq!(batch.recv(&here)?, 1);
/// let datagram = batch.datagrams().next().unwrap();
/// assert_eq!(datagram.payload(), b"hello");
/// assert_eq!(datagram.from(), peer.local_addr()?.as_socket());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct RecvBatch {
    /// All slots in one piece, filled with something from the start.
    memory: Bytes,
    slot: usize,
    /// Messages that one call takes at most.
    messages: usize,
    metas: Vec<Meta>,
    receiver: Receiver,
    /// Messages that the next call asks for, and that the last one asked for.
    wanted: usize,
    asked: usize,
    drops: Option<u32>,
}

impl RecvBatch {
    /// Messages that one call takes by default.
    pub const MESSAGES: usize = 32;
    /// The longest message that is received whole by default, in bytes: any datagram, and any run of joined ones.
    pub const MESSAGE_LEN: usize = 65_535;
    /// Bytes that one call takes, as far as the last one tells: what stays in cache is received into again at once.
    const HOT_BYTES: usize = 256 * 1024;
    /// Slots do not lie at multiples of a power of two, or their beginnings would all fall into the same few lines
    /// of the cache.
    const STAGGER: usize = 33 * 64;

    /// A batch of the default size, 2 MiB. Memory that is never written to takes none of the machine's.
    pub fn new() -> Self {
        Self::with_size(Self::MESSAGES, Self::MESSAGE_LEN)
    }

    /// A batch for this many messages of this length in bytes (each 1 at least). With joined datagrams (GRO) a message
    /// is a run of them, which needs [`MESSAGE_LEN`](Self::MESSAGE_LEN).
    pub fn with_size(messages: usize, message_len: usize) -> Self {
        let (messages, slot) = (messages.clamp(1, 1024), message_len.clamp(1, 1 << 20));
        let mut batch = Self {
            memory: Bytes::new(),
            slot,
            messages,
            metas: Vec::with_capacity(messages),
            receiver: Receiver::new(messages),
            wanted: messages,
            asked: messages,
            drops: None,
        };
        batch.memory = batch.new_memory();
        batch
    }

    fn stride(&self) -> usize {
        self.slot + Self::STAGGER
    }

    fn new_memory(&self) -> Bytes {
        let len = self.stride() * self.messages;
        let mut memory = BytesMut::zeroed(len + 1);
        // Splitting makes it countable from the start; otherwise each batch would allocate a counter.
        drop(memory.split_off(len));
        memory.freeze()
    }

    /// Receives what is there, up to the size of the batch, and says how many messages that was (of joined datagrams
    /// each is several). Of long messages fewer are taken at a time, so that their memory stays in cache. What an earlier call received is forgotten.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; otherwise what the kernel says, such as an earlier datagram that was refused:
    /// the socket goes on.
    pub fn recv(&mut self, socket: &Socket) -> io::Result<usize> {
        self.metas.clear();
        self.drops = None;
        let memory = std::mem::take(&mut self.memory);
        let mut memory = match memory.try_into_mut() {
            Ok(memory) => memory,
            // Somebody keeps a part of it.
            Err(_kept) => self.new_memory().try_into_mut().unwrap_or_default(),
        };
        let received = self.recv_into(socket, &mut memory);
        self.memory = memory.freeze();
        received
    }

    fn recv_into(&mut self, socket: &Socket, memory: &mut BytesMut) -> io::Result<usize> {
        let (stride, slot) = (self.stride(), self.slot);
        assert!(memory.len() >= stride * self.messages, "the memory was made for this batch");
        self.asked = self.wanted;
        let places = memory.chunks_exact_mut(stride).take(self.asked).map(|place| &mut place[..slot]);
        self.drops = self.receiver.receive(socket, places, &mut self.metas)?;
        let count = self.metas.len();
        let bytes: usize = self.metas.iter().map(|meta| meta.len).sum();
        let each = bytes.div_ceil(count.max(1)).max(1);
        self.wanted = (Self::HOT_BYTES / each).clamp(1, self.messages);
        Ok(count)
    }

    /// The datagrams that the last call received, joined ones one by one.
    pub fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { batch: self, cursor: Cursor::default() }
    }

    /// What the last call received, joined datagrams in one piece.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.metas.iter().enumerate().map(|(message, meta)| {
            let begin = message * self.stride();
            Run { meta, payload: &self.memory[begin..begin + meta.len], memory: &self.memory }
        })
    }

    /// The memory that was received into.
    pub const fn memory(&self) -> &Bytes {
        &self.memory
    }

    /// The datagram at the cursor, which moves on; `None` at the end.
    #[inline]
    pub fn next_at(&self, cursor: &mut Cursor) -> Option<Datagram<'_>> {
        let meta = self.metas.get(cursor.message)?;
        let begin = cursor.message * self.stride();
        let (from, len) = match meta.segment_size {
            0 => (0, meta.len),
            size => (cursor.at, size.min(meta.len - cursor.at)),
        };
        cursor.at = from + len;
        if cursor.at >= meta.len {
            (cursor.message, cursor.at) = (cursor.message + 1, 0);
        }
        let payload = &self.memory[begin + from..begin + from + len];
        Some(Datagram { meta, payload, memory: &self.memory })
    }

    /// The datagrams that the socket of the last call has dropped since it was opened because its receive buffer was
    /// full, if what the last call received tells it ([`UdpOptions::count_drops`](super::UdpOptions::count_drops)). The
    /// kernel says nothing as long as there are none.
    pub const fn drops(&self) -> Option<u32> {
        self.drops
    }

    /// The last call filled the batch: there may be more.
    pub fn is_full(&self) -> bool {
        self.metas.len() == self.asked
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for RecvBatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RecvBatch").field("messages", &self.metas.len()).finish_non_exhaustive()
    }
}

/// One message: a datagram, or several of one peer that the kernel has joined (all of one size, but the last may be
/// shorter).
#[derive(Debug, Clone, Copy)]
pub struct Run<'a> {
    meta: &'a Meta,
    payload: &'a [u8],
    memory: &'a Bytes,
}

impl<'a> Run<'a> {
    /// Who sent it; `None` if the kernel does not tell.
    #[inline]
    pub const fn from(&self) -> Option<SocketAddr> {
        self.meta.from
    }

    /// The payloads of all its datagrams, one behind the other.
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The length of each datagram but the last; that of the only one.
    #[inline]
    pub const fn segment_size(&self) -> usize {
        if self.meta.segment_size > 0 { self.meta.segment_size } else { self.payload.len() }
    }

    /// It was longer than the room for it: the rest is lost.
    pub const fn is_truncated(&self) -> bool {
        self.meta.full_len > self.meta.len
    }

    /// How many datagrams it is.
    #[inline]
    pub const fn count(&self) -> usize {
        let size = self.segment_size();
        // One of no bytes is a datagram too.
        if size == 0 { 1 } else { self.payload.len().div_ceil(size) }
    }

    /// Its datagrams one by one.
    #[inline]
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'a>> + use<'a> {
        let Self { meta, payload, memory } = *self;
        let size = self.segment_size();
        (0..self.count()).map(move |at| {
            let payload = &payload[at * size..payload.len().min((at + 1) * size)];
            Datagram { meta, payload, memory }
        })
    }

    /// The payloads as a handle that can be kept; see [`Datagram::to_bytes`].
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        self.memory.slice_ref(self.payload)
    }
}

/// One datagram that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    meta: &'a Meta,
    payload: &'a [u8],
    memory: &'a Bytes,
}

impl<'a> Datagram<'a> {
    /// The payload; cut off if [`is_truncated`](Self::is_truncated).
    #[inline]
    pub const fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// Who sent it; `None` if the kernel does not tell.
    #[inline]
    pub const fn from(&self) -> Option<SocketAddr> {
        self.meta.from
    }

    /// It was longer than the room for it: the rest is lost.
    pub const fn is_truncated(&self) -> bool {
        self.meta.full_len > self.meta.len
    }

    /// How long it was when it arrived, in bytes (on systems other than Linux: at least). (Of joined datagrams that were truncated: how long the run was.)
    pub const fn full_len(&self) -> usize {
        if self.is_truncated() { self.meta.full_len } else { self.payload.len() }
    }

    /// The address that it was sent to ([`UdpOptions::packet_info`](super::UdpOptions::packet_info)).
    pub const fn destination(&self) -> Option<IpAddr> {
        self.meta.destination
    }

    /// The index of the interface that it came by ([`UdpOptions::packet_info`](super::UdpOptions::packet_info)).
    pub const fn interface(&self) -> Option<u32> {
        self.meta.interface
    }

    /// Its congestion mark ([`UdpOptions::ecn`](super::UdpOptions::ecn)).
    pub const fn ecn(&self) -> Ecn {
        Ecn::from_bits(self.meta.traffic_class)
    }

    /// The payload as a handle that can be kept. It keeps the memory of the whole batch (2 MiB by default) until it is
    /// dropped: copy what is kept for long.
    #[inline]
    pub fn to_bytes(&self) -> Bytes {
        self.memory.slice_ref(self.payload)
    }
}

/// Iterates over datagrams; see [`RecvBatch::datagrams`].
#[derive(Debug, Clone)]
pub struct Datagrams<'a> {
    batch: &'a RecvBatch,
    cursor: Cursor,
}

/// A place in a [`RecvBatch`]; the default is its beginning.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cursor {
    message: usize,
    at: usize,
}

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

    #[inline]
    fn next(&mut self) -> Option<Datagram<'a>> {
        self.batch.next_at(&mut self.cursor)
    }
}

/// What the kernel says about receiving, sorted.
impl From<io::Error> for UdpError {
    fn from(error: io::Error) -> Self {
        Self::from_io(error, 0, None)
    }
}
