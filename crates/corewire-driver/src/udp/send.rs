//! Sending many datagrams with one system call.

use std::io;
use std::net::SocketAddr;

use crate::socket::Socket;
use crate::sys::udp::Sender;
use bytes::Bytes;
use rustix::io::Errno;

use super::message::{Entry, Memory, SendMeta};
use super::{PAYLOAD_MAX_V4, UdpError, payload_max};

/// Gathers datagrams and sends them with as few system calls as the kernel allows.
///
/// Neighbours of one size and destination are joined (GSO; the last may be shorter). Where the kernel refuses that they
/// are sent one by one; where it says that it cannot do it, joining is tried again only now and then.
///
/// Payloads are copied, but for those that are given as [`Bytes`] ([`push_shared`](Self::push_shared)) and those that
/// lie in [lent](Self::lend) memory.
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
    /// What is sent without a copy.
    kept: Vec<Bytes>,
    lent: Option<Lent>,
    entries: Vec<Entry>,
    /// Entries that have left.
    head: usize,
    /// Bytes of all entries.
    queued: usize,
    /// Longer datagrams are not joined; 0: none is.
    joined_max: usize,
    /// What `joined_max` is as long as the kernel refuses nothing.
    joined_max_asked: usize,
    /// Batches to send until a refusal is forgotten: routes and devices change.
    refused_for: u32,
    segments_max: usize,
    limit: usize,
    sender: Sender,
}

/// Memory whose datagrams are not copied: the last of what is kept.
#[derive(Debug, Clone, Copy)]
struct Lent {
    address: usize,
    len: usize,
    kept: usize,
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
    /// The most datagrams in one send. Kernels before 6.11 take 64: that is found out.
    pub const SEGMENTS_MAX: usize = 128;
    /// What every kernel with GSO takes.
    const SEGMENTS_OLD: usize = 64;
    /// The longest run of datagrams that one send carries: the headers of one packet are counted too.
    const RUN_MAX: usize = 65_535 - 48;
    /// Bytes that may be queued by default: 16 MiB.
    pub const LIMIT: usize = 16 << 20;
    /// Batches that are sent before joining is tried again after a refusal: one call in vain for so many.
    const REFUSED_FOR: u32 = 1024;
    /// Memory kept once everything has left.
    const KEPT_MAX: usize = 1 << 20;

    /// An empty batch; `segment`: join datagrams.
    pub fn new(segment: bool) -> Self {
        let joined_max = if segment && Sender::CAN_JOIN { PAYLOAD_MAX_V4 } else { 0 };
        Self {
            data: Vec::new(),
            kept: Vec::new(),
            lent: None,
            entries: Vec::new(),
            head: 0,
            queued: 0,
            joined_max,
            joined_max_asked: joined_max,
            refused_for: 0,
            segments_max: Self::SEGMENTS_MAX,
            limit: Self::LIMIT,
            sender: Sender::default(),
        }
    }

    /// Bytes that may be queued at most.
    pub const fn set_limit(&mut self, bytes: usize) {
        self.limit = bytes;
    }

