//! Streams where the flags of a call say all that is needed: Linux, the BSDs.

use std::io;

use rustix::net::{SendFlags, SocketFlags};

/// Of each send: it does not wait, and a connection that is gone raises no signal.
pub(crate) const SEND_FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// Nothing is needed.
#[expect(clippy::unnecessary_wraps, reason = "other systems ask the kernel")]
pub(crate) const fn prepare(_: &socket2::Socket) -> io::Result<()> {
    Ok(())
}

/// One connection, in one system call.
pub(crate) fn accept(listener: &socket2::Socket) -> rustix::io::Result<socket2::Socket> {
    let accepted = rustix::net::accept_with(listener, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC)?;
    Ok(accepted.into())
}
