//! Bytes on their way to a socket.

mod pool;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::{Buf, Bytes};

pub(crate) use self::pool::{BufferPool, SEGMENT_BYTES};

/// What one connection has still to send: whole segments first, then a tail that small sends are appended to. The tail
/// grows up to a whole segment; a message that does not fit goes on in the next one. So what is queued is copied again
/// only while it is less than a segment, and that at most twice.
#[derive(Debug, Default)]
pub(crate) struct SendQueue {
    /// Made with the first of them: most connections never queue that much.
    segments: Option<Box<Segments>>,
    tail: Vec<u8>,
    len: usize,
    /// Bytes that may be appended without a look at anything else; see [`open_room`](Self::open_room).
    room: u32,
    /// Bytes at the front of the tail that were sent while no segment stood before it.
    tail_sent: u32,
    /// The size class that the queue came to the last time: the next tail begins with it.
    class: u8,
    /// The tail was a whole segment since the queue was empty.
    filled: bool,
    /// Bytes that were copied within the queue.
    #[cfg(test)]
    moved: usize,
}

#[derive(Debug, Default)]
struct Segments {
    queue: VecDeque<Segment>,
    /// Bytes of memory that they occupy; the tail says itself what it does.
    held: usize,
}

#[derive(Debug)]
enum Segment {
    /// A tail that was closed because it was full, or a shared segment came behind it.
    Copied { buffer: Vec<u8>, sent: usize },
    /// Memory that was handed over instead of copied. All of it is held until all is sent.
    Shared { unsent: Bytes, len: usize },
}

/// Slices in one system call.
pub(crate) const SLICES_MAX: usize = 16;

/// Pieces of at least this many bytes are worth a segment of their own; smaller ones are copied to the tail.
const SHARED_MIN: usize = 4 * 1024;

impl SendQueue {
    /// Bytes still to send.
    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes of memory that the queue occupies: its buffers whole, however little is in them, and all of what was
    /// handed over.
    pub(crate) fn held(&self) -> usize {
        self.tail.capacity() + self.segments.as_ref().map_or(0, |segments| segments.held)
    }

    /// Lets small sends be [appended](Self::append) until the queue holds `most` bytes. Any other change of the queue
    /// takes that back, and so must whoever stops taking sends: [`close_room`](Self::close_room).
    #[inline]
    pub(crate) fn open_room(&mut self, most: usize) {
        let spare = self.tail.capacity() - self.tail.len();
        self.room = spare.min(most.saturating_sub(self.len)) as u32;
    }

    /// Nothing may be appended without a look at the connection.
    #[inline]
    pub(crate) const fn close_room(&mut self) {
        self.room = 0;
    }

    /// Appends all parts, if there is room that was opened for that.
    #[inline(always)]
    pub(crate) fn append(&mut self, parts: [&[u8]; 3]) -> bool {
        let total = parts[0].len() + parts[1].len() + parts[2].len();
        if total > self.room as usize {
            return false;
        }
        self.room -= total as u32;
        self.extend_tail(parts, total);
        true
    }

    #[inline(always)]
    fn extend_tail(&mut self, parts: [&[u8]; 3], total: usize) {
        for part in parts {
            if !part.is_empty() {
                self.tail.extend_from_slice(part);
            }
        }
        self.len += total;
    }

    #[inline]
    pub(crate) fn push_slice(&mut self, bytes: &[u8], pool: &mut BufferPool) {
        self.room = 0;
        if self.tail.capacity() - self.tail.len() < bytes.len() {
            return self.push_slice_in_parts(bytes, pool);
        }
        if !bytes.is_empty() {
            self.tail.extend_from_slice(bytes);
            self.len += bytes.len();
        }
    }

    /// Appends all parts.
    #[inline]
    pub(crate) fn push_parts(&mut self, parts: [&[u8]; 3], pool: &mut BufferPool) {
        let total = parts[0].len() + parts[1].len() + parts[2].len();
        self.room = 0;
        if total <= self.tail.capacity() - self.tail.len() {
            return self.extend_tail(parts, total);
        }
        self.enlarge_tail(total, pool);
        for part in parts {
            self.push_slice(part, pool);
        }
    }

    #[cold]
    fn push_slice_in_parts(&mut self, mut bytes: &[u8], pool: &mut BufferPool) {
        self.enlarge_tail(bytes.len(), pool);
        loop {
            let room = self.tail.capacity() - self.tail.len();
            let (fits, rest) = bytes.split_at(room.min(bytes.len()));
            self.tail.extend_from_slice(fits);
            self.len += fits.len();
            if rest.is_empty() {
                return;
            }
            bytes = rest;
            // Only a whole segment was not large enough.
            self.filled = true;
            self.close_tail();
            self.tail = pool.take(BufferPool::WHOLE);
        }
    }

