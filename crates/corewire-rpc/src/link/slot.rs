//! What this side keeps of one call.

use std::collections::VecDeque;
use std::task::Waker;

use bytes::Bytes;
use corewire_proto::rpc::Code;
use corewire_runtime::JoinHandle;

use super::response_metadata::ResponseMetadata;
use super::tasks::TaskId;
use crate::metadata::Metadata;
use crate::status::Status;

/// One call, from its beginning until nobody here holds it: what the link keeps of it in the machine's table. Small, since
/// there may be very many; what only streams and waiting handlers need is apart.
pub(crate) struct Slot {
    /// The peer's half.
    pub(crate) incoming: Incoming,
    /// Those who hold the slot. 0: it is there for the answer alone.
    pub(crate) holders: u8,
    /// What it holds beside messages that wait, in bytes; see `Held`.
    pub(super) lent: u32,
    /// Time by the worker's clock in ms at which the call fails; `u64::MAX`: never.
    pub(crate) deadline_ms: u64,
    /// Who waits for the peer's half.
    pub(super) reader: Option<TaskId>,
    /// The message that waits to be taken, if it came when none waited; those behind it are in `more`.
    first: Option<Entry>,
    pub(super) more: Option<Box<More>>,
}

/// The peer's half of a call.
#[derive(Debug)]
pub(crate) enum Incoming {
    /// Nothing of it has come.
    Silent,
    Open,
    /// Nobody reads it.
    Discarded,
    Ended(Result<(), Status>),
}

impl Incoming {
    #[inline]
    pub(super) const fn has_ended(&self) -> bool {
        matches!(self, Self::Ended(_))
    }
}

/// A message that waits to be taken.
pub(crate) struct Entry {
    pub(crate) payload: Bytes,
    /// What it occupies, in bytes.
    pub(super) cost: u32,
    /// Taking it returns credit to the peer.
    pub(super) returns_credit: bool,
}

/// What streams and waiting handlers need.
#[derive(Default)]
pub(crate) struct More {
    queue: VecDeque<Entry>,
    writer: Option<Waker>,
    /// A message that waits for the one behind it, or the end, so that the last one can say that it is.
    held: Option<Bytes>,
    /// The task of a handler that was not ready at once.
    task: Option<JoinHandle<()>>,
    /// What came with the first frame of the peer's half, and with its last one.
    header: Metadata,
    trailer: Metadata,
    /// What goes with the responses.
    response: Option<Box<ResponseMetadata>>,
    /// Who wants to know of the end.
    watch: Option<Box<EndWatch>>,
}

/// Is told of the end of a call.
pub(crate) struct EndWatch {
    /// Of an error that was told already.
    code: Option<Code>,
    tell: TellEnd,
}

type TellEnd = Box<dyn FnOnce(Code, &Metadata)>;

impl More {
    /// Messages that a queue which is used again may have room for.
    const ROOM_MAX: usize = 1_024;

    /// Ready for another call; `None` if it has grown too large to be kept.
    pub(super) fn reset(mut self: Box<Self>) -> Option<Box<Self>> {
        self.queue.clear();
        (self.writer, self.held, self.task, self.watch) = (None, None, None, None);
        self.response = None;
        (self.header, self.trailer) = (Metadata::EMPTY, Metadata::EMPTY);
        (self.queue.capacity() <= Self::ROOM_MAX).then_some(self)
    }
}

impl Slot {
    #[inline]
    pub(super) const fn new(deadline_ms: u64, holders: u8, more: Option<Box<More>>) -> Self {
        Self { incoming: Incoming::Silent, holders, lent: 0, deadline_ms, reader: None, first: None, more }
    }

    /// That of a call of one response, with the task that waits for it.
    #[inline]
    pub(super) const fn awaited(deadline_ms: u64, reader: TaskId) -> Self {
        let reader = Some(reader);
        Self { incoming: Incoming::Silent, holders: 1, lent: 0, deadline_ms, reader, first: None, more: None }
    }

    /// It has what only streams and waiting handlers need.
    #[inline]
    pub(super) const fn has_more(&self) -> bool {
        self.more.is_some()
    }

    fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    #[inline]
    pub(crate) fn push(&mut self, entry: Entry) {
        self.received();
        let is_behind = self.first.is_some() || self.more.as_ref().is_some_and(|more| !more.queue.is_empty());
        if is_behind {
            self.more().queue.push_back(entry);
        } else {
            self.first = Some(entry);
        }
    }

