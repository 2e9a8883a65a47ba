//! The sending side: queues, write-through of large messages, flushes, waiting senders.

use std::fs::File;
use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_driver::{Driver, Token};

use super::Core;
use crate::conn::{
    Backlog, BufferPool, CloseReason, Conn, ConnId, Flush, PauseSet, SEGMENT_BYTES, SLICES_MAX, State,
    Waiter, WaitsFor,
};
use crate::error::SendError;
use crate::stats::Counters;
use crate::transport::Transport;

/// A message of at least this size is handed over straight from the caller's memory if nothing stands in its
/// way: copying it to a queue would cost a tenth of the whole exchange.
const WRITE_THROUGH_MIN: usize = 16 * 1024;

impl Core {
    #[inline]
    pub(crate) fn send(&self, id: ConnId, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let mut conns = self.conns.table.borrow_mut();
        let conn = conns.get_mut(id).ok_or(SendError::Closed)?;
        if conn.out.append(parts) {
            return Ok(());
        }
        if !conn.state.takes_sends() || conn.out.len() >= conn.options.queue_limit {
            return Err(refuse(conn));
        }
        self.send_on(conn, parts)
    }

    /// Takes the parts into the queue, or hands them over when they are many.
    fn send_on(&self, conn: &mut Conn, parts: [&[u8]; 3]) -> Result<(), SendError> {
        if conn.transport.is_datagram() {
            return self.send_datagram(conn, parts);
        }
        let total = parts[0].len() + parts[1].len() + parts[2].len();
        if total >= WRITE_THROUGH_MIN && !conn.is_stuck() {
            return self.write_through(conn, parts);
        }
        conn.out.push_parts(parts, &mut self.senders.pool.borrow_mut());
        self.queued(conn);
        if conn.flush == Flush::Listed {
            // It leaves with what is sent in this tick, and takes small messages without a further look.
            conn.out.open_room(conn.append_max as usize);
        }
        Ok(())
    }

