//! Connections that share a socket with others.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::net::SocketAddr;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::Socket;

use super::port::UdpPort;
use crate::conn::{CloseReason, Connection, ConnectionOptions};
use crate::error::SendError;
use crate::panic::guarded;
use crate::protocol::Protocol;
use crate::timer_wheel::TimerKey;
use crate::worker::{Core, TimerAction};

/// What carries the bytes of a [`Carried`] connection.
pub trait Carrier: 'static {
    /// The socket below.
    fn port(&self) -> &UdpPort;

    /// The peer's address.
    fn peer(&self) -> SocketAddr;

    /// Each send is a datagram of its own and may be lost; otherwise bytes arrive in order, whatever pieces they were
    /// sent in.
    fn is_datagram(&self) -> bool;

    /// Takes bytes, all or none.
    ///
    /// # Errors
    /// Why not.
    fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError>;

    /// Takes bytes, all or none, unless so many wait already. One look at the queue instead of two, where that is dear.
    ///
    /// # Errors
    /// As [`send`](Self::send), or [`SendError::QueueFull`].
    #[inline]
    fn send_within(&self, parts: [&[u8]; 3], limit: usize) -> Result<(), SendError> {
        let queued = self.queued();
        if queued >= limit {
            return Err(SendError::QueueFull { queued, limit });
        }
        self.send(parts)
    }

    /// Bytes that were taken and have not left.
    fn queued(&self) -> usize;

    /// The connection is to end once what was taken has left. True: it has ended now; false:
    /// [`Carried::abort`] or [`Carried::finish`] follows.
    fn begin_close(&self) -> bool {
        true
    }

    /// Nothing more is sent.
    fn shutdown_write(&self) {}

    /// Whether to hold the peer back, where that can be done.
    fn set_paused(&self, paused: bool) {
        let _ = paused;
    }

    /// The connection is over; nothing is called any more.
    fn forget(&self);
}

/// A connection on a shared socket. Its owner, the socket's [`UdpProtocol`](super::UdpProtocol), tells what happens to
/// it; its [`Protocol`] and all who hold the [`Connection`] see a connection like any other.
pub struct Carried {
    core: Rc<Core>,
    carrier: Box<dyn Carrier>,
    protocol: RefCell<Option<Box<dyn Protocol>>>,
    options: Rc<ConnectionOptions>,
    this: Weak<Self>,
    place: usize,
    closing: RefCell<Option<CloseReason>>,
    is_closing: Cell<bool>,
    is_closed: Cell<bool>,
    is_paused: Cell<bool>,
    last_active: Cell<u64>,
    /// A tick, and the bytes sent in it.
    burst: Cell<(u64, usize)>,
    idle_timer: Cell<Option<TimerKey>>,
    close_timer: Cell<Option<TimerKey>>,
    protocol_timer: Cell<Option<TimerKey>>,
    waiting: RefCell<Vec<Waker>>,
}

/// Which timer of a connection has come.
#[derive(Debug, Clone, Copy)]
pub(crate) enum CarriedTimer {
    Idle,
    Close,
    Protocol,
}

impl Carried {
    /// A connection of the current worker; [`Protocol::on_open`] is called by [`opened`](Self::opened).
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open(
        carrier: impl Carrier,
        options: Rc<ConnectionOptions>,
        protocol: Box<dyn Protocol>,
    ) -> Rc<Self> {
        let core = Core::current_or_panic("Carried::open");
        let mut places = core.udp.carried.borrow_mut();
        let entry = places.vacant_entry();
        let carried = Rc::new_cyclic(|this| Self {
            carrier: Box::new(carrier),
            protocol: RefCell::new(Some(protocol)),
            options,
            this: this.clone(),
            place: entry.key(),
            closing: RefCell::default(),
            is_closing: Cell::new(false),
            is_closed: Cell::new(false),
            is_paused: Cell::new(false),
            last_active: Cell::new(core.now_ms()),
            burst: Cell::default(),
            idle_timer: Cell::default(),
            close_timer: Cell::default(),
            protocol_timer: Cell::default(),
            waiting: RefCell::default(),
            core: core.clone(),
        });
        entry.insert(Rc::downgrade(&carried));
        drop(places);
        if let Some(idle) = carried.options.idle_timeout {
            carried.idle_timer.set(Some(carried.arm(idle, CarriedTimer::Idle)));
        }
        carried
    }

