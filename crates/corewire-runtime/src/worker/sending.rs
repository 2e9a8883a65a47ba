//! The sending side: queues, write-through of large messages, flushes, waiting senders.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use bytes::Bytes;
use corewire_driver::{Driver, Token};

use super::Core;
use crate::conn::{BufferPool, CloseReason, Conn, SLICES_MAX};
use crate::error::SendError;
use crate::stats::Counters;

/// A message of at least this size goes to the kernel straight from the caller's memory if nothing stands in its
/// way: copying it to a queue would cost a tenth of the whole exchange.
const WRITE_THROUGH_MIN: usize = 16 * 1024;

/// A queue that grows to this size within a tick is flushed at once, while it is in cache, in pieces of just this size:
/// what one TCP segment of the loopback device (and of segmentation offload) holds, 64 KiB less the headers. A few
/// bytes more would travel in a segment of their own.
pub(crate) const FLUSH_AT: usize = 65_483;

/// What tasks may send on one connection in one tick before they are made to let others have a turn: enough for the
/// kernel to be busy with, little enough for the peer to find it in cache.
const BURST_MAX: usize = 2 * FLUSH_AT;

impl Core {
    #[inline]
    pub(crate) fn send(&self, token: Token, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let mut conns = self.conns.borrow_mut();
        let conn = conns.get_mut(token).ok_or(SendError::Closed)?;
        if append_to_dirty(conn, parts) {
            return Ok(());
        }
        if !conn.takes_sends() || conn.out.len() >= conn.options.queue_limit {
            return Err(refuse(conn));
        }
        self.send_on(conn, parts)
    }

    /// Takes the parts into the queue, or hands them to the kernel when they are many.
    fn send_on(&self, conn: &mut Conn, parts: [&[u8]; 3]) -> Result<(), SendError> {
        let total = parts[0].len() + parts[1].len() + parts[2].len();
        if total >= WRITE_THROUGH_MIN && !conn.is_stuck() {
            return self.write_through(conn, parts);
        }
        conn.out.reserve(total, &mut self.pool.borrow_mut());
        for part in parts {
            conn.out.append(part);
        }
        self.queued(conn);
        Ok(())
    }

    /// Sends the parts if the queue is below its high-water mark, else remembers whom to wake.
    #[inline]
    pub(crate) fn poll_send(
        &self,
        token: Token,
        parts: [&[u8]; 3],
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(token).filter(|conn| conn.takes_sends()) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if self.has_had_its_turn(conn) {
            return self.wait_for_next_tick(context);
        }
        if append_to_dirty(conn, parts) {
            return Poll::Ready(Ok(()));
        }
        if conn.out.len() >= conn.options.high_water {
            wait(conn, context);
            return Poll::Pending;
        }
        Poll::Ready(self.send_on(conn, parts))
    }

    #[inline]
    fn has_had_its_turn(&self, conn: &Conn) -> bool {
        conn.burst >= BURST_MAX && conn.burst_tick == self.counters.ticks.get()
    }

    /// Keeps account of what a connection sends in a tick.
    #[inline]
    fn note_sent(&self, conn: &mut Conn, sent: usize) {
        let tick = self.counters.ticks.get();
        if conn.burst_tick != tick {
            (conn.burst_tick, conn.burst) = (tick, 0);
        }
        conn.burst += sent;
        conn.last_active = self.now_ms();
    }

    #[cold]
    fn wait_for_next_tick(&self, context: &Context<'_>) -> Poll<Result<(), SendError>> {
        // The tick resets the account.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    pub(crate) fn send_framed(
        &self,
        token: Token,
        head: &[u8],
        payload: Bytes,
        suffix: &[u8],
    ) -> Result<(), SendError> {
        let mut conns = self.conns.borrow_mut();
        let conn = conns.get_mut(token).ok_or(SendError::Closed)?;
        if !conn.takes_sends() || conn.out.len() >= conn.options.queue_limit {
            return Err(refuse(conn));
        }
        {
            let pool = &mut *self.pool.borrow_mut();
            conn.out.push_slice(head, pool);
            conn.out.push_bytes(payload, pool);
            conn.out.push_slice(suffix, pool);
        }
        self.queued(conn);
        Ok(())
    }

