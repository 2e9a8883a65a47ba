//! Streams on Apple's systems: no flag of a send keeps the signal away, and none of an accept sets the modes.

use std::io;

use rustix::io::Errno;
use rustix::net::SendFlags;

/// Of each send: it does not wait. The signal is kept away by [`prepare`].
pub(crate) const SEND_FLAGS: SendFlags = SendFlags::DONTWAIT;

/// A connection that is gone raises no signal (`SO_NOSIGPIPE`).
pub(crate) fn prepare(socket: &socket2::Socket) -> io::Result<()> {
    socket.set_nosigpipe(true)
}

/// One connection.
pub(crate) fn accept(listener: &socket2::Socket) -> rustix::io::Result<socket2::Socket> {
    let accepted = socket2::Socket::from(rustix::net::accept(listener)?);
    let is_prepared = accepted
        .set_nonblocking(true)
        .and_then(|()| accepted.set_cloexec(true))
        .and_then(|()| prepare(&accepted));
    // A connection that its peer has reset meanwhile takes no option: it is passed over.
    is_prepared.map(|()| accepted).map_err(|_| Errno::CONNABORTED)
}
