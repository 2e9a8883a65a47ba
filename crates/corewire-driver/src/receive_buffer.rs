//! Receiving into pooled buffers.

use std::io;
use std::os::fd::AsFd;

use bytes::{BufMut, Bytes};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::buffer_pool::BufferPool;

/// Receives into one block that stays hot in cache: while nobody keeps a piece of it, every receive lands at its
/// start. Pieces that are kept push the next receive further on, and in the end onto another block.
#[derive(Debug)]
pub(crate) struct ReceiveBuffer {
    pool: BufferPool,
}

impl ReceiveBuffer {
    /// Below this much room a block is left for another: a receive into a nearly full block would cut large
    /// messages into small pieces.
    const ROOM_MIN: usize = 32 * 1024;

    pub(crate) fn new(block_size: usize) -> Self {
        Self { pool: BufferPool::new(block_size) }
    }

    /// Receives once, at most `max` bytes (1 at least). `Ok(None)`: nothing there now.
    ///
    /// The flag says that the room was filled, so that there may be more to receive.
    #[inline]
    pub(crate) fn receive(&mut self, socket: impl AsFd, max: usize) -> io::Result<Option<(Bytes, bool)>> {
        let block = self.pool.room(Self::ROOM_MIN);
        let room = block.spare_capacity_mut();
        let room_len = room.len().min(max);
        let room = &mut room[..room_len];
        let received = loop {
            match recv(&socket, &mut *room, RecvFlags::DONTWAIT) {
                Ok((received, _)) => break received.0.len(),
                Err(Errno::AGAIN) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        };
        // SAFETY: the kernel has written `received` bytes to the front of the spare capacity.
        unsafe { block.advance_mut(received) };
        Ok(Some((block.split().freeze(), received == room_len)))
    }
}