    /// The connection as its protocol sees it.
    pub fn connection(&self) -> Connection {
        let token = self.carrier.port().token;
        Connection { core: self.core.clone(), token, carried: self.this.upgrade() }
    }

    /// The connection is established.
    pub fn opened(&self) {
        self.call(|protocol, connection| protocol.on_open(connection));
    }

    /// Bytes arrived. A datagram that arrives while receiving is paused is dropped and counted.
    #[inline]
    pub fn received(&self, data: Bytes) {
        self.last_active.set(self.core.now_ms());
        if self.is_paused.get() && self.carrier.is_datagram() {
            return crate::stats::Counters::add(&self.core.counters.datagrams_dropped, 1);
        }
        if !self.is_closing.get() {
            self.call(|protocol, connection| protocol.on_received(connection, data));
        }
    }

    /// Datagrams of one size arrived, the last perhaps shorter, one behind the other: as [`received`](Self::received), but
    /// in one call.
    #[inline]
    pub fn received_run(&self, run: &Bytes, segment_size: usize) {
        self.last_active.set(self.core.now_ms());
        if self.is_paused.get() {
            let count = run.len().div_ceil(segment_size.max(1));
            return crate::stats::Counters::add(&self.core.counters.datagrams_dropped, count as u64);
        }
        if !self.is_closing.get() {
            self.call(|protocol, connection| protocol.on_datagrams(connection, run, segment_size));
        }
    }

    /// Something arrived that holds no bytes: the peer lives.
    pub fn touch(&self) {
        self.last_active.set(self.core.now_ms());
    }

    /// The peer will send nothing more.
    pub fn read_closed(&self) {
        if !self.is_closing.get() {
            self.call(|protocol, connection| protocol.on_read_closed(connection));
        }
    }

    /// What was taken has left: who waits for room goes on.
    pub fn drained(&self) {
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
        if !self.is_closing.get() {
            self.call(|protocol, connection| protocol.on_drained(connection));
        }
    }

    /// A close that was begun is done.
    pub fn finish(&self) {
        self.close_now(CloseReason::Local);
    }

    /// What carries it.
    pub fn carrier(&self) -> &dyn Carrier {
        &*self.carrier
    }

    fn call(&self, call: impl FnOnce(&mut dyn Protocol, &Connection)) {
        let Some(mut protocol) = self.protocol.take() else { return };
        let connection = self.connection();
        let outcome = guarded(|| call(&mut *protocol, &connection));
        self.protocol.replace(Some(protocol));
        if let Err(message) = outcome {
            self.core.note_panic(&message);
            self.close_now(CloseReason::HandlerPanicked(message));
        }
    }

    fn arm(&self, after: Duration, timer: CarriedTimer) -> TimerKey {
        self.core.add_timer(after, TimerAction::Carried(self.this.clone(), timer))
    }

    pub(crate) fn fire(&self, timer: CarriedTimer) {
        match timer {
            CarriedTimer::Protocol => {
                self.protocol_timer.set(None);
                if !self.is_closing.get() {
                    self.call(|protocol, connection| protocol.on_timer(connection));
                }
            }
            CarriedTimer::Close => {
                self.close_timer.set(None);
                let (unsent, timeout) = (self.carrier.queued(), self.options.close_timeout);
                self.closing.replace(Some(CloseReason::CloseTimeout { unsent, timeout }));
                self.list_closed();
            }
            CarriedTimer::Idle => {
                self.idle_timer.set(None);
                let Some(timeout) = self.options.idle_timeout else { return };
                let idle = Duration::from_millis(self.core.now_ms() - self.last_active.get());
                if idle >= timeout {
                    return self.close_now(CloseReason::IdleTimeout(timeout));
                }
                self.idle_timer.set(Some(self.arm(timeout - idle, CarriedTimer::Idle)));
            }
        }
    }

    #[inline]
    pub(crate) fn send(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        if self.is_closing.get() {
            return Err(SendError::Closed);
        }
        self.last_active.set(self.core.now_ms());
        let len: usize = parts.iter().map(|part| part.len()).sum();
        let tick = self.core.counters.ticks.get();
        let (last, sent) = self.burst.get();
        self.burst.set((tick, if last == tick { sent + len } else { len }));
        self.carrier.send_within(parts, self.options.queue_limit)
    }