    /// Whether datagrams are joined: asked for, and not refused by the kernel lately.
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
        self.check_room(len)?;
        let (kept, start) = match self.lent_place(parts, len) {
            Some((kept, start)) => (Some(kept), start),
            None => {
                let start = self.data.len();
                parts.iter().for_each(|part| self.data.extend_from_slice(part));
                (None, start)
            }
        };
        self.enqueue(Entry { to, kept, start, len, segment: len, datagrams: 1, closed: len == 0, meta });
        Ok(())
    }

    /// Where in the lent memory a datagram lies, if it lies there in one piece.
    #[inline]
    fn lent_place(&self, parts: &[&[u8]], len: usize) -> Option<(usize, usize)> {
        let lent = self.lent?;
        let sole = parts.iter().find(|part| part.len() == len && len > 0)?;
        let start = (sole.as_ptr() as usize).checked_sub(lent.address)?;
        (start + len <= lent.len).then_some((lent.kept, start))
    }

    #[inline]
    fn enqueue(&mut self, entry: Entry) {
        self.queued += entry.len;
        let (joined_max, segments_max) = (self.joined_max, self.segments_max);
        if self.head < self.entries.len()
            && let Some(last) = self.entries.last_mut()
            && last.takes(&entry, joined_max, segments_max)
        {
            last.len += entry.len;
            last.datagrams += 1;
            last.closed = entry.len < last.segment;
            return;
        }
        self.entries.push(entry);
    }

    #[inline]
    fn check_room(&self, len: usize) -> Result<(), UdpError> {
        if self.queued + len > self.limit {
            return Err(UdpError::QueueFull { queued: self.queued, limit: self.limit });
        }
        Ok(())
    }

    /// Queues `bytes` as datagrams of `segment_size` each (the last may be shorter), without copying them.
    ///
    /// # Errors
    /// [`UdpError::TooLong`] for a segment that no datagram can carry, or [`UdpError::QueueFull`]; nothing was queued.
    pub fn push_shared(
        &mut self,
        to: Option<SocketAddr>,
        bytes: Bytes,
        segment_size: usize,
        meta: SendMeta,
    ) -> Result<(), UdpError> {
        let segment = segment_size.max(1).min(bytes.len().max(1));
        let max = to.map_or(super::PAYLOAD_MAX_V6, payload_max);
        if segment > max {
            return Err(UdpError::TooLong { len: segment, max });
        }
        self.check_room(bytes.len())?;
        let in_a_run = match segment <= self.joined_max {
            true => self.segments_max.min(Self::RUN_MAX / segment).max(1),
            false => 1,
        };
        // Lent memory is the last of what is kept.
        self.unlend();
        let kept = self.kept.len();
        for start in (0..bytes.len()).step_by(in_a_run * segment) {
            let len = (in_a_run * segment).min(bytes.len() - start);
            let datagrams = len.div_ceil(segment);
            let segment = segment.min(len);
            self.entries.push(Entry {
                to,
                kept: Some(kept),
                start,
                len,
                segment,
                datagrams,
                closed: true,
                meta,
            });
        }
        self.queued += bytes.len();
        self.kept.push(bytes);
        Ok(())
    }

    /// Until [`unlend`](Self::unlend), datagrams that lie in this memory are not copied: a reply from the memory that
    /// the request was received into, such as an echo. The memory is held until they have left.
    pub fn lend(&mut self, memory: Bytes) {
        self.unlend();
        if !memory.is_empty() {
            let (address, len) = (memory.as_ptr() as usize, memory.len());
            self.lent = Some(Lent { address, len, kept: self.kept.len() });
            self.kept.push(memory);
        }
    }

    /// Gives lent memory back: what is still queued of it is copied.
    pub fn unlend(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        let Some(memory) = self.kept.pop() else { return };
        let queued = self.entries[self.head..].iter_mut().filter(|entry| entry.kept == Some(lent.kept));
        for entry in queued {
            let start = self.data.len();
            self.data.extend_from_slice(&memory[entry.start..entry.start + entry.len]);
            (entry.kept, entry.start) = (None, start);
        }
    }

    /// Something that is queued lies in lent memory.
    pub fn uses_lent(&self) -> bool {
        let place = self.lent.map(|lent| lent.kept);
        place.is_some() && self.entries[self.head..].iter().any(|entry| entry.kept == place)
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
        self.queued
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
            match self.sender.send(socket, Memory(&self.data, &self.kept), &self.entries[self.head..]) {
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
                    let error = UdpError::of_send(socket, error, entry.len, entry.to);
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
        if entry.datagrams > Self::SEGMENTS_OLD && error.kind() == io::ErrorKind::InvalidInput {
            self.segments_max = Self::SEGMENTS_OLD;
            return self.split_into(Self::SEGMENTS_OLD);
        }
        let joined_max = match Errno::from_io_error(error) {
            // The device cannot.
            Some(Errno::IO | Errno::OPNOTSUPP | Errno::NOPROTOOPT) => 0,
            // It cannot for this size.
            Some(Errno::INVAL | Errno::MSGSIZE) => self.joined_max.min(entry.segment.saturating_sub(1)),
            // Not now, such as when memory is short: it says nothing about the next.
            _ => self.joined_max,
        };
        if joined_max < self.joined_max {
            (self.joined_max, self.refused_for) = (joined_max, Self::REFUSED_FOR);
        }
        tracing::debug!(%error, size = entry.segment, "the kernel does not join these datagrams");
        self.split_into(1);
    }

    /// Makes pieces of this many datagrams of the first entry.
    fn split_into(&mut self, datagrams: usize) {
        let entry = self.entries[self.head];
        let step = datagrams * entry.segment;
        let pieces = (0..entry.len).step_by(step).map(|at| {
            let len = step.min(entry.len - at);
            let datagrams = len.div_ceil(entry.segment);
            let segment = entry.segment.min(len);
            Entry { start: entry.start + at, len, segment, datagrams, closed: true, ..entry }
        });
        self.entries.splice(self.head..=self.head, pieces);
    }

    fn reset(&mut self) {
        self.entries.clear();
        self.data.clear();
        (self.head, self.queued) = (0, 0);
        self.refused_for = self.refused_for.saturating_sub(1);
        if self.refused_for == 0 {
            self.joined_max = self.joined_max_asked;
        }
        let lent = self.lent.and_then(|_| self.kept.pop());
        self.kept.clear();
        if let (Some(memory), Some(lent)) = (lent, &mut self.lent) {
            lent.kept = 0;
            self.kept.push(memory);
        }
        if self.data.capacity() > Self::KEPT_MAX {
            self.data = Vec::new();
        }
    }
}

