//! One connection's state, and all connections of a worker.

use std::rc::Rc;

use corewire_driver::Token;

use super::deadlines::Deadlines;
use super::input::Input;
use super::options::ConnectionOptions;
use super::send_queue::{SEGMENT_BYTES, SendQueue};
use super::state::{Backlog, Flush, PauseSet, ReadState, State, WriteState};
use super::waiters::Waiters;
use crate::memory::Account;
use crate::protocol::Protocol;
use crate::timer_wheel::TimerKey;

pub(crate) struct Conn {
    pub(crate) token: Token,
    /// Absent while it is being called.
    pub(crate) protocol: Option<Box<dyn Protocol>>,
    pub(crate) options: Rc<ConnectionOptions>,
    pub(crate) state: State,
    pub(crate) pauses: PauseSet,
    /// The driver receives; it does not while there are pauses or deferred input.
    pub(crate) receiving: bool,
    /// It used up its last quota: its next bytes wait for their turn behind all arrivals.
    pub(crate) greedy: bool,
    /// What has arrived and is not decoded; kept for use again.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) out: SendQueue,
    /// Up to this many bytes the queue may grow without a flush, a pause or a refusal: the least of its marks.
    pub(crate) append_max: usize,
    pub(crate) flush: Flush,
    pub(crate) backlog: Backlog,
    /// Bytes handed to the kernel in the tick of this number.
    pub(crate) sent_in_tick: usize,
    pub(crate) sent_tick: u64,
    /// When a byte last moved, in the worker's milliseconds.
    pub(crate) last_active: u64,
    pub(crate) deadlines: Deadlines,
    pub(crate) deadline_timer: Option<TimerKey>,
    pub(crate) protocol_timer: Option<TimerKey>,
    /// What is held for the peer beside the queue; made with the first charge.
    pub(crate) account: Option<Rc<Account>>,
    /// Senders that wait for room.
    pub(crate) waiters: Waiters,
}

impl Conn {
    pub(crate) fn new(
        token: Token,
        protocol: Box<dyn Protocol>,
        options: Rc<ConnectionOptions>,
        connecting: bool,
        now: u64,
    ) -> Self {
        Self {
            token,
            protocol: Some(protocol),
            append_max: SEGMENT_BYTES.min(options.high_water.saturating_sub(1)).min(options.queue_limit),
            options,
            state: if connecting {
                State::Connecting { finish_write: false }
            } else {
                State::Open { write: WriteState::Open, read: ReadState::Open }
            },
            pauses: PauseSet::default(),
            receiving: true,
            greedy: false,
            input: None,
            out: SendQueue::default(),
            flush: Flush::Idle,
            backlog: Backlog::Below,
            sent_in_tick: 0,
            sent_tick: 0,
            last_active: now,
            deadlines: Deadlines::new(now),
            deadline_timer: None,
            protocol_timer: None,
            account: None,
            waiters: Waiters::default(),
        }
    }

    /// Bytes of memory held for the peer.
    pub(crate) fn held(&self) -> usize {
        self.out.held() + self.account.as_ref().map_or(0, |account| account.held())
    }

    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining { .. })
    }

    #[inline]
    pub(crate) fn has_input(&self) -> bool {
        self.input.as_ref().is_some_and(|input| !input.is_empty())
    }

    /// What is queued cannot leave now: it waits for room, or for the connection to be established.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.flush == Flush::Blocked || self.state.is_connecting()
    }
}

/// Connections by the index of their token. Each has memory of its own: a table that grows moves none of them, and what it
/// has in reserve is a pointer for each, not a connection.
#[derive(Default)]
pub(crate) struct ConnTable {
    slots: Vec<Option<Box<Conn>>>,
    len: usize,
}

impl ConnTable {
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Conn> {
        self.slots.get_mut(token.index())?.as_deref_mut().filter(|conn| conn.token == token)
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Conn> {
        self.slots.get(token.index())?.as_deref().filter(|conn| conn.token == token)
    }

    pub(crate) fn insert(&mut self, conn: Conn) {
        let index = conn.token.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        debug_assert!(self.slots[index].is_none(), "the driver gave out a token that is in use");
        self.slots[index] = Some(Box::new(conn));
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Box<Conn>> {
        self.get(token)?;
        self.len -= 1;
        self.slots[token.index()].take()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().map(|conn| &**conn)
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.slots.iter().flatten().map(|conn| conn.token).collect()
    }
}
