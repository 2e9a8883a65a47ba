//! Sending many datagrams with one system call.

use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::Socket;

use super::sender::Sender;
use super::{Ecn, PAYLOAD_MAX_V4, UdpError, payload_max};

/// What a datagram is sent with beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendMeta {
    /// Its congestion mark; default: none.
    pub ecn: Ecn,
    /// The address that it comes from, where the socket is bound to several; default: what the system chooses.
    pub source: Option<IpAddr>,
}

/// Gathers datagrams and sends them with as few system calls as the kernel allows.
///
/// Neighbours of one size and destination are joined (GSO; the last may be shorter); where the kernel refuses that they
/// are sent one by one, and not joined again.
///
/// ```
/// use corewire_driver::udp::{RecvBatch, SendBatch, SendMeta, UdpOptions, open};
///
/// let options = UdpOptions::default();
/// let (here, peer) = (open("127.0.0.1:0".parse()?, &options)?, open("127.0.0.1:0".parse()?, &options)?);
/// let to = peer.local_addr()?.as_socket();
/// let mut out = SendBatch::new(options.segment);
/// for text in ["one", "two", "three"] {
///     out.push(to, &[text.as_bytes()], SendMeta::default())?;
/// }
/// assert_eq!(out.flush(&here).datagrams, 3);
///
/// let mut batch = RecvBatch::new();
/// let mut got = 0;
/// while got < 3 {
///     batch.recv(&peer)?;
///     got += batch.datagrams().count();
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct SendBatch {
    data: Vec<u8>,
    entries: Vec<Entry>,
    /// Entries that have left.
    head: usize,
    /// Longer datagrams are not joined; 0: none is.
    joined_max: usize,
    limit: usize,
    sender: Sender,
}

/// One message for the kernel: a datagram, or a run of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry {
    pub(super) to: Option<SocketAddr>,
    pub(super) start: usize,
    pub(super) len: usize,
    /// The size of each datagram but the last.
    pub(super) segment: usize,
    pub(super) datagrams: usize,
    /// A shorter datagram has ended the run.
    closed: bool,
    pub(super) meta: SendMeta,
}

/// What [`SendBatch::flush`] did.
#[derive(Debug, Default)]
#[non_exhaustive]
pub struct Flushed {
    /// Datagrams that the kernel took.
    pub datagrams: usize,
    /// Their bytes.
    pub bytes: usize,
    /// System calls.
    pub calls: usize,
    /// The kernel takes no more now; what is left stays queued.
    pub is_blocked: bool,
    /// Something was refused. Of what is queued only the datagrams that it is about were taken out; flush again.
    pub error: Option<UdpError>,
    /// Datagrams taken out for the error.
    pub refused: usize,
}

impl SendBatch {
    /// The most datagrams in one send: what every kernel with GSO takes.
    pub const SEGMENTS_MAX: usize = 64;
    /// Bytes that may be queued by default: 16 MiB.
    pub const LIMIT: usize = 16 << 20;
    /// Memory kept once everything has left.
    const KEPT_MAX: usize = 1 << 20;

    /// An empty batch; `segment`: join datagrams.
    pub fn new(segment: bool) -> Self {
        Self {
            data: Vec::new(),
            entries: Vec::new(),
            head: 0,
            joined_max: if segment && Sender::CAN_JOIN { PAYLOAD_MAX_V4 } else { 0 },
            limit: Self::LIMIT,
            sender: Sender::default(),
        }
    }

    /// Bytes that may be queued at most.
    pub const fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Whether datagrams are joined: asked for, and not refused by the kernel so far.
    pub const fn is_joining(&self) -> bool {
        self.joined_max > 0
    }

    /// Queues one datagram made of these parts; `None` sends to the peer of a connected socket.
    ///
    /// # Errors
    /// [`UdpError::TooLong`], or [`UdpError::QueueFull`]; nothing was queued.
    #[inline]
    pub fn push(&mut self, to: Option<SocketAddr>, parts: &[&[u8]], meta: SendMeta) -> Result<(), UdpError> {
        let len = parts.iter().fold(0_usize, |sum, part| sum.saturating_add(part.len()));
        let max = to.map_or(super::PAYLOAD_MAX_V6, payload_max);
        if len > max {
            return Err(UdpError::TooLong { len, max });
        }
        if self.data.len() + len > self.limit {
            return Err(UdpError::QueueFull { queued: self.data.len(), limit: self.limit });
        }
        let start = self.data.len();
        for part in parts {
            self.data.extend_from_slice(part);
        }
        if self.head < self.entries.len()
            && let Some(last) = self.entries.last_mut()
            && last.takes(to, len, meta, self.joined_max)
        {
            last.len += len;
            last.datagrams += 1;
            last.closed = len < last.segment;
            return Ok(());
        }
        self.entries.push(Entry { to, start, len, segment: len, datagrams: 1, closed: len == 0, meta });
        Ok(())
    }

