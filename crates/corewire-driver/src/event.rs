//! What a driver tells its owner.

use std::io;

use bytes::Bytes;

use crate::socket::Socket;

/// Names one socket of one driver. Never names another socket later: a token that is out of date is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token {
    pub(crate) index: u32,
    /// 24 bits, so that a token and an operation fit the 64 bits that the kernel carries for us.
    pub(crate) generation: u32,
}

impl Token {
    pub(crate) const GENERATION_BITS: u32 = 24;
    pub(crate) const GENERATION_MASK: u32 = (1 << Self::GENERATION_BITS) - 1;

    /// A small number, unique among the sockets that are open now: an index for tables kept beside the driver's.
    pub const fn index(self) -> usize {
        self.index as usize
    }
}

/// Something that happened to a socket.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A listener accepted a connection. The socket is non-blocking and close-on-exec.
    Accepted {
        /// The listener.
        listener: Token,
        /// The new connection, not yet watched by any driver.
        socket: Socket,
    },
    /// A listener could not accept because a resource is short (open files, memory). It backs off until
    /// [`resume_accept`](crate::Driver::resume_accept); connections wait in its backlog meanwhile, unless they are
    /// refused ([`refuse_waiting`](crate::Driver::refuse_waiting)).
    AcceptFailed {
        /// The listener.
        listener: Token,
        /// What the kernel said: `EMFILE`, `ENFILE`, `ENOBUFS`, `ENOMEM` or something unforeseen.
        error: io::Error,
    },
    /// Bytes arrived. Never empty. The driver uses the block again once every handle on it is dropped, so keep
    /// one only as long as it is needed.
    Received {
        /// The connection.
        token: Token,
        /// What arrived, in a pooled block.
        data: Bytes,
    },
    /// The peer will send nothing more (it closed, or closed its sending half).
    ReadClosed {
        /// The connection.
        token: Token,
    },
    /// After a short [`send`](crate::Driver::send): the socket takes bytes again.
    Writable {
        /// The connection.
        token: Token,
    },
    /// A connection begun by [`connect`](crate::Driver::connect) is established; it receives from now on.
    Connected {
        /// The connection.
        token: Token,
    },
    /// A datagram socket has datagrams (or an error) to receive. Told once: receive until there is nothing more, or
    /// call [`read_again`](crate::Driver::read_again).
    DatagramReadable {
        /// The socket.
        token: Token,
    },
    /// After [`set_write_interest`](crate::Driver::set_write_interest): the datagram socket takes datagrams again.
    DatagramWritable {
        /// The socket.
        token: Token,
    },
    /// After [`watch`](crate::Driver::watch): a descriptor of the user's own is ready, or has an error that a call on it
    /// tells.
    Ready {
        /// The descriptor.
        token: Token,
        /// Reading does not block now. False if that was not asked for.
        readable: bool,
        /// Writing does not block now. False if that was not asked for.
        writable: bool,
    },
    /// The connection is lost (reset, refused, timed out by the kernel, …). Close it.
    Failed {
        /// The connection.
        token: Token,
        /// What the kernel said.
        error: io::Error,
    },
}

/// What [`watch`](crate::Driver::watch) is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interest {
    /// That there is something to read, or an end.
    Readable,
    /// That there is room to write.
    Writable,
}