    /// Makes room for `more` bytes in the tail, as far as it stays within a segment.
    fn enlarge_tail(&mut self, more: usize, pool: &mut BufferPool) {
        // What is moved is less than what it makes room for.
        if self.tail_sent > 0 && self.tail_sent as usize >= self.tail.capacity() / 2 {
            self.tail.drain(..std::mem::take(&mut self.tail_sent) as usize);
            self.note_moved();
        }
        if self.tail.capacity() - self.tail.len() >= more {
            return;
        }
        let class = self.class.max(BufferPool::class_of(self.unsent_tail().len() + more));
        if BufferPool::size_of(class) <= self.tail.capacity() {
            return;
        }
        let mut larger = pool.take(class);
        larger.extend_from_slice(self.unsent_tail());
        self.tail_sent = 0;
        pool.put(std::mem::replace(&mut self.tail, larger));
        self.note_moved();
    }

    #[inline]
    fn unsent_tail(&self) -> &[u8] {
        &self.tail[self.tail_sent as usize..]
    }

    #[inline]
    fn note_moved(&mut self) {
        #[cfg(test)]
        {
            self.moved += self.tail.len();
        }
    }

    /// Appends memory that is shared instead of copied; a little is copied all the same.
    pub(crate) fn push_bytes(&mut self, bytes: Bytes, pool: &mut BufferPool) {
        if bytes.len() < SHARED_MIN {
            return self.push_slice(&bytes, pool);
        }
        self.room = 0;
        self.close_tail();
        let len = bytes.len();
        self.len += len;
        pool.note_shared(len);
        self.push_segment(len, Segment::Shared { unsent: bytes, len });
    }

    fn close_tail(&mut self) {
        if !self.unsent_tail().is_empty() {
            let (buffer, sent) = (std::mem::take(&mut self.tail), std::mem::take(&mut self.tail_sent));
            self.push_segment(buffer.capacity(), Segment::Copied { buffer, sent: sent as usize });
        }
    }

    fn push_segment(&mut self, held: usize, segment: Segment) {
        let segments = self.segments.get_or_insert_default();
        segments.held += held;
        segments.queue.push_back(segment);
    }

    /// Puts the front of the queue, up to `most` bytes, into `slices`; says how many were filled and how many bytes
    /// they hold.
    #[inline]
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX], most: usize) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        let tail = self.unsent_tail();
        let whole = self.segments.iter().flat_map(|segments| segments.queue.iter()).map(Segment::unsent);
        let parts = whole.chain((!tail.is_empty()).then_some(tail));
        for part in parts.take(SLICES_MAX) {
            let part = &part[..part.len().min(most - total)];
            slices[count] = IoSlice::new(part);
            count += 1;
            total += part.len();
            if total == most {
                break;
            }
        }
        (count, total)
    }

    /// The front `sent` bytes are gone; buffers that are done with go back to the pool.
    #[inline]
    pub(crate) fn advance(&mut self, mut sent: usize, pool: &mut BufferPool) {
        self.room = 0;
        self.len -= sent;
        while sent > 0 {
            let Some(front) = self.segments.as_mut().and_then(|segments| segments.queue.front_mut()) else {
                break;
            };
            let step = sent.min(front.unsent().len());
            sent -= step;
            if step < front.unsent().len() {
                front.advance(step);
                return;
            }
            self.pop_front(pool);
        }
        self.tail_sent += sent as u32;
        if self.is_empty() {
            let filled = std::mem::take(&mut self.filled);
            self.class = if filled { BufferPool::WHOLE } else { BufferPool::class_of(self.tail.len()) };
            self.tail_sent = 0;
            pool.put(std::mem::take(&mut self.tail));
            self.segments.take_if(|segments| segments.queue.capacity() > SLICES_MAX);
        }
    }

    /// Drops what is queued: its connection has ended. What is not given back here is counted as held for ever.
    pub(crate) fn clear(&mut self, pool: &mut BufferPool) {
        while self.pop_front(pool) {}
        pool.put(std::mem::take(&mut self.tail));
        (self.len, self.room, self.tail_sent) = (0, 0, 0);
    }

    /// Gives the front segment back; false: there is none.
    fn pop_front(&mut self, pool: &mut BufferPool) -> bool {
        let Some(segments) = &mut self.segments else { return false };
        let Some(front) = segments.queue.pop_front() else { return false };
        match front {
            Segment::Copied { buffer, .. } => {
                segments.held -= buffer.capacity();
                pool.put(buffer);
            }
            Segment::Shared { len, .. } => {
                segments.held -= len;
                pool.note_unshared(len);
            }
        }
        true
    }
}

impl Segment {
    fn unsent(&self) -> &[u8] {
        match self {
            Self::Copied { buffer, sent } => &buffer[*sent..],
            Self::Shared { unsent, .. } => unsent,
        }
    }

    fn advance(&mut self, step: usize) {
        match self {
            Self::Copied { sent, .. } => *sent += step,
            Self::Shared { unsent, .. } => unsent.advance(step),
        }
    }
}