    /// Queues `bytes` as datagrams of `segment_size` each (the last may be shorter).
    ///
    /// # Errors
    /// As [`push`](Self::push); what was queued before the error stays.
    pub fn push_segments(
        &mut self,
        to: Option<SocketAddr>,
        bytes: &[u8],
        segment_size: usize,
        meta: SendMeta,
    ) -> Result<(), UdpError> {
        for datagram in bytes.chunks(segment_size.max(1)) {
            self.push(to, &[datagram], meta)?;
        }
        Ok(())
    }

    /// Bytes that are queued.
    pub const fn queued(&self) -> usize {
        self.data.len()
    }

    /// Nothing is queued.
    pub const fn is_empty(&self) -> bool {
        self.head == self.entries.len()
    }

    /// Drops what is queued and says how many datagrams that was.
    pub fn clear(&mut self) -> usize {
        let dropped = self.entries[self.head..].iter().map(|entry| entry.datagrams).sum();
        self.head = self.entries.len();
        self.reset();
        dropped
    }

    /// Sends what is queued, until all has left, the kernel takes no more, or something is refused.
    pub fn flush(&mut self, socket: &Socket) -> Flushed {
        let mut flushed = Flushed::default();
        let mut repeated = false;
        while self.head < self.entries.len() {
            flushed.calls += 1;
            match self.sender.send(socket, &self.data, &self.entries[self.head..]) {
                Ok(count) => {
                    for entry in &self.entries[self.head..self.head + count] {
                        flushed.datagrams += entry.datagrams;
                        flushed.bytes += entry.len;
                    }
                    self.head += count;
                    repeated = false;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    flushed.is_blocked = true;
                    return flushed;
                }
                Err(error) => {
                    let entry = self.entries[self.head];
                    if entry.datagrams > 1 && !is_about_peer(&error) {
                        self.split_head(&error);
                        continue;
                    }
                    let error = UdpError::from_io(error, entry.len, entry.to);
                    // The error of an earlier datagram: this one was not tried yet.
                    if !error.is_about_earlier() || std::mem::replace(&mut repeated, true) {
                        flushed.refused += entry.datagrams;
                        self.head += 1;
                    }
                    flushed.error.get_or_insert(error);
                }
            }
        }
        self.reset();
        flushed
    }

    /// The kernel refuses to cut the first entry: makes its datagrams entries of their own, and joins none so long
    /// again.
    #[cold]
    fn split_head(&mut self, error: &io::Error) {
        let entry = self.entries[self.head];
        // EIO: the device cannot; others: it cannot for this size.
        let no_device = error.raw_os_error() == Some(5);
        self.joined_max = if no_device { 0 } else { self.joined_max.min(entry.segment.saturating_sub(1)) };
        tracing::debug!(%error, size = entry.segment, "the kernel does not join these datagrams");
        let pieces = (0..entry.datagrams).map(|at| {
            let start = entry.start + at * entry.segment;
            let len = entry.segment.min(entry.start + entry.len - start);
            Entry { start, len, segment: len, datagrams: 1, closed: true, ..entry }
        });
        self.entries.splice(self.head..=self.head, pieces);
    }

    fn reset(&mut self) {
        self.entries.clear();
        self.data.clear();
        self.head = 0;
        if self.data.capacity() > Self::KEPT_MAX {
            self.data = Vec::new();
        }
    }
}

impl Entry {
    #[inline]
    fn takes(&self, to: Option<SocketAddr>, len: usize, meta: SendMeta, joined_max: usize) -> bool {
        !self.closed
            && self.segment <= joined_max
            && len <= self.segment
            && len > 0
            && self.datagrams < SendBatch::SEGMENTS_MAX
            // The headers of one packet are counted too.
            && self.len + len <= 65_535 - 48
            && self.to == to
            && self.meta == meta
    }
}

/// Errors that tell about the peer or an earlier datagram, not about joining.
fn is_about_peer(error: &io::Error) -> bool {
    use io::ErrorKind as Kind;
    matches!(
        error.kind(),
        Kind::ConnectionRefused
            | Kind::HostUnreachable
            | Kind::NetworkUnreachable
            | Kind::NetworkDown
            | Kind::NotConnected
            | Kind::PermissionDenied
    )
}
