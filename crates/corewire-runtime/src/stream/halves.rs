//! The two directions of a stream.

use std::future::poll_fn;
use std::io::{self, IoSlice, IoSliceMut};
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};

use super::Ends;
use super::inbox::Inbox;
use crate::conn::{Connection, Waiter};

/// The most that one write takes: what is larger is taken in steps, so that a slow peer holds the writer back.
const WRITE_MAX: usize = 256 * 1024;

/// The reading half of a [`Stream`](super::Stream).
#[derive(Debug)]
pub struct ReadHalf {
    ends: Rc<Ends>,
    inbox: Rc<Inbox>,
    /// What was lent out by `fill_buf` and not consumed: before all that is in the inbox.
    lent: Bytes,
}

impl ReadHalf {
    pub(super) const fn new(ends: Rc<Ends>, inbox: Rc<Inbox>) -> Self {
        Self { ends, inbox, lent: Bytes::new() }
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.ends.connection
    }

    pub(super) async fn opened(&self) -> io::Result<()> {
        poll_fn(|context| self.inbox.poll_opened(context)).await
    }

    /// See [`Stream::recv`](super::Stream::recv).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn recv(&mut self) -> io::Result<Option<Bytes>> {
        if !self.lent.is_empty() {
            return Ok(Some(std::mem::take(&mut self.lent)));
        }
        poll_fn(|context| self.inbox.poll_chunk(&self.ends.connection, context)).await
    }

    /// See [`Stream::read`](super::Stream::read).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read_slice(context, buffer)).await
    }

    /// See [`Stream::read_vectored`](super::Stream::read_vectored).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        poll_fn(|context| self.poll_read_slices(context, buffers)).await
    }

    /// See [`Stream::peek`](super::Stream::peek).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| {
            let (lent, rest) = buffer.split_at_mut(self.lent.len().min(buffer.len()));
            lent.copy_from_slice(&self.lent[..lent.len()]);
            if lent.is_empty() {
                return self.inbox.poll_peek(context, rest);
            }
            Poll::Ready(Ok(lent.len() + self.inbox.peek(rest)))
        })
        .await
    }

    /// See [`Stream::read_exact`](super::Stream::read_exact).
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer finished before; or the connection is lost.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let mut read = ReadExact { half: self, buffer, filled: 0 };
        poll_fn(|context| read.poll(context)).await
    }

    pub(super) fn poll_read_slice(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        let mut filled = 0;
        self.poll_read_with(context, buffer.len(), |piece| {
            buffer[filled..filled + piece.len()].copy_from_slice(piece);
            filled += piece.len();
        })
    }

    pub(super) fn poll_read_slices(
        &mut self,
        context: &mut Context<'_>,
        buffers: &mut [IoSliceMut<'_>],
    ) -> Poll<io::Result<usize>> {
        let room = buffers.iter().map(|buffer| buffer.len()).sum();
        let (mut buffers, mut filled) = (buffers.iter_mut(), 0);
        let mut buffer: &mut [u8] = &mut [];
        self.poll_read_with(context, room, |mut piece| {
            while !piece.is_empty() {
                if filled == buffer.len() {
                    let Some(next) = buffers.next() else { return };
                    (buffer, filled) = (next, 0);
                }
                let step = piece.len().min(buffer.len() - filled);
                buffer[filled..filled + step].copy_from_slice(&piece[..step]);
                (piece, filled) = (&piece[step..], filled + step);
            }
        })
    }

    pub(super) fn poll_fill_buf(&mut self, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        if self.lent.is_empty() {
            // Nothing at the end.
            self.lent = ready!(self.inbox.poll_chunk(&self.ends.connection, context))?.unwrap_or_default();
        }
        Poll::Ready(Ok(&self.lent))
    }

    pub(super) fn consume(&mut self, bytes: usize) {
        self.lent.advance(bytes.min(self.lent.len()));
        if self.lent.is_empty() {
            // The block may be received into again.
            self.lent = Bytes::new();
        }
    }

    pub(super) fn poll_read_with(
        &mut self,
        context: &mut Context<'_>,
        room: usize,
        mut take: impl FnMut(&[u8]),
    ) -> Poll<io::Result<usize>> {
        if !self.lent.is_empty() {
            let step = room.min(self.lent.len());
            take(&self.lent[..step]);
            self.consume(step);
            return Poll::Ready(Ok(step));
        }
        self.inbox.poll_read(&self.ends.connection, context, room, take)
    }
}

/// A read that takes all or nothing: what it has taken goes back when it is dropped before it is done, or fails.
struct ReadExact<'a> {
    half: &'a mut ReadHalf,
    buffer: &'a mut [u8],
    filled: usize,
}

