//! Streams for tasks: TCP and Unix-domain sockets that are read and written with `await`.

mod futures_io;
mod halves;
#[cfg(feature = "hyper")]
mod hyper_io;
mod inbox;
mod listener;
mod send_file;
#[cfg(feature = "tokio-io")]
mod tokio_io;

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use corewire_driver::net::{StreamOptions, connect_tcp, connect_unix};
use corewire_driver::{Address, Socket, Token};

pub use self::halves::{ReadHalf, WriteHalf};
use self::inbox::{Inbox, InboxProtocol};
pub use self::listener::{TcpListener, UnixListener};
use crate::conn::{CloseReason, Connection, ConnectionOptions};
use crate::time::timeout;

/// Marks a [`Stream`] over TCP.
#[derive(Debug, Clone, Copy)]
pub enum Tcp {}

/// Marks a [`Stream`] over a Unix-domain socket.
#[derive(Debug, Clone, Copy)]
pub enum Unix {}

/// A TCP connection.
pub type TcpStream = Stream<Tcp>;

/// A Unix-domain stream connection.
pub type UnixStream = Stream<Unix>;

/// A connection that is read and written by tasks of its worker.
///
/// The connection owns its bytes: what arrives waits in a receive queue (up to 256 KiB, then the peer is held back; a slice
/// that keeps a receive block is in it twice at the most, all else is copied out of it),
/// what is written is copied to a send queue or handed to the kernel at once. So **any future of this type can be
/// dropped at any point without losing a byte**: a read that was dropped has taken nothing (a `read_exact` gives back what
/// it had), a write that was dropped before it was done has written nothing (a `write_all`, what it had written up to
/// then).
///
/// It implements `AsyncRead`, `AsyncBufRead` and `AsyncWrite` of futures-io, with the feature `tokio-io` those of tokio, and with the
/// feature `hyper` the `Read` and `Write` of hyper. Futures that
/// those crates add (`AsyncReadExt::read_exact`, …) are theirs: what a dropped one has taken is lost with it.
///
/// Dropping it closes the connection once what was written has been sent.
#[derive(Debug)]
pub struct Stream<K> {
    read: ReadHalf,
    write: WriteHalf,
    kind: PhantomData<K>,
}

impl Stream<Tcp> {
    /// Connects, with the default options and no limit of time but the kernel's.
    ///
    /// # Errors
    /// What the kernel says: refused, unreachable, timed out, …
    ///
    /// # Panics
    /// Outside a worker; so do all functions that make a stream or a listener.
    pub async fn connect(address: SocketAddr) -> io::Result<Self> {
        Self::connect_with(address, &StreamOptions::default()).await
    }

    /// Connects with options.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub async fn connect_with(address: SocketAddr, options: &StreamOptions) -> io::Result<Self> {
        Self::begin(connect_tcp(address, options)?).await
    }

    /// Connects to a name by [`lookup_host`](crate::lookup_host), or to a literal address: tries one address after the
    /// other until one answers. Give it a time by [`timeout`](crate::timeout); dropped, it ends the attempt.
    ///
    /// # Errors
    /// The name has no address, or what the kernel says of the last of them.
    pub async fn connect_host(name: &str, port: u16) -> io::Result<Self> {
        let mut last = io::ErrorKind::NotFound.into();
        for address in crate::lookup_host(name, port).await? {
            match Self::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// Makes a stream of a connected socket of the standard library, which becomes non-blocking.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn from_std(stream: std::net::TcpStream) -> io::Result<Self> {
        Self::from_fd(stream.into())
    }

    /// Connects within a time.
    ///
    /// # Errors
    /// As [`connect`](Self::connect), and `TimedOut`.
    pub async fn connect_timeout(address: SocketAddr, limit: Duration) -> io::Result<Self> {
        timeout(limit, Self::connect(address)).await?
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket_address(Socket::local_addr)
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// The connection is closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket_address(Socket::peer_addr)
    }

    fn socket_address(&self, ask: impl FnOnce(&Socket) -> io::Result<Address>) -> io::Result<SocketAddr> {
        let address = self.connection().look_at_socket(ask).ok_or(io::ErrorKind::NotConnected)??;
        address.as_socket().ok_or_else(|| io::Error::other("the socket has no internet address"))
    }
}

impl Stream<Unix> {
    /// Connects to a path; one that begins with `@` is abstract (Linux).
    ///
    /// # Errors
    /// What the kernel says: no such file, refused, …
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::begin(connect_unix(path.as_ref(), &StreamOptions::default())?).await
    }

    /// Makes a stream of a connected socket of the standard library, such as one half of a pair; it becomes non-blocking.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn from_std(stream: std::os::unix::net::UnixStream) -> io::Result<Self> {
        Self::from_fd(stream.into())
    }
}

impl<K> Stream<K> {
    async fn begin(socket: Socket) -> io::Result<Self> {
        let inbox = Rc::new(Inbox::default());
        let connection =
            Connection::open_connecting(socket, stream_options(), InboxProtocol::new(inbox.clone()))?;
        let stream = Self::new(connection, inbox);
        // Dropped while it waits, the stream ends the attempt.
        stream.read.opened().await?;
        Ok(stream)
    }

    fn from_fd(socket: OwnedFd) -> io::Result<Self> {
        Self::from_socket(Socket::from_fd(socket)?)
    }

