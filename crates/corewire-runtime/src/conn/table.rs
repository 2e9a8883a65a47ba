//! One connection's state, and all connections of a worker.

use std::rc::Rc;
use std::task::Waker;

use corewire_driver::Token;

use super::options::ConnectionOptions;
use super::reason::CloseReason;
use super::send_queue::SendQueue;
use crate::memory::Account;
use crate::protocol::Protocol;
use crate::timer_wheel::TimerKey;
use crate::worker::FLUSH_AT;

pub(crate) struct Conn {
    pub(crate) token: Token,
    /// Absent while it is being called.
    pub(crate) protocol: Option<Box<dyn Protocol>>,
    pub(crate) options: Rc<ConnectionOptions>,
    pub(crate) out: SendQueue,
    /// Up to this many bytes the queue may grow without a flush, a pause or a refusal: the least of its marks.
    pub(crate) append_max: usize,
    /// Bytes handed to the kernel in the tick of this number.
    pub(crate) burst: usize,
    pub(crate) burst_tick: u64,
    /// A connect is under way: what is sent waits for it.
    pub(crate) connecting: bool,
    /// In the worker's list of connections to flush.
    pub(crate) dirty: bool,
    /// The socket took less than it was given; the driver will say when it takes more.
    pub(crate) blocked: bool,
    /// The queue has been over its high-water mark and not yet down to the low one.
    pub(crate) over_high_water: bool,
    /// In the worker's list of connections to tell that they have drained.
    pub(crate) drained: bool,
    pub(crate) paused_by_user: bool,
    pub(crate) paused_by_backlog: bool,
    /// Send no more once the queue is empty.
    pub(crate) shut_write: bool,
    /// The connection ends when the queue is empty (or is in the worker's list of the doomed already).
    pub(crate) closing: Option<CloseReason>,
    pub(crate) doomed: bool,
    /// It ends in good order: all that was queued has been sent.
    pub(crate) orderly: bool,
    /// The peer has finished sending.
    pub(crate) read_ended: bool,
    /// When a byte last moved, in the worker's milliseconds.
    pub(crate) last_active: u64,
    pub(crate) idle_timer: Option<TimerKey>,
    pub(crate) close_timer: Option<TimerKey>,
    pub(crate) protocol_timer: Option<TimerKey>,
    /// What is held for the peer beside the queue; made with the first charge.
    pub(crate) account: Option<Rc<Account>>,
    /// Senders that wait for room.
    pub(crate) waiting: Vec<Waker>,
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
            append_max: FLUSH_AT.min(options.high_water.saturating_sub(1)).min(options.queue_limit),
            options,
            out: SendQueue::default(),
            burst: 0,
            burst_tick: 0,
            connecting,
            dirty: false,
            blocked: false,
            over_high_water: false,
            drained: false,
            paused_by_user: false,
            paused_by_backlog: false,
            shut_write: false,
            closing: None,
            doomed: false,
            orderly: false,
            read_ended: false,
            last_active: now,
            idle_timer: None,
            close_timer: None,
            protocol_timer: None,
            account: None,
            waiting: Vec::new(),
        }
    }

    /// What is queued cannot leave now: it waits for room, or for the connection to stand.
    #[inline]
    pub(crate) fn is_stuck(&self) -> bool {
        self.blocked || self.connecting
    }

    #[inline]
    pub(crate) fn takes_sends(&self) -> bool {
        self.closing.is_none() && !self.shut_write
    }
}

/// Connections by the index of their token.
#[derive(Default)]
pub(crate) struct ConnTable {
    slots: Vec<Option<Conn>>,
    len: usize,
}

impl ConnTable {
    #[inline]
    pub(crate) fn get_mut(&mut self, token: Token) -> Option<&mut Conn> {
        self.slots.get_mut(token.index())?.as_mut().filter(|conn| conn.token == token)
    }

    pub(crate) fn get(&self, token: Token) -> Option<&Conn> {
        self.slots.get(token.index())?.as_ref().filter(|conn| conn.token == token)
    }

    pub(crate) fn insert(&mut self, conn: Conn) {
        let index = conn.token.index();
        if index >= self.slots.len() {
            self.slots.resize_with(index + 1, || None);
        }
        debug_assert!(self.slots[index].is_none(), "the driver gave out a token that is in use");
        self.slots[index] = Some(conn);
        self.len += 1;
    }

    pub(crate) fn remove(&mut self, token: Token) -> Option<Conn> {
        self.get(token)?;
        self.len -= 1;
        self.slots[token.index()].take()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn tokens(&self) -> Vec<Token> {
        self.slots.iter().flatten().map(|conn| conn.token).collect()
    }
}
