//! The handle on a connection.

use std::fmt;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::Socket;

use super::deadlines::FrameProgress;
use super::options::ConnectionOptions;
use super::reason::CloseReason;
use super::state::PauseSet;
use super::table::ConnId;
use super::waiters::Waiter;
use crate::error::SendError;
use crate::memory::{Charge, MemoryKind};
use crate::protocol::Protocol;
use crate::secured::TlsInfo;
use crate::transport::tls::{ClientTls, ServerName, ServerTls};
use crate::worker::Core;

/// A handle on a connection of this worker. Cheap to clone; outliving the connection it does no harm.
#[derive(Clone)]
pub struct Connection {
    pub(crate) core: Rc<Core>,
    pub(crate) id: ConnId,
}

impl Connection {
    /// Hands a connected socket to the current worker.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open(socket: Socket, options: Rc<ConnectionOptions>, protocol: impl Protocol) -> io::Result<Self> {
        Core::current_or_panic("Connection::open").open(socket, options, Box::new(protocol), false)
    }

    /// Hands a socket whose connect was begun to the current worker: [`Protocol::on_open`] follows, or
    /// [`Protocol::on_closed`] with the error.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open_connecting(
        socket: Socket,
        options: Rc<ConnectionOptions>,
        protocol: impl Protocol,
    ) -> io::Result<Self> {
        Core::current_or_panic("Connection::open_connecting").open(socket, options, Box::new(protocol), true)
    }

    /// Hands an accepted socket whose peer speaks TLS to the current worker: [`Protocol::on_open`] follows when the handshake
    /// is done, or [`Protocol::on_closed`] if it fails.
    ///
    /// # Errors
    /// The kernel refuses the socket, or the configuration cannot be used.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open_tls(
        socket: Socket,
        tls: &ServerTls,
        options: Rc<ConnectionOptions>,
        protocol: impl Protocol,
    ) -> io::Result<Self> {
        Core::current_or_panic("Connection::open_tls").open_tls(socket, tls, options, Box::new(protocol))
    }

    /// As [`open_connecting`](Self::open_connecting), over TLS with the server of this name: [`Protocol::on_open`] follows
    /// when the handshake is done.
    ///
    /// # Errors
    /// The kernel refuses the socket, or the configuration cannot be used.
    ///
    /// # Panics
    /// Outside a worker.
    pub fn open_connecting_tls(
        socket: Socket,
        tls: &ClientTls,
        name: ServerName,
        options: Rc<ConnectionOptions>,
        protocol: impl Protocol,
    ) -> io::Result<Self> {
        let core = Core::current_or_panic("Connection::open_connecting_tls");
        core.connect_tls(socket, tls, name, options, Box::new(protocol))
    }

    /// What was agreed on in the handshake, of a connection over TLS that is established.
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.core.conns.with(self.id, |conn| conn.transport.tls_info()).flatten()
    }

    /// Sends bytes: they are copied to the queue and leave at the end of the tick, or at once when they are many.
    ///
    /// # Errors
    /// The connection is closed, or its queue is at the limit; nothing was taken.
    #[inline]
    pub fn send(&self, bytes: &[u8]) -> Result<(), SendError> {
        self.core.send(self.id, [bytes, &[], &[]])
    }

    /// Sends three pieces as one: a header, a payload and what follows it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn send_parts(&self, parts: [&[u8]; 3]) -> Result<(), SendError> {
        self.core.send(self.id, parts)
    }

    /// Sends bytes that are shared instead of copied (when they are more than a few KiB).
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_bytes(&self, bytes: Bytes) -> Result<(), SendError> {
        self.core.send_framed(self.id, &[], bytes, &[])
    }

    /// Sends a header, a payload and what follows it as one: all of it or nothing, and in one datagram where the
    /// connection has those. Header and suffix are copied; the payload is shared when it is more than a few KiB.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_framed(&self, head: &[u8], payload: Bytes, suffix: &[u8]) -> Result<(), SendError> {
        self.core.send_framed(self.id, head, payload, suffix)
    }

    /// [`poll_send_ready`](Self::poll_send_ready) and [`send_parts`](Self::send_parts) in one.
    ///
    /// # Errors
    /// The connection is closed; nothing was taken.
    #[inline(always)]
    pub fn poll_send(
        &self,
        parts: [&[u8]; 3],
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.core.poll_send(self.id, parts, waiter, context)
    }

    /// Ready when the queue is below its high-water mark. Wakes the task when it has fallen to the low-water mark.
    ///
    /// A task that sends without end is made to wait once in a while even so, so that others get their turn.
    ///
    /// `waiter` belongs to the future that waits: dropped with it, it takes the waker back.
    ///
    /// # Errors
    /// The connection is closed.
    #[inline]
    pub fn poll_send_ready(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.core.poll_send_ready(self.id, waiter, context)
    }

    /// Waits until [`poll_send_ready`](Self::poll_send_ready) is.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send_ready(&self) -> Result<(), SendError> {
        let mut waiter = Waiter::new();
        poll_fn(|context| self.poll_send_ready(&mut waiter, context)).await
    }

    /// Ready when the kernel has taken all that was queued.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn poll_flushed(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        self.core.poll_flushed(self.id, waiter, context)
    }

    /// Waits until the kernel has taken all that was queued.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn flushed(&self) -> Result<(), SendError> {
        let mut waiter = Waiter::new();
        poll_fn(|context| self.poll_flushed(&mut waiter, context)).await
    }

    /// Sends part of a file behind all that is queued, and says how many bytes; 0 at its end. `None` for an error: the
    /// connection is closed.
    pub(crate) fn poll_send_file(
        &self,
        file: &File,
        offset: u64,
        len: usize,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Option<io::Error>>> {
        self.core.poll_send_file(self.id, (file, offset, len), waiter, context)
    }

    /// Bytes queued to send (of a datagram socket, those of all its peers); within [`Protocol::on_closed`] those that were not sent.
    pub fn queued(&self) -> usize {
        self.core
            .conns
            .with(self.id, |conn| self.core.queued_on(conn))
            .unwrap_or_else(|| self.core.conns.unsent_at_end(self.id))
    }

    /// Counts `bytes` as held for the peer of this connection while the returned value lives. To be called for whatever
    /// is kept of what the peer sent, by what it occupies: a small slice of a receive block occupies the whole block.
    ///
    /// Nothing is refused here. When the connections of a worker hold too much, those that hold most are paused, new ones
    /// are refused, and in the end those that hold most are closed; see
    /// [`Builder::memory_limit`](crate::Builder::memory_limit).
    pub fn charge(&self, kind: MemoryKind, bytes: usize) -> Charge {
        Charge::new(self.core.account(self.id), kind, bytes)
    }

    /// Closes once what is queued has been sent. What the peer still sends is not received.
    pub fn close(&self) {
        self.close_with(CloseReason::Local);
    }

    /// Closes once what is queued has been sent, giving the reason that [`Protocol::on_closed`] gets.
    pub fn close_with(&self, reason: CloseReason) {
        self.core.begin_close(self.id, reason);
    }

    /// Calls [`Protocol::on_shutdown`]. Does nothing from within a call of this connection's own protocol.
    pub fn shut_down(&self) {
        self.core.call_shutdown(self.id);
    }

    /// Closes at once; what is queued is dropped.
    pub fn abort(&self, reason: CloseReason) {
        self.core.abort(self.id, reason);
    }

    /// Tells the peer, once what is queued has been sent, that nothing more follows; receiving goes on. While the
    /// connection is being established this waits for it. The peer of a datagram socket is not told: there is no way to.
    pub fn shutdown_write(&self) {
        self.core.shutdown_write(self.id);
    }

    /// Receives nothing until [`resume_receive`](Self::resume_receive); the peer is held back by its full window. The
    /// peer's end is told then too, but that the connection is lost ends it at once. Datagrams that come meanwhile are
    /// dropped, and counted in [`WorkerStats::datagrams_dropped`](crate::WorkerStats).
    pub fn pause_receive(&self) {
        self.core.pause(self.id, PauseSet::USER);
    }

    /// Receives again.
    pub fn resume_receive(&self) {
        self.core.resume(self.id, PauseSet::USER);
    }

    /// Counts a frame of so many bytes that was decoded and handled, and says whether to decode the next one now. False
    /// when the connection has used its quota of this turn, is paused for whatever reason, or closes: what is left of the
    /// input goes to [`defer`](Self::defer). Costs next to nothing.
    #[inline]
    pub fn frame_done(&self, bytes: usize) -> bool {
        match self.core.turns.quota.frame_done(bytes) {
            Ok(()) => true,
            Err(debt) => self.core.next_piece(self.id, debt),
        }
    }

    /// Hands back what [`Protocol::on_received`] was given and did not decode. The connection keeps it and calls with it
    /// again, before anything newer: after others have had their turns, and not while it is paused. If it was empty, the
    /// call is too. What is left of a datagram is dropped and counted: the next one stands for itself.
    pub fn defer(&self, rest: Bytes) {
        self.core.defer(self.id, rest);
    }

    /// Bytes that were received and wait to be decoded.
    pub fn deferred(&self) -> usize {
        self.core.deferred(self.id)
    }

    /// Calls [`Protocol::on_timer`] after `delay`; `None` cancels it. There is one timer a connection.
    pub fn set_timer(&self, delay: Option<Duration>) {
        self.core.set_protocol_timer(self.id, delay);
    }

    /// Tells how far the protocol is with what it receives, for the deadlines of the connection's options. To be called
    /// when it changes, which costs a look-up and reads no clock; never called, only the reader's rate is watched.
    pub fn set_progress(&self, progress: FrameProgress) {
        let now = self.core.timers.now_ms();
        self.core.conns.with(self.id, |conn| conn.deadlines.set_progress(progress, now));
    }

    /// The connection has neither ended nor been told to.
    pub fn is_open(&self) -> bool {
        self.core.conns.is_active(self.id)
    }

    /// Looks at the socket, for its addresses and options. `None` when the connection is gone. The closure may use
    /// the connection.
    pub fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.core.lend_socket(self.core.conns.socket_of(self.id)?, look)
    }

    /// The same for code of this crate.
    pub(crate) fn look_at_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.core.with_socket(self.core.conns.socket_of(self.id)?, look)
    }

    /// The peer's address; `None` on Unix-domain sockets and when the connection is gone.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.core.conns.with(self.id, |conn| conn.transport.peer_addr(&self.core.driver.borrow()))?
    }

    /// What is sent goes in datagrams, one for each send, and may be lost.
    pub fn is_datagram(&self) -> bool {
        self.core.conns.with(self.id, |conn| conn.transport.is_datagram()).unwrap_or(false)
    }

    /// The number of the worker's tick: how often its loop has turned.
    pub fn tick(&self) -> u64 {
        self.core.counters.ticks.get()
    }

    /// A number that changes whenever tasks run, perhaps more than once a tick: between two things that happen under the
    /// same one no task runs.
    #[inline]
    pub fn task_round(&self) -> u64 {
        self.core.tasks.round.get()
    }

    /// Milliseconds of this worker's clock, which is read once a tick.
    pub fn now_ms(&self) -> u64 {
        self.core.timers.now_ms()
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection")
            .field("worker", &self.core.id())
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