    /// Makes a stream of a connected, non-blocking socket, such as one that a [`Listener`](crate::Listener) accepted.
    ///
    /// # Errors
    /// The kernel refuses the socket.
    pub fn from_socket(socket: Socket) -> io::Result<Self> {
        let inbox = Rc::new(Inbox::default());
        let connection = Connection::open(socket, stream_options(), InboxProtocol::new(inbox.clone()))?;
        Ok(Self::new(connection, inbox))
    }

    fn new(connection: Connection, inbox: Rc<Inbox>) -> Self {
        let ends = Rc::new(Ends { connection });
        Self {
            read: ReadHalf::new(ends.clone(), inbox.clone()),
            write: WriteHalf::new(ends, inbox),
            kind: PhantomData,
        }
    }

    /// The next bytes that have arrived, in the block that they arrived in: a handle on it that can be kept and
    /// shared without a copy. `None` when the peer has finished sending. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn recv(&mut self) -> io::Result<Option<Bytes>> {
        self.read.recv().await
    }

    /// Reads what has arrived, up to the length of `buffer`; 0 when the peer has finished sending. Dropped before it is
    /// done, it has taken nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.read(buffer).await
    }

    /// [`read`](Self::read) into several buffers, each filled before the next.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn read_vectored(&mut self, buffers: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.read.read_vectored(buffers).await
    }

    /// Copies what has arrived, up to the length of `buffer`, and leaves it to be read; 0 when the peer has finished
    /// sending. It waits until something is there, not for more. Dropping the future loses nothing.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn peek(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read.peek(buffer).await
    }

    /// Fills `buffer`. Dropped before it is done, it has taken nothing, whatever the length; what is in `buffer` then is
    /// of no use. The same after an error: what did arrive can still be read.
    ///
    /// # Errors
    /// `UnexpectedEof` when the peer finished before; or the connection is lost.
    pub async fn read_exact(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        self.read.read_exact(buffer).await
    }

    /// Queues bytes to send, waiting while the queue is over its high-water mark. Takes all of them, or up to 256 KiB
    /// of many, and says how many. Dropped before it is done, it has taken nothing.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write.write(bytes).await
    }

    /// [`write`](Self::write) from several slices.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        self.write.write_vectored(slices).await
    }

    /// Writes all bytes. Dropped before it is done, it has written the first of them, and nothing says how many: where that
    /// matters, use [`write`](Self::write).
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.write.write_all(bytes).await
    }

    /// Queues memory to send without copying it.
    ///
    /// # Errors
    /// The connection is closed.
    pub async fn send_bytes(&mut self, bytes: Bytes) -> io::Result<()> {
        self.write.send_bytes(bytes).await
    }

    /// Sends a range of a file behind what was written, without taking it to user space (`sendfile`; where there is none, by
    /// reading it). What is not in memory is read by a thread of [`spawn_blocking`](crate::spawn_blocking) first, 512 KiB at
    /// a time, so that the worker does not wait for the disk. The file's own position stays as it is, and the file must not
    /// be changed meanwhile: the peer gets what is there when it is sent.
    ///
    /// Dropped before it is done, it has sent the first bytes of the range, and nothing says how many: send in pieces where
    /// that matters. What is written afterwards follows whatever was sent.
    ///
    /// # Errors
    /// `UnexpectedEof` if the file ends before the range does (the part before was sent); the file cannot be read; the
    /// connection is lost.
    pub async fn send_file(&mut self, file: &File, range: Range<u64>) -> io::Result<()> {
        self.write.send_file(file, range).await
    }

    /// Waits until the kernel has taken all that was written.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn flush(&mut self) -> io::Result<()> {
        self.write.flush().await
    }

    /// Half-closes: the peer sees the end after all that was written; reading goes on.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn shutdown(&mut self) -> io::Result<()> {
        self.write.shutdown().await
    }

    /// Parts that two tasks can use at once. The connection closes when both are dropped; dropping the writing half
    /// half-closes it.
    pub fn into_split(self) -> (ReadHalf, WriteHalf) {
        (self.read, self.write)
    }

    /// The socket, for its options. It is a second descriptor ([`AsFd`](std::os::fd::AsFd)) that is closed when the
    /// closure returns: the driver keeps its own to itself, which may be closed while this handle lives.
    pub fn with_socket<R>(&self, look: impl FnOnce(&Socket) -> R) -> Option<R> {
        self.connection().with_socket(look)
    }

    pub(crate) fn poll_read_slice(
        &mut self,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.read.poll_read_slice(context, buffer)
    }

    fn connection(&self) -> &Connection {
        self.read.connection()
    }

    /// Closes at once and tells the peer by a reset; what is queued is dropped.
    pub fn abort(self) {
        self.connection().look_at_socket(|socket| {
            // Without the option the close is an ordinary one: nothing to do about it.
            let _ = socket.set_reset_on_close();
        });
        self.connection().abort(CloseReason::Local);
    }

    #[doc(hidden)]
    pub fn token(&self) -> Option<Token> {
        let connection = self.connection();
        connection.core.conns.socket_of(connection.id)
    }
}

/// Closes the connection when the last half is gone.
#[derive(Debug)]
struct Ends {
    connection: Connection,
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.connection.close();
    }
}

fn stream_options() -> Rc<ConnectionOptions> {
    thread_local! {
        static OPTIONS: Rc<ConnectionOptions> = Rc::new(ConnectionOptions {
            // A task decides for itself when it reads.
            pause_receive_on_backlog: false,
            ..ConnectionOptions::default()
        });
    }
    OPTIONS.with(Rc::clone)
}
