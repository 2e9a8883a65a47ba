//! What has arrived for a stream and was not read yet.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};
use corewire_driver::DriverConfig;

use crate::conn::{CloseReason, Connection};
use crate::memory::{Charge, MemoryKind};
use crate::protocol::Protocol;
use crate::task_quota::poll_with_quota;

/// Bytes that wait to be read at which the peer is held back.
const HIGH_WATER: usize = 256 * 1024;
const LOW_WATER: usize = 64 * 1024;

/// What nobody waits for is copied out of the receive block, which it would keep whole: except for the first so many
/// arrivals of at least this size, so that a reader that is a little late costs no copy.
const SHARED_MAX: usize = 2;
const SHARED_MIN: usize = 32 * 1024;

/// The memory that what is copied is gathered in, at a time.
const GATHERED_MAX: usize = 64 * 1024;
/// Memory up to this size is kept for what is gathered next.
const KEPT_MAX: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Piece>,
    /// Arrivals behind the queue that are copied.
    gathered: BytesMut,
    len: usize,
    /// Bytes of memory held, and the charge for them: made when something has to wait.
    held: usize,
    charge: Option<Charge>,
    /// Pieces in the queue that keep a receive block.
    shared: usize,
    opened: bool,
    /// The peer has finished.
    ended: bool,
    /// The connection is gone, and how if by error.
    closed: Option<Option<Lost>>,
    held_back: bool,
    reader: Option<Waker>,
}

#[derive(Debug)]
struct Piece {
    bytes: Bytes,
    memory: Memory,
}

/// What a piece occupies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Memory {
    /// The receive block that its reader, woken already, gives back at once.
    Passing,
    /// A receive block.
    Block,
    /// Memory of its own, so many bytes.
    Own(usize),
}

impl Memory {
    const fn held(self) -> usize {
        match self {
            Self::Passing => 0,
            // The block is used again only when no piece of it is kept.
            Self::Block => DriverConfig::RECEIVE_BLOCK_SIZE,
            Self::Own(bytes) => bytes,
        }
    }
}

/// An `io::Error` that can be told more than once.
#[derive(Debug)]
struct Lost {
    kind: io::ErrorKind,
    code: Option<i32>,
    message: String,
}

impl Lost {
    fn to_error(&self) -> io::Error {
        self.code
            .map_or_else(|| io::Error::new(self.kind, self.message.clone()), io::Error::from_raw_os_error)
    }
}

impl Inbox {
    pub(super) fn poll_opened(&self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut state = self.state.borrow_mut();
        if let Some(error) = state.loss() {
            return Poll::Ready(Err(error));
        }
        if state.opened {
            return Poll::Ready(Ok(()));
        }
        state.wait(context);
        Poll::Pending
    }

