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
    /// Bytes at the front of the tail that were sent while no segment stood before it.
    tail_sent: usize,
    len: usize,
    held: usize,
    /// The size class that the queue came to the last time: the next tail begins with it.
    class: u8,
    /// The tail was a whole segment since the queue was empty.
    filled: bool,
    /// Bytes that were copied within the queue.
    #[cfg(test)]
    moved: usize,
}

#[derive(Debug, Default)]
struct Segments(VecDeque<Segment>);

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
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    #[inline]
    pub(crate) fn push_slice(&mut self, bytes: &[u8], pool: &mut BufferPool) {
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
        if self.try_append(parts, total, usize::MAX) {
            return;
        }
        self.enlarge_tail(total, pool);
        for part in parts {
            self.push_slice(part, pool);
        }
    }

    /// Appends all parts, if the queue stays within `most` bytes and no memory is needed for it.
    #[inline(always)]
    pub(crate) fn try_append(&mut self, parts: [&[u8]; 3], total: usize, most: usize) -> bool {
        if self.len + total > most || self.tail.capacity() - self.tail.len() < total {
            return false;
        }
        for part in parts {
            if !part.is_empty() {
                self.tail.extend_from_slice(part);
            }
        }
        self.len += total;
        true
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
            self.tail = self.take(BufferPool::WHOLE, pool);
        }
    }

    /// Makes room for `more` bytes in the tail, as far as it stays within a segment.
    fn enlarge_tail(&mut self, more: usize, pool: &mut BufferPool) {
        // What is moved is less than what it makes room for.
        if self.tail_sent > 0 && self.tail_sent >= self.tail.capacity() / 2 {
            self.tail.drain(..std::mem::take(&mut self.tail_sent));
            self.note_moved();
        }
        if self.tail.capacity() - self.tail.len() >= more {
            return;
        }
        let class = self.class.max(BufferPool::class_of(self.tail.len() - self.tail_sent + more));
        if BufferPool::size_of(class) <= self.tail.capacity() {
            return;
        }
        let mut larger = self.take(class, pool);
        larger.extend_from_slice(&self.tail[std::mem::take(&mut self.tail_sent)..]);
        let smaller = std::mem::replace(&mut self.tail, larger);
        self.note_moved();
        self.put(smaller, pool);
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
        self.close_tail();
        let len = bytes.len();
        self.len += len;
        self.held += len;
        pool.note_shared(len);
        self.segments.get_or_insert_default().0.push_back(Segment::Shared { unsent: bytes, len });
    }

    fn close_tail(&mut self) {
        if self.tail.len() > self.tail_sent {
            let (buffer, sent) = (std::mem::take(&mut self.tail), std::mem::take(&mut self.tail_sent));
            self.segments.get_or_insert_default().0.push_back(Segment::Copied { buffer, sent });
        }
    }

    /// Puts the front of the queue, up to `most` bytes, into `slices`; says how many were filled and how many bytes
    /// they hold.
    #[inline]
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX], most: usize) -> (usize, usize) {
        let (mut count, mut total) = (0, 0);
        let tail = &self.tail[self.tail_sent..];
        let whole = self.segments.iter().flat_map(|segments| segments.0.iter()).map(Segment::unsent);
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
        self.len -= sent;
        while sent > 0 {
            let Some(front) = self.segments.as_mut().and_then(|segments| segments.0.front_mut()) else {
                break;
            };
            let step = sent.min(front.unsent().len());
            sent -= step;
            if step < front.unsent().len() {
                front.advance(step);
                return;
            }
            let front = self.pop_front();
            self.release(front, pool);
        }
        self.tail_sent += sent;
        if self.is_empty() {
            let filled = std::mem::take(&mut self.filled);
            self.class = if filled { BufferPool::WHOLE } else { BufferPool::class_of(self.tail.len()) };
            self.tail_sent = 0;
            let tail = std::mem::take(&mut self.tail);
            self.put(tail, pool);
            self.segments.take_if(|segments| segments.0.capacity() > SLICES_MAX);
        }
    }

    /// Drops what is queued: its connection has ended. What is not given back here is counted as held for ever.
    pub(crate) fn clear(&mut self, pool: &mut BufferPool) {
        while let Some(segment) = self.pop_front() {
            self.release(Some(segment), pool);
        }
        let tail = std::mem::take(&mut self.tail);
        self.put(tail, pool);
        (self.len, self.tail_sent) = (0, 0);
    }

    fn pop_front(&mut self) -> Option<Segment> {
        self.segments.as_mut()?.0.pop_front()
    }

    fn release(&mut self, segment: Option<Segment>, pool: &mut BufferPool) {
        match segment {
            Some(Segment::Copied { buffer, .. }) => self.put(buffer, pool),
            Some(Segment::Shared { len, .. }) => {
                self.held -= len;
                pool.note_unshared(len);
            }
            None => {}
        }
    }

    #[inline]
    fn take(&mut self, class: u8, pool: &mut BufferPool) -> Vec<u8> {
        let buffer = pool.take(class);
        self.held += buffer.capacity();
        buffer
    }

    #[inline]
    fn put(&mut self, buffer: Vec<u8>, pool: &mut BufferPool) {
        self.held -= buffer.capacity();
        pool.put(buffer);
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