    /// Something of the peer's half has come.
    #[inline]
    fn received(&mut self) {
        if matches!(self.incoming, Incoming::Silent) {
            self.incoming = Incoming::Open;
        }
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<Entry> {
        self.first.take().or_else(|| self.more.as_mut()?.queue.pop_front())
    }

    /// The message of a slot that has nothing else.
    #[inline]
    pub(super) fn take_only(&mut self) -> Option<Entry> {
        if self.more.is_some() || self.lent > 0 || self.reader.is_some() {
            return None;
        }
        self.first.take()
    }

    /// What the messages occupy that wait to be taken, in bytes.
    pub(super) fn queued(&self) -> u32 {
        let behind = self.more.iter().flat_map(|more| &more.queue);
        self.first.iter().chain(behind).fold(0, |sum, entry| sum.saturating_add(entry.cost))
    }

    pub(crate) fn hold(&mut self, payload: Bytes) {
        self.more().held = Some(payload);
    }

    #[inline]
    pub(crate) fn take_held(&mut self) -> Option<Bytes> {
        self.more.as_mut()?.held.take()
    }

    pub(crate) fn is_holding(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.held.is_some())
    }

    pub(crate) fn set_task(&mut self, task: JoinHandle<()>) {
        self.more().task = Some(task);
    }

    pub(crate) fn take_task(&mut self) -> Option<JoinHandle<()>> {
        self.more.as_mut()?.task.take()
    }

    pub(crate) fn set_writer(&mut self, writer: Waker) {
        self.more().writer = Some(writer);
    }

    /// Keeps the metadata of the first or the last frame of the peer's half.
    pub(super) fn keep_metadata(&mut self, metadata: Metadata, is_last: bool) {
        let is_first = matches!(self.incoming, Incoming::Silent);
        self.received();
        let more = self.more();
        if is_first {
            more.header.clone_from(&metadata);
        }
        if is_last {
            more.trailer = metadata;
        }
    }

    pub(crate) fn header(&self) -> &Metadata {
        self.more.as_ref().map_or_else(|| Metadata::none(), |more| &more.header)
    }

    pub(crate) fn trailer(&self) -> &Metadata {
        self.more.as_ref().map_or_else(|| Metadata::none(), |more| &more.trailer)
    }

    /// Has the end of the call told.
    pub(crate) fn watch_end(&mut self, tell: impl FnOnce(Code, &Metadata) + 'static) {
        self.more().watch = Some(Box::new(EndWatch { code: None, tell: Box::new(tell) }));
    }

    /// The error that ended the call is told, and forgotten here.
    pub(crate) fn note_failure(&mut self, code: Code) {
        if let Some(watch) = self.more.as_mut().and_then(|more| more.watch.as_mut()) {
            watch.code = Some(code);
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.more.as_ref().is_some_and(|more| more.watch.is_some())
    }

    /// Tells the end of a call that nobody holds any more.
    pub(crate) fn tell_end(&mut self) {
        let Some(EndWatch { code, tell }) = self.more.as_mut().and_then(|more| more.watch.take()).map(|w| *w)
        else {
            return;
        };
        let end = match &self.incoming {
            Incoming::Ended(Ok(())) => Code::OK,
            Incoming::Ended(Err(status)) => status.code(),
            _ => Code::CANCELLED,
        };
        // What came at the beginning, and behind it what came at the end.
        let mut metadata = self.header().clone();
        if metadata != *self.trailer() {
            metadata.append(self.trailer());
        }
        tell(code.unwrap_or(end), &metadata);
    }

    pub(crate) fn wake_writer(&mut self) {
        if let Some(waker) = self.more.as_mut().and_then(|more| more.writer.take()) {
            waker.wake();
        }
    }

    pub(super) fn response_metadata(&self) -> Option<&ResponseMetadata> {
        self.more.as_ref()?.response.as_deref()
    }

    pub(super) fn response_metadata_mut(&mut self) -> &mut ResponseMetadata {
        self.more().response.get_or_insert_default()
    }

    /// The peer's half has ended, with the call or without it. Whoever waits for it is still to be woken.
    #[inline]
    pub(super) fn end(&mut self, how: Result<(), Status>) {
        if !self.incoming.has_ended() {
            if how.is_err() {
                self.deadline_ms = u64::MAX;
            }
            self.incoming = Incoming::Ended(how);
        }
    }

    /// The call is over as a whole. Whoever waits for the peer's half is still to be woken.
    pub(super) fn lose(&mut self, why: Status) {
        drop(self.take_held());
        // What was cut must not look like an end.
        if !matches!(self.incoming, Incoming::Ended(Ok(()))) {
            self.deadline_ms = u64::MAX;
            self.incoming = Incoming::Ended(Err(why));
        }
        self.wake_writer();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_stays_small() {
        assert!(size_of::<Slot>() <= 112, "{} bytes", size_of::<Slot>());
    }
}