    /// Takes the next block, whole.
    pub(super) fn poll_chunk(
        &self,
        connection: &Connection,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Option<Bytes>>> {
        poll_with_quota(context, |context| {
            let mut state = self.state.borrow_mut();
            let Some(piece) = state.pop() else { return state.poll_end(context).map_ok(|()| None) };
            state.taken(piece.bytes.len(), connection);
            Poll::Ready(Ok(Some(piece.bytes)))
        })
    }

    /// Gives up to `room` bytes to `take`, piece by piece, and says how many; 0 at the end, or if there is no room.
    pub(super) fn poll_read(
        &self,
        connection: &Connection,
        context: &mut Context<'_>,
        room: usize,
        take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        poll_with_quota(context, |context| self.poll_take(connection, context, room, take))
    }

    fn poll_take(
        &self,
        connection: &Connection,
        context: &mut Context<'_>,
        room: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let mut taken = 0;
        while taken < room
            && let Some(mut piece) = state.pop()
        {
            let step = piece.bytes.len().min(room - taken);
            take(&piece.bytes[..step]);
            taken += step;
            piece.bytes.advance(step);
            if !piece.bytes.is_empty() {
                state.push_front(piece);
            }
        }
        if taken > 0 || room == 0 {
            state.taken(taken, connection);
            return Poll::Ready(Ok(taken));
        }
        state.poll_end(context).map_ok(|()| 0)
    }

    /// Waits until something is there, copies what fits and leaves it there.
    pub(super) fn poll_peek(&self, context: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        if state.len == 0 {
            return state.poll_end(context).map_ok(|()| 0);
        }
        drop(state);
        Poll::Ready(Ok(self.peek(buffer)))
    }

    /// Copies what is there and fits.
    pub(super) fn peek(&self, buffer: &mut [u8]) -> usize {
        let state = self.state.borrow();
        let mut copied = 0;
        let pieces = state.queue.iter().map(|piece| &piece.bytes[..]);
        for piece in pieces.chain([&state.gathered[..]]) {
            let step = piece.len().min(buffer.len() - copied);
            buffer[copied..copied + step].copy_from_slice(&piece[..step]);
            copied += step;
        }
        copied
    }

    /// Bytes that were read and are to be read again, before all others.
    pub(super) fn put_back(&self, bytes: &[u8], connection: &Connection) {
        if !bytes.is_empty() {
            let mut state = self.state.borrow_mut();
            state.len += bytes.len();
            let bytes = Bytes::copy_from_slice(bytes);
            state.push_front(Piece { memory: Memory::Own(bytes.len()), bytes });
            state.note_held(connection);
        }
    }

    /// The error that ended the connection, if it was one.
    pub(super) fn error(&self) -> io::Error {
        self.state.borrow().loss().unwrap_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl State {
    fn pop(&mut self) -> Option<Piece> {
        if self.queue.is_empty() {
            self.close_gathered();
        }
        let piece = self.queue.pop_front()?;
        self.held -= piece.memory.held();
        self.shared -= usize::from(piece.memory == Memory::Block);
        Some(piece)
    }

    fn push_front(&mut self, piece: Piece) {
        self.count(piece.memory);
        self.queue.push_front(piece);
    }

    fn push_back(&mut self, bytes: Bytes, memory: Memory) {
        self.count(memory);
        self.queue.push_back(Piece { bytes, memory });
    }

    fn count(&mut self, memory: Memory) {
        self.held += memory.held();
        self.shared += usize::from(memory == Memory::Block);
    }

    fn push(&mut self, data: Bytes) {
        self.len += data.len();
        if self.reader.is_some() && self.queue.is_empty() && self.gathered.is_empty() {
            return self.push_back(data, Memory::Passing);
        }
        if data.len() >= SHARED_MIN && self.shared < SHARED_MAX {
            self.close_gathered();
            return self.push_back(data, Memory::Block);
        }
        if self.gathered.len() + data.len() > GATHERED_MAX {
            self.close_gathered();
        }
        if !self.queue.is_empty() && self.gathered.capacity() < data.len() {
            // More than a little waits already: no growing in steps.
            self.gathered.reserve(GATHERED_MAX.max(data.len()));
        }
        self.gathered.extend_from_slice(&data);
    }

    /// What was gathered becomes a piece of the queue.
    fn close_gathered(&mut self) {
        if self.gathered.is_empty() {
            return;
        }
        let capacity = self.gathered.capacity();
        let bytes = if capacity > KEPT_MAX {
            std::mem::take(&mut self.gathered).freeze()
        } else {
            self.gathered.split().freeze()
        };
        self.push_back(bytes, Memory::Own(capacity));
    }

    fn note_held(&mut self, connection: &Connection) {
        let held = self.held + if self.gathered.is_empty() { 0 } else { self.gathered.capacity() };
        match &mut self.charge {
            Some(charge) => charge.set(held),
            None if held > KEPT_MAX => self.charge = Some(connection.charge(MemoryKind::Inbox, held)),
            None => {}
        }
    }

    fn taken(&mut self, len: usize, connection: &Connection) {
        self.len -= len;
        self.note_held(connection);
        if self.held_back && self.len <= LOW_WATER {
            self.held_back = false;
            connection.resume_receive();
        }
    }

    /// Nothing is left to read: the end, the error, or wait.
    fn poll_end(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.ended {
            return Poll::Ready(Ok(()));
        }
        match &self.closed {
            Some(Some(lost)) => Poll::Ready(Err(lost.to_error())),
            Some(None) => Poll::Ready(Ok(())),
            None => {
                self.wait(context);
                Poll::Pending
            }
        }
    }

    fn loss(&self) -> Option<io::Error> {
        match &self.closed {
            Some(Some(lost)) => Some(lost.to_error()),
            Some(None) => Some(io::ErrorKind::NotConnected.into()),
            None => None,
        }
    }

    fn wait(&mut self, context: &Context<'_>) {
        if self.reader.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            self.reader = Some(context.waker().clone());
        }
    }

    fn wake(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }
}

/// Fills the inbox as things happen.
pub(super) struct InboxProtocol {
    inbox: Rc<Inbox>,
}

impl InboxProtocol {
    pub(super) const fn new(inbox: Rc<Inbox>) -> Self {
        Self { inbox }
    }
}

impl Protocol for InboxProtocol {
    fn on_open(&mut self, _: &Connection) {
        let mut state = self.inbox.state.borrow_mut();
        state.opened = true;
        state.wake();
    }

    fn on_received(&mut self, connection: &Connection, data: Bytes) {
        let mut state = self.inbox.state.borrow_mut();
        state.push(data);
        state.note_held(connection);
        if state.len >= HIGH_WATER && !state.held_back {
            state.held_back = true;
            connection.pause_receive();
        }
        state.wake();
    }

    fn on_read_closed(&mut self, _: &Connection) {
        let mut state = self.inbox.state.borrow_mut();
        state.ended = true;
        state.wake();
    }

    fn on_closed(&mut self, _: &Connection, reason: &CloseReason) {
        let mut state = self.inbox.state.borrow_mut();
        state.closed = Some(match reason {
            CloseReason::Local | CloseReason::PeerClosed => None,
            CloseReason::Io(error) => {
                Some(Lost { kind: error.kind(), code: error.raw_os_error(), message: error.to_string() })
            }
            other => {
                Some(Lost { kind: io::ErrorKind::ConnectionAborted, code: None, message: other.to_string() })
            }
        });
        state.wake();
    }
}
