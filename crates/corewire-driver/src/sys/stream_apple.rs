//! Streams on Apple's systems: no flag of a send keeps the signal away, and none of an accept sets the modes.

use std::io;

use rustix::io::Errno;
use rustix::net::SendFlags;

use crate::socket::Socket;

/// Of each send: it does not wait. The signal is kept away by [`prepare`].
pub(crate) const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT;

/// A connection that is gone raises no signal (`SO_NOSIGPIPE`).
pub(crate) fn prepare(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_nosigpipe(true)
}

/// One connection.
pub(crate) fn accept(listener: &Socket) -> rustix::io::Result<Socket> {
    let accepted = rustix::net::accept(listener)?;
    // A connection that its peer has reset meanwhile takes no option: it is passed over.
    Socket::from_fd(accepted).map_err(|_| Errno::CONNABORTED)
}
