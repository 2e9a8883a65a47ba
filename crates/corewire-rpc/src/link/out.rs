//! From the state machine to the connection's send queue.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_proto::rpc::{Output, Payload};
use corewire_runtime::{CloseReason, Connection, SendError};

/// Pieces from this length on go to the connection as they are; shorter ones are gathered first.
const DIRECT_MIN: usize = 2 * 1024;

/// What is gathered goes to the connection when it comes to this.
const GATHERED_MAX: usize = 64 * 1024;

/// A piece of at least this length is sent through at once if nothing stands before it.
const SHARED_MIN: usize = 16 * 1024;

/// Gathers what is written while frames are handled and tasks run, so that the connection is touched once a batch.
pub(crate) struct Out {
    connection: Option<Connection>,
    gathered: Vec<u8>,
    high_water: usize,
    /// The queue was over its high-water mark when it was last looked at, and has not fallen since.
    pub(crate) is_over: bool,
}

impl Out {
    pub(crate) const fn new(high_water: usize) -> Self {
        Self { connection: None, gathered: Vec::new(), high_water, is_over: false }
    }

    pub(crate) fn open(&mut self, connection: &Connection) {
        self.connection = Some(connection.clone());
    }

    /// The connection is gone: handles that are left with the link hold nothing of its worker.
    pub(super) fn close(&mut self) {
        self.connection = None;
        recycle(&mut self.gathered);
    }

    pub(crate) const fn connection(&self) -> Option<&Connection> {
        self.connection.as_ref()
    }

    /// Bytes that the kernel has not taken yet.
    pub(crate) fn queued(&self) -> usize {
        self.gathered.len() + self.connection.as_ref().map_or(0, Connection::queued)
    }

    #[inline]
    pub(crate) const fn has_gathered(&self) -> bool {
        !self.gathered.is_empty()
    }

    /// Gives the connection what was gathered.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if !self.gathered.is_empty() {
            self.push(&[]);
        }
    }

    fn push(&mut self, behind: &[u8]) {
        if let Some(connection) = &self.connection {
            let sent = connection.send_parts([&self.gathered, behind, &[]]);
            self.is_over = note(connection, sent, self.high_water);
        }
        recycle(&mut self.gathered);
    }

    #[inline(never)]
    fn write_parts(&mut self, head: &[u8], payload: &[u8]) {
        self.write(head);
        self.write(payload);
    }

    fn push_shared(&mut self, bytes: Bytes) {
        if let Some(connection) = &self.connection {
            if connection.queued() == 0 {
                return self.push(&bytes);
            }
            let mut sent = Ok(());
            if !self.gathered.is_empty() {
                sent = connection.send(&self.gathered);
            }
            sent = sent.and_then(|()| connection.send_bytes(bytes));
            self.is_over = note(connection, sent, self.high_water);
        }
        recycle(&mut self.gathered);
    }
}

thread_local! {
    /// Empty buffers of the worker's links: one that has nothing to send has no buffer, and the next that has gets the
    /// one that was used last, which is in cache.
    static SPARE: RefCell<Spare> = const { RefCell::new(Spare { buffers: Vec::new(), bytes: 0 }) };
}

struct Spare {
    buffers: Vec<Vec<u8>>,
    /// Of all of them.
    bytes: usize,
}

impl Spare {
    /// Memory that a worker keeps for what is gathered, in bytes.
    const MAX: usize = 16 * 1024 * 1024;
}

fn recycle(gathered: &mut Vec<u8>) {
    let mut buffer = std::mem::take(gathered);
    buffer.clear();
    SPARE.with_borrow_mut(|spare| {
        if buffer.capacity() > 0 && spare.bytes + buffer.capacity() <= Spare::MAX {
            spare.bytes += buffer.capacity();
            spare.buffers.push(buffer);
        }
    });
}

#[cold]
fn buffer() -> Vec<u8> {
    SPARE.with_borrow_mut(|spare| {
        let buffer = spare.buffers.pop().unwrap_or_default();
        spare.bytes -= buffer.capacity();
        buffer
    })
}

/// Whether the queue is over its mark. A queue that takes no more has lost a frame: the connection cannot go on.
fn note(connection: &Connection, sent: Result<(), SendError>, high_water: usize) -> bool {
    if let Err(error @ SendError::QueueFull { .. }) = sent {
        connection.abort(CloseReason::Protocol(error.to_string()));
    }
    connection.queued() >= high_water
}

impl Output for Out {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        if bytes.len() >= DIRECT_MIN {
            return self.push(bytes);
        }
        if self.gathered.capacity() == 0 {
            self.gathered = buffer();
        }
        self.gathered.extend_from_slice(bytes);
        if self.gathered.len() >= GATHERED_MAX {
            self.push(&[]);
        }
    }

    #[inline(always)]
    fn write_frame(&mut self, head: &[u8], payload: &[u8]) {
        let (len, room) = (head.len() + payload.len(), self.gathered.capacity() - self.gathered.len());
        // There is room for both, so that nothing has to be looked at twice; of the head's length the compiler knows how to
        // copy it in place.
        if payload.len() >= DIRECT_MIN || room < len || self.gathered.len() + len >= GATHERED_MAX {
            return self.write_parts(head, payload);
        }
        self.gathered.extend_from_slice(head);
        self.gathered.extend_from_slice(payload);
    }

    #[inline]
    fn write_shared(&mut self, bytes: Bytes) {
        if bytes.len() >= SHARED_MIN { self.push_shared(bytes) } else { self.write(&bytes) }
    }
}

/// A payload that its owner keeps.
#[derive(Clone, Copy)]
pub(crate) struct Kept<'a>(pub(crate) &'a Bytes);

impl Payload for Kept<'_> {
    #[inline]
    fn size(&self) -> usize {
        self.0.len()
    }

    #[inline]
    fn write_to<O: Output + ?Sized>(self, out: &mut O) {
        if self.0.len() >= SHARED_MIN { out.write_shared(self.0.clone()) } else { out.write(self.0) }
    }

    #[inline(always)]
    fn write_behind<O: Output + ?Sized>(self, head: &[u8], out: &mut O) {
        if self.0.len() < SHARED_MIN {
            return out.write_frame(head, self.0);
        }
        out.write(head);
        self.write_to(out);
    }
}
