//! What has arrived for a stream and was not read yet.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::{Buf, Bytes, BytesMut};

use crate::conn::{CloseReason, Connection};
use crate::protocol::Protocol;

/// Bytes that wait to be read at which the peer is held back.
const HIGH_WATER: usize = 256 * 1024;
const LOW_WATER: usize = 64 * 1024;

/// Arrivals up to this size are gathered when nobody waits for them: each would keep a whole block of the driver's.
const GATHER_MAX: usize = 4 * 1024;

#[derive(Debug, Default)]
pub(super) struct Inbox {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<Bytes>,
    /// Small arrivals behind the queue.
    gathered: BytesMut,
    len: usize,
    opened: bool,
    /// The peer has finished.
    ended: bool,
    /// The connection is gone, and how if by error.
    closed: Option<Option<Lost>>,
    held_back: bool,
    reader: Option<Waker>,
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
        let mut state = self.state.borrow_mut();
        let Some(chunk) = state.pop() else { return state.poll_end(context).map_ok(|()| None) };
        state.taken(chunk.len(), connection);
        Poll::Ready(Ok(Some(chunk)))
    }

    /// Copies what fits.
    pub(super) fn poll_read(
        &self,
        connection: &Connection,
        context: &mut Context<'_>,
        mut buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut state = self.state.borrow_mut();
        let mut copied = 0;
        while !buffer.is_empty()
            && let Some(mut chunk) = state.pop()
        {
            let step = chunk.len().min(buffer.len());
            chunk.copy_to_slice(&mut buffer[..step]);
            buffer = &mut buffer[step..];
            copied += step;
            if !chunk.is_empty() {
                state.queue.push_front(chunk);
            }
        }
        if copied > 0 || buffer.is_empty() {
            state.taken(copied, connection);
            return Poll::Ready(Ok(copied));
        }
        state.poll_end(context).map_ok(|()| 0)
    }

    /// The error that ended the connection, if it was one.
    pub(super) fn error(&self) -> io::Error {
        self.state.borrow().loss().unwrap_or_else(|| io::ErrorKind::NotConnected.into())
    }
}

impl State {
    fn pop(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.queue.pop_front() {
            return Some(chunk);
        }
        if self.gathered.is_empty() { None } else { Some(self.gathered.split().freeze()) }
    }

    fn taken(&mut self, len: usize, connection: &Connection) {
        self.len -= len;
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
        state.len += data.len();
        if state.reader.is_none() && data.len() <= GATHER_MAX {
            state.gathered.extend_from_slice(&data);
        } else {
            if !state.gathered.is_empty() {
                let gathered = state.gathered.split().freeze();
                state.queue.push_back(gathered);
            }
            state.queue.push_back(data);
        }
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
