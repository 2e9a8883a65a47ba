//! One connection's state, and all connections of a worker.

use std::rc::Rc;

use corewire_driver::Token;

use super::deadlines::Deadlines;
use super::input::Input;
use super::looks::LookPlace;
use super::options::ConnectionOptions;
use super::send_queue::{SEGMENT_BYTES, SendQueue};
use super::state::{Backlog, Flush, PauseSet, ReadState, State, WriteState};
use super::waiters::Waiters;
use crate::memory::Account;
use crate::protocol::Protocol;
use crate::timer_wheel::TimerKey;
use crate::transport::Transport;

/// Names one connection of one worker, whatever carries it. Never names another one later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ConnId {
    index: u32,
    generation: u32,
}

#[cfg(test)]
impl ConnId {
    pub(crate) const fn of_test(index: u32) -> Self {
        Self { index, generation: 0 }
    }
}

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) transport: Transport,
    /// Absent while it is being called.
    pub(crate) protocol: Option<Box<dyn Protocol>>,
    pub(crate) options: Rc<ConnectionOptions>,
    pub(crate) state: State,
    pub(crate) pauses: PauseSet,
    /// The transport receives; it does not while there are pauses or deferred input.
    pub(crate) receiving: bool,
    /// It used up its last quota: its next bytes wait for their turn behind all arrivals.
    pub(crate) greedy: bool,
    /// What has arrived and is not decoded; kept for use again.
    pub(crate) input: Option<Box<Input>>,
    pub(crate) out: SendQueue,
    /// Up to this many bytes the queue may grow without a flush, a pause or a refusal: the least of its marks.
    pub(crate) append_max: u32,
    pub(crate) flush: Flush,
    pub(crate) backlog: Backlog,
    /// Bytes that a task may still send in the tick of this number.
    pub(crate) tick_quota: u32,
    /// Its low bits: one of long ago that has the same makes a sender wait for one tick.
    pub(crate) sent_tick: u32,
    /// When a byte last moved, in the worker's milliseconds.
    pub(crate) last_active: u64,
    pub(crate) deadlines: Deadlines,
    /// When the deadlines are looked at next.
    pub(crate) look: Option<LookPlace>,
    pub(crate) protocol_timer: Option<TimerKey>,
    /// What is held for the peer; made with the first charge.
    pub(crate) account: Option<Rc<Account>>,
    /// Senders that wait for room.
    pub(crate) waiters: Waiters,
}

impl Conn {
    pub(crate) fn new(
        id: ConnId,
        transport: Transport,
        protocol: Box<dyn Protocol>,
        options: Rc<ConnectionOptions>,
        connecting: bool,
        now: u64,
    ) -> Self {
        Self {
            id,
            transport,
            protocol: Some(protocol),
            append_max: SEGMENT_BYTES.min(options.high_water.saturating_sub(1)).min(options.queue_limit)
                as u32,
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
            tick_quota: u32::MAX,
            sent_tick: 0,
            last_active: now,
            deadlines: Deadlines::new(now),
            look: None,
            protocol_timer: None,
            account: None,
            waiters: Waiters::default(),
        }
    }

    pub(crate) const fn is_draining(&self) -> bool {
        matches!(self.state, State::Draining(_))
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

/// Connections by the index of their id. Each has memory of its own: a table that grows moves none of them, and what it
/// has in reserve is a pointer for each, not a connection.
#[derive(Default)]
pub(crate) struct ConnTable {
    slots: Vec<Option<Box<Conn>>>,
    free: Vec<u32>,
    /// Of the next connection.
    generation: u32,
    /// By the index of a socket's token, the slot of the connection that it was the own socket of last.
    by_socket: Vec<u32>,
    len: usize,
}

impl ConnTable {
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.slots.get_mut(id.index as usize)?.as_deref_mut().filter(|conn| conn.id == id)
    }

    /// The connection that this socket is the own of.
    #[inline]
    pub(crate) fn of_socket(&mut self, socket: Token) -> Option<&mut Conn> {
        let slot = *self.by_socket.get(socket.index())?;
        self.slots.get_mut(slot as usize)?.as_deref_mut().filter(|conn| conn.transport.owns(socket))
    }

    /// Adds the connection that is made with the id that it gets.
    pub(crate) fn insert(&mut self, make: impl FnOnce(ConnId) -> Conn) -> ConnId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            // There are never as many connections as there are bytes in 4 GiB.
            (self.slots.len() - 1) as u32
        });
        let id = ConnId { index, generation: self.generation };
        self.generation = self.generation.wrapping_add(1);
        let conn = Box::new(make(id));
        if let Some(socket) = conn.transport.own_socket() {
            let at = socket.index();
            if at >= self.by_socket.len() {
                self.by_socket.resize(at + 1, u32::MAX);
            }
            self.by_socket[at] = index;
        }
        self.slots[index as usize] = Some(conn);
        self.len += 1;
        id
    }

    pub(crate) fn remove(&mut self, id: ConnId) -> Option<Box<Conn>> {
        let slot = self.slots.get_mut(id.index as usize)?;
        let conn = slot.take_if(|conn| conn.id == id)?;
        self.free.push(id.index);
        self.len -= 1;
        Some(conn)
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Conn> {
        self.slots.iter().flatten().map(|conn| &**conn)
    }

    pub(crate) fn ids(&self) -> Vec<ConnId> {
        self.iter().map(|conn| conn.id).collect()
    }
}