    /// The queue has grown: whole segments leave now, the rest at the end of the tick.
    #[inline]
    fn queued(&self, conn: &mut Conn) {
        if conn.out.len() >= FLUSH_AT && !conn.is_stuck() {
            self.flush_segments(conn);
        }
        if !conn.dirty {
            self.mark_dirty(conn);
        }
        if conn.out.len() >= conn.options.high_water {
            self.note_high_water(conn);
        }
    }

    fn mark_dirty(&self, conn: &mut Conn) {
        if !conn.dirty && !conn.is_stuck() && !conn.out.is_empty() {
            conn.dirty = true;
            self.dirty.borrow_mut().push(conn.token);
        }
    }

    #[cold]
    fn note_high_water(&self, conn: &mut Conn) {
        conn.over_high_water = true;
        if conn.options.pause_receive_on_backlog && !conn.paused_by_backlog {
            conn.paused_by_backlog = true;
            self.driver.borrow_mut().pause_receive(conn.token);
        }
    }

    /// Sends what is queued and then `parts`; only what the socket does not take of them is copied.
    fn write_through(&self, conn: &mut Conn, parts: [&[u8]; 3]) -> Result<(), SendError> {
        if !conn.out.is_empty() {
            self.flush_now(conn);
        }
        let mut sent = 0;
        if conn.out.is_empty() && conn.closing.is_none() {
            let slices = parts.map(IoSlice::new);
            let slices = if parts[0].is_empty() && parts[2].is_empty() { &slices[1..2] } else { &slices[..] };
            let whole = parts[0].len() + parts[1].len() + parts[2].len();
            match self.to_kernel(&mut self.driver.borrow_mut(), conn.token, slices) {
                Ok(taken) => {
                    self.note_sent(conn, taken);
                    (sent, conn.blocked) = (taken, taken < whole);
                }
                Err(error) => self.doom(conn, CloseReason::Io(error)),
            }
        }
        if conn.closing.is_some() {
            return Err(SendError::Closed);
        }
        let pool = &mut *self.pool.borrow_mut();
        for part in parts {
            let skip = sent.min(part.len());
            sent -= skip;
            if skip < part.len() {
                conn.out.push_slice(&part[skip..], pool);
            }
        }
        self.mark_dirty(conn);
        if conn.out.len() >= conn.options.high_water {
            self.note_high_water(conn);
        }
        Ok(())
    }

    fn flush_segments(&self, conn: &mut Conn) {
        let (driver, pool) = (&mut *self.driver.borrow_mut(), &mut *self.pool.borrow_mut());
        while conn.out.len() >= FLUSH_AT && !conn.blocked {
            if !self.flush_once(conn, driver, pool, FLUSH_AT) {
                return;
            }
        }
        self.flushed(conn, driver);
    }

    fn flush_now(&self, conn: &mut Conn) {
        self.flush_conn(conn, &mut self.driver.borrow_mut(), &mut self.pool.borrow_mut());
    }

    /// One send of what is queued (and more only while the queue has more slices than one call takes).
    pub(crate) fn flush_conn(&self, conn: &mut Conn, driver: &mut Driver, pool: &mut BufferPool) {
        while !conn.out.is_empty() && !conn.blocked {
            if !self.flush_once(conn, driver, pool, usize::MAX) {
                return;
            }
        }
        self.flushed(conn, driver);
    }

    /// One send of up to `most` bytes; `false` when the connection is lost.
    #[inline]
    fn flush_once(&self, conn: &mut Conn, driver: &mut Driver, pool: &mut BufferPool, most: usize) -> bool {
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        let (count, total) = conn.out.fill(&mut slices, most);
        match self.to_kernel(driver, conn.token, &slices[..count]) {
            Ok(sent) => {
                self.note_sent(conn, sent);
                conn.blocked = sent < total;
                conn.out.advance(sent, pool);
                true
            }
            Err(error) => {
                self.doom(conn, CloseReason::Io(error));
                false
            }
        }
    }

    /// Hands slices to the kernel and keeps account.
    #[inline]
    fn to_kernel(&self, driver: &mut Driver, token: Token, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let sent = driver.send(token, slices)?;
        Counters::add(&self.counters.sends, 1);
        Counters::add(&self.counters.sent_bytes, sent as u64);
        Ok(sent)
    }

