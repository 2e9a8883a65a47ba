//! Blocks that sockets are received into.

use std::io;
use std::os::fd::AsFd;

use bytes::{BufMut, Bytes, BytesMut};
use rustix::net::{RecvFlags, recv};

/// Receives into one block that stays hot in cache: while nobody keeps a piece of it, every receive lands at its
/// start. Pieces that are kept push the next receive further on, and in the end onto another block.
#[derive(Debug)]
pub(crate) struct Arena {
    block: BytesMut,
    block_size: usize,
    /// Blocks of which pieces were still in use when they were left, the latest last.
    retired: Vec<BytesMut>,
}

impl Arena {
    /// Below this much room a block is left for another: a receive into a nearly full block would cut large
    /// messages into small pieces.
    const ROOM_MIN: usize = 32 * 1024;
    /// Blocks remembered for use again; beyond this the oldest is freed with its last piece.
    const RETIRED_MAX: usize = 16;

    pub(crate) fn new(block_size: usize) -> Self {
        Self { block: BytesMut::new(), block_size, retired: Vec::new() }
    }

    /// Receives once, as much as there is room for. `Ok(None)`: nothing there now.
    ///
    /// The flag says that the block was filled, so that there may be more to receive.
    #[inline]
    pub(crate) fn receive(&mut self, socket: impl AsFd) -> io::Result<Option<(Bytes, bool)>> {
        self.make_room();
        let room = self.block.spare_capacity_mut();
        let room_len = room.len();
        let received = match recv(socket, room, RecvFlags::empty()) {
            Ok((received, _)) => received.0.len(),
            Err(rustix::io::Errno::AGAIN) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        // SAFETY: the kernel has written `received` bytes to the front of the spare capacity.
        unsafe { self.block.advance_mut(received) };
        Ok(Some((self.block.split_to(received).freeze(), received == room_len)))
    }

    #[inline]
    fn make_room(&mut self) {
        if self.block.try_reclaim(self.block_size) || self.block.capacity() >= Self::ROOM_MIN {
            return;
        }
        self.change_block();
    }

    #[cold]
    fn change_block(&mut self) {
        let size = self.block_size;
        let free = self.retired.iter_mut().rposition(|block| block.try_reclaim(size));
        let next = match free {
            Some(at) => self.retired.remove(at),
            None => BytesMut::with_capacity(size),
        };
        let left = std::mem::replace(&mut self.block, next);
        if left.capacity() == 0 && self.retired.is_empty() {
            return;
        }
        if self.retired.len() == Self::RETIRED_MAX {
            self.retired.remove(0);
        }
        self.retired.push(left);
    }
}