    pub(crate) fn poll_send(&self, parts: [&[u8]; 3], context: &Context<'_>) -> Poll<Result<(), SendError>> {
        match self.poll_send_ready(context) {
            Poll::Ready(Ok(())) => Poll::Ready(self.send(parts)),
            other => other,
        }
    }

    pub(crate) fn poll_send_ready(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        /// What tasks send in one tick before others have their turn.
        const SENT_IN_TICK_MAX: usize = 1 << 20;
        if self.is_closing.get() {
            return Poll::Ready(Err(SendError::Closed));
        }
        let (last, sent) = self.burst.get();
        if sent >= SENT_IN_TICK_MAX && last == self.core.counters.ticks.get() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.carrier.queued() < self.options.high_water {
            return Poll::Ready(Ok(()));
        }
        self.wait(context)
    }

    pub(crate) fn poll_flushed(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        if self.carrier.queued() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.is_closed.get() {
            return Poll::Ready(Err(SendError::Closed));
        }
        if !self.carrier.is_datagram() || self.carrier.port().is_blocked() {
            return self.wait(context);
        }
        // It leaves at the end of the tick, which nobody tells.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    fn wait(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        Poll::Pending
    }

    pub(crate) fn queued(&self) -> usize {
        self.carrier.queued()
    }

    pub(crate) fn close_with(&self, reason: CloseReason) {
        if self.is_closing.replace(true) {
            return;
        }
        self.closing.replace(Some(reason));
        if self.carrier.begin_close() {
            return self.list_closed();
        }
        self.close_timer.set(Some(self.arm(self.options.close_timeout, CarriedTimer::Close)));
    }

    pub(crate) fn shut_down(&self) {
        if !self.is_closing.get() {
            self.call(|protocol, connection| protocol.on_shutdown(connection));
        }
    }

    /// Ends it at once.
    pub fn abort(&self, reason: CloseReason) {
        self.close_now(reason);
    }

    fn close_now(&self, reason: CloseReason) {
        self.is_closing.set(true);
        self.closing.borrow_mut().get_or_insert(reason);
        self.list_closed();
    }

    fn list_closed(&self) {
        if !self.is_closed.replace(true) {
            self.core.udp.closed.borrow_mut().extend(self.this.upgrade());
        }
    }

    pub(crate) fn shutdown_write(&self) {
        self.carrier.shutdown_write();
    }

    pub(crate) fn set_paused(&self, paused: bool) {
        self.is_paused.set(paused);
        self.carrier.set_paused(paused);
    }

    pub(crate) fn set_timer(&self, delay: Option<Duration>) {
        if let Some(key) = self.protocol_timer.take() {
            self.core.cancel_timer(key);
        }
        self.protocol_timer.set(delay.map(|delay| self.arm(delay, CarriedTimer::Protocol)));
    }

    /// Neither over nor told to be.
    pub fn is_open(&self) -> bool {
        !self.is_closing.get()
    }

    pub(crate) fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.carrier.port().with_socket(look)
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        Some(self.carrier.peer())
    }

    pub(crate) fn is_datagram(&self) -> bool {
        self.carrier.is_datagram()
    }

    /// Tells the end. No handler is running now.
    pub(crate) fn reap(&self) {
        for timer in [&self.idle_timer, &self.close_timer, &self.protocol_timer] {
            if let Some(key) = timer.take() {
                self.core.cancel_timer(key);
            }
        }
        self.core.udp.carried.borrow_mut().try_remove(self.place);
        let waiting = self.waiting.take();
        waiting.into_iter().for_each(Waker::wake);
        let reason = self.closing.take().unwrap_or(CloseReason::Local);
        self.call(|protocol, connection| protocol.on_closed(connection, &reason));
        self.carrier.forget();
        let protocol = self.protocol.take();
        if let Err(message) = guarded(|| drop(protocol)) {
            self.core.note_panic(&message);
        }
    }
}

impl fmt::Debug for Carried {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Carried").field("peer", &self.carrier.peer()).finish_non_exhaustive()
    }
}