impl Entry {
    /// Whether the next datagram can leave with these.
    #[inline]
    fn takes(&self, next: &Self, joined_max: usize, segments_max: usize) -> bool {
        !self.closed
            && self.segment <= joined_max
            && next.len <= self.segment
            && next.len > 0
            && self.datagrams < segments_max
            && self.len + next.len <= SendBatch::RUN_MAX
            && self.start + self.len == next.start
            && self.kept == next.kept
            && is_same(self.to, next.to)
            && self.meta == next.meta
    }
}

/// Equality in place; that of the standard library is a call.
#[inline]
fn is_same(a: Option<SocketAddr>, b: Option<SocketAddr>) -> bool {
    match (a, b) {
        (Some(SocketAddr::V4(a)), Some(SocketAddr::V4(b))) => a.ip() == b.ip() && a.port() == b.port(),
        (a, b) => a == b,
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A batch whose first entry, of ten joined datagrams, the kernel refuses with this error.
    fn refused(errno: Errno) -> SendBatch {
        let mut batch = SendBatch::new(true);
        for _ in 0..10 {
            batch.push(None, &[&[7; 1000]], SendMeta::default()).unwrap();
        }
        assert_eq!(batch.entries.len(), 1);
        batch.split_head(&errno.into());
        assert_eq!(batch.entries.len(), 10);
        batch
    }

    /// Into how many entries the next ten of this size go.
    fn entries(batch: &mut SendBatch, size: usize) -> usize {
        batch.clear();
        for _ in 0..10 {
            batch.push(None, &[&vec![7; size]], SendMeta::default()).unwrap();
        }
        batch.entries.len()
    }

    #[test]
    fn a_refusal_for_want_of_memory_is_for_once() {
        if !Sender::CAN_JOIN {
            return;
        }
        for errno in [Errno::NOBUFS, Errno::NOMEM] {
            assert_eq!(entries(&mut refused(errno), 1000), 1, "{errno}");
        }
    }

    #[test]
    fn what_cannot_be_joined_is_not_tried_again_for_a_while() {
        if !Sender::CAN_JOIN {
            return;
        }
        let mut batch = refused(Errno::INVAL);
        assert_eq!((entries(&mut batch, 1000), entries(&mut batch, 999)), (10, 1));
        let mut batch = refused(Errno::IO);
        assert_eq!(entries(&mut batch, 1), 10);
        assert!(!batch.is_joining());
        let batches = (0..).take_while(|_| entries(&mut batch, 1000) == 10).count();
        assert!((1000..=1024).contains(&batches), "joined again after {batches}");
    }
}