    /// After a flush: lets waiting senders and a paused receive go on, and ends what waited for an empty queue.
    fn flushed(&self, conn: &mut Conn, driver: &mut Driver) {
        if conn.over_high_water && conn.out.len() <= conn.options.low_water {
            conn.over_high_water = false;
            if !std::mem::replace(&mut conn.drained, true) {
                self.drained.borrow_mut().push(conn.token);
            }
            if std::mem::take(&mut conn.paused_by_backlog) && !conn.paused_by_user {
                driver.resume_receive(conn.token);
            }
        }
        if !conn.waiting.is_empty() && conn.out.len() <= conn.options.low_water {
            conn.waiting.drain(..).for_each(std::task::Waker::wake);
        }
        if !conn.out.is_empty() {
            return;
        }
        if conn.shut_write
            && let Some(socket) = driver.socket(conn.token)
        {
            // It fails only if the connection is gone, which the receiving side reports.
            let _ = socket.shutdown(std::net::Shutdown::Write);
        }
        if conn.closing.is_some() {
            self.list_doomed(conn);
        }
    }

    /// The end of the tick: one send for each connection that has something to send.
    pub(crate) fn flush_dirty(&self) {
        if self.dirty.borrow().is_empty() {
            return;
        }
        let mut dirty = std::mem::take(&mut *self.dirty.borrow_mut());
        {
            let mut conns = self.conns.borrow_mut();
            let mut driver = self.driver.borrow_mut();
            let mut pool = self.pool.borrow_mut();
            dirty.retain(|&token| {
                // What an abort or a panic leaves in the queue is dropped with it.
                let Some(conn) = conns.get_mut(token).filter(|conn| !conn.doomed) else { return false };
                if self.has_had_its_turn(conn) && conn.out.len() < FLUSH_AT && conn.takes_sends() {
                    // Its sender goes on in the next tick: the rest leaves with what comes then.
                    return true;
                }
                conn.dirty = false;
                self.flush_conn(conn, &mut driver, &mut pool);
                false
            });
        }
        // Nothing was added meanwhile: no user code runs in a flush. Keep the memory.
        *self.dirty.borrow_mut() = dirty;
    }

    /// The driver says that the socket takes bytes again.
    pub(crate) fn writable(&self, token: Token) {
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(token) else { return };
        conn.blocked = false;
        self.flush_now(conn);
    }

    #[inline]
    pub(crate) fn poll_send_ready(
        &self,
        token: Token,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(token).filter(|conn| conn.takes_sends()) else {
            return Poll::Ready(Err(SendError::Closed));
        };
        if self.has_had_its_turn(conn) {
            return self.wait_for_next_tick(context);
        }
        // An empty queue has room whatever the mark is: nothing would wake the sender.
        if conn.out.len() < conn.options.high_water || conn.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        wait(conn, context);
        Poll::Pending
    }

    pub(crate) fn poll_flushed(
        &self,
        token: Token,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), SendError>> {
        let mut conns = self.conns.borrow_mut();
        let Some(conn) = conns.get_mut(token) else { return Poll::Ready(Err(SendError::Closed)) };
        if conn.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        wait(conn, context);
        Poll::Pending
    }
}

/// The common case of a send: the connection is to be flushed anyway, and the message fits its buffer.
#[inline]
fn append_to_dirty(conn: &mut Conn, parts: [&[u8]; 3]) -> bool {
    if !conn.dirty || !conn.takes_sends() {
        return false;
    }
    let total = parts[0].len() + parts[1].len() + parts[2].len();
    conn.out.try_append(parts, total, conn.append_max)
}

#[cold]
fn refuse(conn: &Conn) -> SendError {
    if !conn.takes_sends() {
        return SendError::Closed;
    }
    SendError::QueueFull { queued: conn.out.len(), limit: conn.options.queue_limit }
}

fn wait(conn: &mut Conn, context: &Context<'_>) {
    if !conn.waiting.iter().any(|waker| waker.will_wake(context.waker())) {
        conn.waiting.push(context.waker().clone());
    }
}