    /// Sends the parts if the queue is below its high-water mark, else remembers whom to wake.
    #[inline(always)]
    pub(crate) fn poll_send(
        &self,
        id: ConnId,
        parts: [&[u8]; 3],
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id) else { return Poll::Ready(Err(SendError::Closed)) };
        if !self.is_quota_used(conn) && conn.out.append(parts) {
            return Poll::Ready(Ok(()));
        }
        self.poll_send_on(conn, parts, waiter, context)
    }

    #[inline(never)]
    fn poll_send_on(
        &self,
        conn: &mut Conn,
        parts: [&[u8]; 3],
        waiter: &mut Waiter,
        context: &Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        if !conn.state.takes_sends() {
            return Poll::Ready(Err(SendError::Closed));
        }
        if self.is_quota_used(conn) {
            return self.wait_for_next_tick(context);
        }
        if !self.has_room(conn) {
            return self.wait(conn, waiter, context);
        }
        Poll::Ready(self.send_on(conn, parts))
    }

    #[inline]
    fn is_quota_used(&self, conn: &Conn) -> bool {
        conn.tick_quota == 0 && conn.sent_tick == self.counters.ticks.get() as u32
    }

    /// The queue is below its high-water mark. An empty one has room whatever the mark is: nothing would wake the sender.
    #[inline]
    fn has_room(&self, conn: &Conn) -> bool {
        let queued = self.queued_on(conn);
        queued < conn.options.high_water || queued == 0
    }

    /// Bytes that wait to be handed over; of a datagram socket, those of all its peers.
    #[inline]
    pub(crate) fn queued_on(&self, conn: &Conn) -> usize {
        match &conn.transport {
            Transport::UdpPeer(_) => self.udp.queued(conn.transport.socket()),
            Transport::Tls(_) => conn.out.len() + conn.transport.unsent(),
            Transport::Socket(_) | Transport::Kcp(_) => conn.out.len(),
        }
    }

    /// Keeps account of what a connection sends in a tick.
    #[inline]
    pub(super) fn note_sent(&self, conn: &mut Conn, sent: usize) {
        if sent == 0 {
            return;
        }
        let tick = self.counters.ticks.get() as u32;
        if conn.sent_tick != tick {
            (conn.sent_tick, conn.tick_quota) = (tick, conn.transport.sent_in_tick_max());
        }
        conn.tick_quota = conn.tick_quota.saturating_sub(u32::try_from(sent).unwrap_or(u32::MAX));
        conn.deadlines.sent += sent;
        conn.last_active = self.timers.now_ms();
    }

    #[cold]
    fn wait_for_next_tick(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        // The tick resets the account.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    pub(crate) fn send_framed(
        &self,
        id: ConnId,
        head: &[u8],
        payload: Bytes,
        suffix: &[u8],
    ) -> Result<(), SendError> {
        let mut conns = self.conns.table.borrow_mut();
        let conn = conns.get_mut(id).ok_or(SendError::Closed)?;
        if !conn.state.takes_sends() || conn.out.len() >= conn.options.queue_limit {
            return Err(refuse(conn));
        }
        if conn.transport.is_datagram() {
            return self.send_datagram(conn, [head, &payload, suffix]);
        }
        {
            let pool = &mut *self.senders.pool.borrow_mut();
            conn.out.push_slice(head, pool);
            conn.out.push_bytes(payload, pool);
            conn.out.push_slice(suffix, pool);
        }
        self.queued(conn);
        Ok(())
    }

    /// What the queue holds of those that cannot be sent at once is charged to the connection.
    #[inline]
    fn charge_queue(&self, conn: &mut Conn) {
        let held = conn.out.held();
        if held > 0 || conn.account.is_some() {
            self.memory.account(conn).set_send_queue(held);
        }
    }

    /// The queue has grown: whole segments leave now, the rest at the end of the tick.
    #[inline]
    fn queued(&self, conn: &mut Conn) {
        if conn.out.len() >= SEGMENT_BYTES && !conn.is_stuck() {
            self.flush_segments(conn);
        }
        if conn.flush == Flush::Idle {
            self.senders.mark_dirty(conn);
        }
        if conn.is_stuck() {
            self.charge_queue(conn);
        }
        if conn.out.len() >= conn.options.high_water {
            self.note_high_water(conn);
        }
    }

    #[cold]
    fn note_high_water(&self, conn: &mut Conn) {
        conn.backlog = Backlog::Over;
        if conn.options.pause_receive_on_backlog {
            self.pause_conn(conn, PauseSet::BACKLOG, &mut self.driver.borrow_mut());
        }
    }

    /// Sends what is queued and then `parts`; only what the socket does not take of them is copied.
    fn write_through(&self, conn: &mut Conn, parts: [&[u8]; 3]) -> Result<(), SendError> {
        if !conn.out.is_empty() {
            self.flush_now(conn);
        }
        let mut sent = 0;
        if conn.out.is_empty() && conn.state.is_active() {
            let slices = parts.map(IoSlice::new);
            let slices = if parts[0].is_empty() && parts[2].is_empty() { &slices[1..2] } else { &slices[..] };
            let whole = parts[0].len() + parts[1].len() + parts[2].len();
            match conn.transport.write(self, &mut self.driver.borrow_mut(), slices) {
                Ok(taken) => {
                    self.note_sent(conn, taken);
                    sent = taken;
                    if taken < whole || conn.transport.unsent() > 0 {
                        conn.flush = Flush::Blocked;
                    }
                }
                Err(error) => self.close_now(conn, CloseReason::Io(error)),
            }
        }
        if !conn.state.is_active() {
            return Err(SendError::Closed);
        }
        let pool = &mut *self.senders.pool.borrow_mut();
        for part in parts {
            let skip = sent.min(part.len());
            sent -= skip;
            if skip < part.len() {
                conn.out.push_slice(&part[skip..], pool);
            }
        }
        self.senders.mark_dirty(conn);
        self.charge_queue(conn);
        if conn.out.len() >= conn.options.high_water {
            self.note_high_water(conn);
        }
        Ok(())
    }

    fn flush_segments(&self, conn: &mut Conn) {
        let (driver, pool) = (&mut *self.driver.borrow_mut(), &mut *self.senders.pool.borrow_mut());
        while conn.out.len() >= SEGMENT_BYTES && conn.flush != Flush::Blocked {
            if !self.flush_once(conn, driver, pool, SEGMENT_BYTES) {
                return;
            }
        }
        self.flushed(conn, driver);
    }

    fn flush_now(&self, conn: &mut Conn) {
        self.flush_conn(conn, &mut self.driver.borrow_mut(), &mut self.senders.pool.borrow_mut());
    }

    /// One send of what is queued (and more only while the queue has more slices than one call takes).
    pub(crate) fn flush_conn(&self, conn: &mut Conn, driver: &mut Driver, pool: &mut BufferPool) {
        if conn.transport.is_tls() && !self.flush_transport(conn, driver) {
            return;
        }
        while !conn.out.is_empty() && conn.flush != Flush::Blocked {
            if !self.flush_once(conn, driver, pool, usize::MAX) {
                return;
            }
        }
        self.flushed(conn, driver);
    }

    /// Sends what the transport has from before; whether what is queued may follow.
    fn flush_transport(&self, conn: &mut Conn, driver: &mut Driver) -> bool {
        match conn.transport.flush(self, driver) {
            Ok(true) => !conn.state.is_connecting(),
            Ok(false) => {
                conn.flush = Flush::Blocked;
                false
            }
            Err(error) => {
                self.close_now(conn, CloseReason::Io(error));
                false
            }
        }
    }

    /// One send of up to `most` bytes; `false` when the connection is lost.
    #[inline]
    fn flush_once(&self, conn: &mut Conn, driver: &mut Driver, pool: &mut BufferPool, most: usize) -> bool {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, total) = conn.out.fill(&mut slices, most);
        match conn.transport.write(self, driver, &slices[..count]) {
            Ok(sent) => {
                self.note_sent(conn, sent);
                if sent < total || conn.transport.unsent() > 0 {
                    conn.flush = Flush::Blocked;
                }
                conn.out.advance(sent, pool);
                true
            }
            Err(error) => {
                self.close_now(conn, CloseReason::Io(error));
                false
            }
        }
    }

    /// Hands slices to the kernel and keeps account.
    #[inline]
    pub(crate) fn write_to_socket(
        &self,
        driver: &mut Driver,
        socket: Token,
        slices: &[IoSlice<'_>],
    ) -> io::Result<usize> {
        let sent = driver.send(socket, slices)?;
        Counters::add(&self.counters.sends, 1);
        Counters::add(&self.counters.sent_bytes, sent as u64);
        Ok(sent)
    }

    /// After a flush: lets waiting senders and a paused receive go on, and ends what waited for an empty queue.
    pub(super) fn flushed(&self, conn: &mut Conn, driver: &mut Driver) {
        let queued = self.queued_on(conn);
        let is_low = queued <= conn.options.low_water;
        self.charge_queue(conn);
        if conn.backlog == Backlog::Over && is_low {
            self.senders.note_drained(conn);
            self.resume_conn(conn, PauseSet::BACKLOG, driver);
        }
        if !conn.waiters.is_empty() && is_low {
            conn.waiters.take_into(&mut self.senders.woken.borrow_mut());
        }
        if queued > 0 {
            return;
        }
        match conn.state {
            State::Open { .. } => self.finish_write(conn, driver),
            State::Draining(_) => self.finish_draining(conn, driver),
            State::Connecting { .. } | State::Closed { .. } => {}
        }
    }

    /// The end of the tick: one send for each connection that has something to send.
    pub(crate) fn flush_dirty(&self) {
        if self.senders.dirty.borrow().is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut *self.senders.dirty.borrow_mut());
        {
            let mut conns = self.conns.table.borrow_mut();
            let mut driver = self.driver.borrow_mut();
            let mut pool = self.senders.pool.borrow_mut();
            dirty.retain(|&id| {
                // What an abort or a panic leaves in the queue is dropped with it.
                let listed = |conn: &&mut Conn| conn.flush == Flush::Listed && !conn.state.is_closed();
                let Some(conn) = conns.get_mut(id).filter(listed) else { return false };
                if self.is_quota_used(conn) && conn.out.len() < SEGMENT_BYTES && conn.state.takes_sends() {
                    // Its sender goes on in the next tick: the rest leaves with what comes then.
                    return true;
                }
                conn.flush = Flush::Idle;
                self.flush_conn(conn, &mut driver, &mut pool);
                false
            });
        }
        // Nothing was added meanwhile: no user code runs in a flush. Keep the memory.
        *self.senders.dirty.borrow_mut() = dirty;
    }

    /// Sends what one connection has queued now: its turn is over, and others have theirs before the end of the tick.
    pub(super) fn flush_one(&self, id: ConnId) {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id).filter(|conn| !conn.state.is_closed()) else { return };
        if conn.flush == Flush::Listed {
            self.flush_now(conn);
        }
    }

    /// A socket takes bytes again.
    pub(crate) fn socket_writable(&self, socket: Token) {
        let id = self.conns.with_socket(socket, |conn| conn.id);
        id.into_iter().for_each(|id| self.writable(id));
    }

    /// A transport takes bytes again.
    pub(crate) fn writable(&self, id: ConnId) {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id).filter(|conn| !conn.state.is_closed()) else { return };
        if conn.flush == Flush::Blocked {
            conn.flush = Flush::Idle;
        }
        self.flush_now(conn);
    }

    #[inline]
    pub(crate) fn poll_send_ready(
        &self,
        id: ConnId,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id).filter(|conn| conn.state.takes_sends()) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if self.is_quota_used(conn) {
            return self.wait_for_next_tick(context);
        }
        if self.has_room(conn) {
            return Poll::Ready(Ok(()));
        }
        self.wait(conn, waiter, context)
    }

    pub(crate) fn poll_flushed(
        &self,
        id: ConnId,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id) else { return Poll::Ready(Err(SendError::Closed)) };
        if self.queued_on(conn) == 0 {
            return Poll::Ready(Ok(()));
        }
        self.wait(conn, waiter, context)
    }

    pub(crate) fn poll_send_file(
        &self,
        id: ConnId,
        (file, offset, len): (&File, u64, usize),
        waiter: &mut Waiter,
        context: &mut Context<'_>,
    ) -> Poll<Result<usize, Option<io::Error>>> {
        let mut conns = self.conns.table.borrow_mut();
        let Some(conn) = conns.get_mut(id).filter(|conn| conn.state.takes_sends()) else {
            return Poll::Ready(Err(None));
        };
        if self.is_quota_used(conn) {
            return self.wait_for_next_tick(context).map(|_| Err(None));
        }
        if !conn.out.is_empty() && !conn.is_stuck() {
            self.flush_now(conn);
        }
        if !conn.state.takes_sends() {
            return Poll::Ready(Err(None));
        }
        if !conn.out.is_empty() || conn.is_stuck() {
            return self.wait(conn, waiter, context).map(|_| Err(None));
        }
        let Transport::Socket(socket) = conn.transport else {
            return Poll::Ready(Err(Some(io::ErrorKind::Unsupported.into())));
        };
        let sent = self.driver.borrow_mut().send_file(socket, file, offset, len);
        match sent {
            Ok(sent) => {
                Counters::add(&self.counters.sends, 1);
                Counters::add(&self.counters.sent_bytes, sent as u64);
                self.note_sent(conn, sent);
                Poll::Ready(Ok(sent))
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                conn.flush = Flush::Blocked;
                self.wait(conn, waiter, context).map(|_| Err(None))
            }
            // If it is the connection's, the receiving side tells it too.
            Err(error) => Poll::Ready(Err(Some(error))),
        }
    }

    fn wait(
        &self,
        conn: &mut Conn,
        waiter: &mut Waiter,
        context: &Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        waiter.wait(self.id(), WaitsFor::Connection(conn.id), &mut conn.waiters, context.waker());
        self.follow_socket(conn);
        Poll::Pending
    }
}

#[cold]
fn refuse(conn: &Conn) -> SendError {
    if !conn.state.takes_sends() {
        return SendError::Closed;
    }
    SendError::QueueFull { queued: conn.out.len(), limit: conn.options.queue_limit }
}
