//! Files on systems whose calls to send them differ: read and sent.

use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use crate::net;
use crate::socket::Socket;

const PIECE: usize = 64 * 1024;

/// Sends part of a file. `WouldBlock`: the socket takes nothing now; 0: the file has ended.
pub(crate) fn send(socket: &Socket, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
    let mut piece = vec![0; len.min(PIECE)];
    let read = rustix::io::pread(file, &mut piece, offset)?;
    if read == 0 {
        return Ok(0);
    }
    match net::send(socket, &[IoSlice::new(&piece[..read])])? {
        0 => Err(io::ErrorKind::WouldBlock.into()),
        sent => Ok(sent),
    }
}

/// There is no way to ask.
pub(crate) const fn is_cached(_: BorrowedFd<'_>, _: u64) -> bool {
    false
}