impl ReadExact<'_> {
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.filled < self.buffer.len() {
            match ready!(self.half.poll_read_slice(context, &mut self.buffer[self.filled..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
                read => self.filled += read,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for ReadExact<'_> {
    fn drop(&mut self) {
        if self.filled < self.buffer.len() {
            self.half.inbox.put_back(&self.buffer[..self.filled], &self.half.ends.connection);
        }
    }
}

/// The writing half of a [`Stream`](super::Stream). Dropping it half-closes the connection.
#[derive(Debug)]
pub struct WriteHalf {
    writer: Writer,
    /// Of the task that polls it by a trait; futures have one of their own.
    waiter: Waiter,
}

#[derive(Debug)]
struct Writer {
    ends: Rc<Ends>,
    inbox: Rc<Inbox>,
}

impl WriteHalf {
    pub(super) const fn new(ends: Rc<Ends>, inbox: Rc<Inbox>) -> Self {
        Self { writer: Writer { ends, inbox }, waiter: Waiter::new() }
    }

    /// See [`Stream::write`](super::Stream::write).
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiter = Waiter::new();
        poll_fn(|context| self.writer.poll_write(&mut waiter, context, bytes)).await
    }

    /// See [`Stream::write_vectored`](super::Stream::write_vectored).
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut waiter = Waiter::new();
        poll_fn(|context| self.writer.poll_write_vectored(&mut waiter, context, slices)).await
    }

    /// See [`Stream::write_all`](super::Stream::write_all).
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written = self.write(bytes).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// See [`Stream::send_bytes`](super::Stream::send_bytes).
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        let Writer { ends, inbox } = &self.writer;
        let sent = match ends.connection.send_ready().await {
            Ok(()) => ends.connection.send_bytes(bytes),
            Err(error) => Err(error),
        };
        sent.map_err(|_| inbox.error())
    }

    /// See [`Stream::flush`](super::Stream::flush).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        let flushed = self.writer.ends.connection.flushed().await;
        flushed.map_err(|_| self.writer.inbox.error())
    }

    /// See [`Stream::shutdown`](super::Stream::shutdown).
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.begin_shutdown();
        self.flush().await
    }

    pub(super) fn connection(&self) -> &Connection {
        &self.writer.ends.connection
    }

    pub(super) fn error(&self) -> io::Error {
        self.writer.inbox.error()
    }

    pub(super) fn begin_shutdown(&self) {
        self.writer.ends.connection.shutdown_write();
    }

    pub(super) fn poll_write_slice(
        &mut self,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writer.poll_write(&mut self.waiter, context, bytes)
    }

    pub(super) fn poll_write_slices(
        &mut self,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writer.poll_write_vectored(&mut self.waiter, context, slices)
    }

    /// What was written leaves at the end of the tick at the latest, unless the connection is lost.
    #[cfg(feature = "hyper")]
    pub(super) fn poll_queued(&self) -> Poll<io::Result<()>> {
        let Writer { ends, inbox } = &self.writer;
        Poll::Ready(if ends.connection.is_open() { Ok(()) } else { Err(inbox.error()) })
    }

    pub(super) fn poll_flushed(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Self { writer, waiter } = self;
        writer.ends.connection.poll_flushed(waiter, context).map_err(|_| writer.inbox.error())
    }
}

impl Drop for WriteHalf {
    fn drop(&mut self) {
        self.begin_shutdown();
    }
}

impl Writer {
    fn poll_room(&self, waiter: &mut Waiter, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.ends.connection.poll_send_ready(waiter, context).map_err(|_| self.inbox.error())
    }

    fn poll_write(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(waiter, context))?;
        let step = &bytes[..bytes.len().min(WRITE_MAX)];
        let sent = self.ends.connection.send(step).map(|()| step.len());
        Poll::Ready(sent.map_err(|_| self.inbox.error()))
    }

    fn poll_write_vectored(
        &self,
        waiter: &mut Waiter,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_room(waiter, context))?;
        let mut written = 0;
        // Together, so that a head and a long body behind it leave by one call.
        for group in slices.chunks(3) {
            let (mut parts, before): ([&[u8]; 3], usize) = ([&[]; 3], written);
            for (part, slice) in parts.iter_mut().zip(group) {
                *part = &slice[..slice.len().min(WRITE_MAX - written)];
                written += part.len();
            }
            if self.ends.connection.send_parts(parts).is_err() {
                // What was taken before is queued: say so now, the error comes with the next write.
                return Poll::Ready(if before > 0 { Ok(before) } else { Err(self.inbox.error()) });
            }
            if written == WRITE_MAX {
                break;
            }
        }
        Poll::Ready(Ok(written))
    }
}
