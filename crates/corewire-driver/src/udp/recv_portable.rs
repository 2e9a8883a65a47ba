//! One datagram a call, where the system has nothing better. Truncation, marks and drops are not told.

use std::io;
use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};

use crate::socket::Socket;
use bytes::Bytes;

use super::{Ecn, UdpError, address};

/// Takes datagrams from a socket, many at a time, into memory that is used again and again.
#[derive(Debug)]
pub struct RecvBatch {
    room: Vec<MaybeUninit<u8>>,
    messages: usize,
    received: Vec<(Option<SocketAddr>, Bytes)>,
}

impl RecvBatch {
    /// Messages that one call takes by default.
    pub const MESSAGES: usize = 32;
    /// The longest message that is received whole by default, in bytes.
    pub const MESSAGE_LEN: usize = 65_535;

    /// A batch of the default size.
    pub fn new() -> Self {
        Self::with_size(Self::MESSAGES, Self::MESSAGE_LEN)
    }

    /// A batch for this many messages of this length in bytes (each 1 at least).
    pub fn with_size(messages: usize, message_len: usize) -> Self {
        let room = vec![MaybeUninit::uninit(); message_len.clamp(1, 1 << 20)];
        Self { room, messages: messages.clamp(1, 1024), received: Vec::new() }
    }

    /// Receives what is there, up to the size of the batch, and says how many datagrams that was.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is there; otherwise what the system says: the socket goes on.
    pub fn recv(&mut self, socket: &Socket) -> io::Result<usize> {
        self.received.clear();
        while self.received.len() < self.messages {
            match socket.inner().recv_from(&mut self.room) {
                Ok((len, from)) => {
                    // SAFETY: the system has written `len` bytes.
                    let bytes = unsafe { std::slice::from_raw_parts(self.room.as_ptr().cast::<u8>(), len) };
                    self.received.push((address::of(&from), Bytes::copy_from_slice(bytes)));
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if self.received.is_empty() => return Err(error),
                Err(_) => break,
            }
        }
        Ok(self.received.len())
    }

    /// The datagrams that the last call received.
    pub fn datagrams(&self) -> Datagrams<'_> {
        Datagrams { batch: self, cursor: Cursor::default() }
    }

    /// What the last call received; each datagram by itself.
    pub fn runs(&self) -> impl Iterator<Item = Run<'_>> {
        self.datagrams().map(Run)
    }

    /// The memory that was received into: there is none in one piece.
    pub const fn memory(&self) -> &Bytes {
        const NONE: &Bytes = &Bytes::new();
        NONE
    }

    /// The datagram at the cursor, which moves on; `None` at the end.
    pub fn next_at(&self, cursor: &mut Cursor) -> Option<Datagram<'_>> {
        let (from, bytes) = self.received.get(cursor.0)?;
        cursor.0 += 1;
        Some(Datagram { from: *from, bytes })
    }

    /// Not told on this system.
    pub const fn drops(&self) -> Option<u32> {
        None
    }

    /// The last call filled the batch: there may be more.
    pub fn is_full(&self) -> bool {
        self.received.len() == self.messages
    }
}

impl Default for RecvBatch {
    fn default() -> Self {
        Self::new()
    }
}

/// One message: a datagram.
#[derive(Debug, Clone, Copy)]
pub struct Run<'a>(Datagram<'a>);

impl<'a> Run<'a> {
    /// Who sent it; `None` if the kernel does not tell.
    pub const fn from(&self) -> Option<SocketAddr> {
        self.0.from
    }

    /// The payload.
    pub fn payload(&self) -> &'a [u8] {
        self.0.payload()
    }

    /// Its length.
    pub fn segment_size(&self) -> usize {
        self.payload().len()
    }

    /// Not told on this system: false.
    pub const fn is_truncated(&self) -> bool {
        false
    }

    /// How many datagrams it is: one.
    pub const fn count(&self) -> usize {
        1
    }

    /// The datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = Datagram<'a>> + use<'a> {
        std::iter::once(self.0)
    }

    /// The payload as a handle that can be kept.
    pub fn to_bytes(&self) -> Bytes {
        self.0.to_bytes()
    }
}

/// One datagram that has arrived.
#[derive(Debug, Clone, Copy)]
pub struct Datagram<'a> {
    from: Option<SocketAddr>,
    bytes: &'a Bytes,
}

impl<'a> Datagram<'a> {
    /// The payload.
    pub fn payload(&self) -> &'a [u8] {
        self.bytes
    }

    /// Who sent it; `None` if the kernel does not tell.
    pub const fn from(&self) -> Option<SocketAddr> {
        self.from
    }

    /// Not told on this system: false.
    pub const fn is_truncated(&self) -> bool {
        false
    }

    /// How long it was when it arrived, in bytes.
    pub fn full_len(&self) -> usize {
        self.bytes.len()
    }

    /// Not told on this system: `None`.
    pub const fn destination(&self) -> Option<IpAddr> {
        None
    }

    /// Not told on this system: `None`.
    pub const fn interface(&self) -> Option<u32> {
        None
    }

    /// Not told on this system.
    pub const fn ecn(&self) -> Ecn {
        Ecn::NotCapable
    }

    /// The payload as a handle that can be kept.
    pub fn to_bytes(&self) -> Bytes {
        self.bytes.clone()
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
pub struct Cursor(usize);

impl<'a> Iterator for Datagrams<'a> {
    type Item = Datagram<'a>;

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
