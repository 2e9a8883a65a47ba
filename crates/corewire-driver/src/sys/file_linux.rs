//! Files on Linux: sent by the kernel, and asked whether they are in memory.

use std::io::{self, IoSliceMut};
use std::os::fd::BorrowedFd;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use crate::socket::Socket;

/// Sends part of a file without taking it to user space. `WouldBlock`: the socket takes nothing now; 0: the file has ended.
pub(crate) fn send(socket: &Socket, file: BorrowedFd<'_>, mut offset: u64, len: usize) -> io::Result<usize> {
    loop {
        match rustix::fs::sendfile(socket, file, Some(&mut offset), len) {
            Err(Errno::INTR) => {}
            sent => return Ok(sent?),
        }
    }
}

/// A read of this byte would not wait for the disk, as far as the kernel tells.
pub(crate) fn is_cached(file: BorrowedFd<'_>, offset: u64) -> bool {
    preadv2(file, &mut [IoSliceMut::new(&mut [0])], offset, ReadWriteFlags::NOWAIT).is_ok()
}
