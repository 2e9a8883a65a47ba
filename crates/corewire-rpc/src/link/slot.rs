//! What this side keeps of one call.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use corewire_proto::rpc::CallKey;
use corewire_runtime::JoinHandle;

use crate::status::Status;

/// One call, from its beginning until nobody here holds it.
pub(crate) struct Slot {
    pub(crate) key: CallKey,
    /// The state machine still knows the call.
    pub(crate) is_live: bool,
    pub(crate) inbox: Inbox,
    /// How the peer's half ended.
    pub(crate) end: Option<Result<(), Status>>,
    pub(crate) reader: Option<Waker>,
    pub(crate) writer: Option<Waker>,
    /// A message that waits for the one behind it, or the end, so that the last one can say that it is.
    pub(crate) held: Option<Bytes>,
    /// Time by the worker's clock in ms at which the call fails; `u64::MAX`: never.
    pub(crate) deadline_ms: u64,
    /// Nobody reads the peer's half.
    pub(crate) is_deaf: bool,
    /// Those who hold the slot.
    pub(crate) holders: u8,
    /// The task of a handler that was not ready at once.
    pub(crate) task: Option<JoinHandle<()>>,
}

impl Slot {
    pub(crate) fn new(key: CallKey, deadline_ms: u64, holders: u8, queue: VecDeque<Entry>) -> Self {
        Self {
            key,
            is_live: true,
            inbox: Inbox { first: None, rest: queue },
            end: None,
            reader: None,
            writer: None,
            held: None,
            deadline_ms,
            is_deaf: false,
            holders,
            task: None,
        }
    }

    #[inline]
    pub(crate) fn wake_reader(&mut self) {
        if let Some(waker) = self.reader.take() {
            waker.wake();
        }
    }

    pub(crate) fn wake_writer(&mut self) {
        if let Some(waker) = self.writer.take() {
            waker.wake();
        }
    }

    /// The peer's half has ended, with the call or without it.
    #[inline]
    pub(crate) fn end(&mut self, how: Result<(), Status>) {
        if self.end.is_none() {
            if how.is_err() {
                self.deadline_ms = u64::MAX;
            }
            self.end = Some(how);
        }
        self.wake_reader();
    }

    /// The call is over as a whole.
    pub(crate) fn is_lost(&mut self, why: Status) {
        self.is_live = false;
        self.held = None;
        // What was cut must not look like an end.
        if !matches!(self.end, Some(Ok(()))) {
            self.end = None;
        }
        self.end(Err(why));
        self.wake_writer();
    }
}

/// Messages that wait to be taken. One needs no memory of its own.
#[derive(Default)]
pub(crate) struct Inbox {
    first: Option<Entry>,
    rest: VecDeque<Entry>,
}

/// A message, and whether taking it gives room back to the peer.
pub(crate) type Entry = (Bytes, bool);

impl Inbox {
    /// The memory of an inbox that is given up, for another.
    pub(super) fn into_queue(mut self) -> VecDeque<Entry> {
        self.rest.clear();
        self.rest
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        if self.first.is_none() {
            self.first = Some(entry);
        } else {
            self.rest.push_back(entry);
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        let next = if self.rest.is_empty() { None } else { self.rest.pop_front() };
        std::mem::replace(&mut self.first, next)
    }
}
