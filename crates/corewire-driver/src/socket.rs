//! The socket of this crate's interface, and its addresses.

use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A socket as drivers take it: always non-blocking and close-on-exec.
///
/// This crate makes them ([`net`](crate::net), [`udp::open`](crate::udp::open)); others become one by
/// [`from_fd`](Self::from_fd). Dropping it closes it.
#[derive(Debug)]
pub struct Socket(socket2::Socket);

impl Socket {
    /// Takes a socket that was made elsewhere, and makes it non-blocking and close-on-exec.
    ///
    /// ```
    /// use corewire_driver::Socket;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let stream = TcpStream::connect(listener.local_addr()?)?;
    /// let socket = Socket::from_fd(stream.into())?;
    /// assert_eq!(socket.peer_addr()?.as_socket(), Some(listener.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    ///
    /// # Errors
    /// The descriptor is no socket (`ENOTSOCK`), or the system refuses its mode.
    pub fn from_fd(fd: OwnedFd) -> io::Result<Self> {
        let socket = socket2::Socket::from(fd);
        // Only a socket has a type.
        socket.r#type()?;
        socket.set_nonblocking(true)?;
        socket.set_cloexec(true)?;
        crate::sys::stream::prepare(&socket)?;
        Ok(Self(socket))
    }

    /// One that is non-blocking and close-on-exec already.
    pub(crate) const fn trusted(socket: socket2::Socket) -> Self {
        Self(socket)
    }

    pub(crate) const fn inner(&self) -> &socket2::Socket {
        &self.0
    }

    /// Another handle on the same socket, with the same options.
    ///
    /// # Errors
    /// The process has no descriptor left (`EMFILE`).
    pub fn try_clone(&self) -> io::Result<Self> {
        self.0.try_clone().map(Self)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// The system does not tell.
    pub fn local_addr(&self) -> io::Result<Address> {
        Address::new(&self.0.local_addr()?)
    }

    /// The address of the peer.
    ///
    /// # Errors
    /// The socket is not connected (`ENOTCONN`).
    pub fn peer_addr(&self) -> io::Result<Address> {
        Address::new(&self.0.peer_addr()?)
    }

    /// Ends one direction of a connection, or both.
    ///
    /// # Errors
    /// The socket is not connected (`ENOTCONN`).
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how)
    }

    /// Closing it resets the connection from now on; see
    /// [`StreamOptions::reset_on_close`](crate::net::StreamOptions::reset_on_close).
    ///
    /// # Errors
    /// The system refuses it.
    pub fn set_reset_on_close(&self) -> io::Result<()> {
        self.0.set_linger(Some(Duration::ZERO))
    }

    /// `TCP_NODELAY`: small sends leave at once (Nagle's algorithm is off).
    ///
    /// # Errors
    /// It is no TCP socket.
    pub fn no_delay(&self) -> io::Result<bool> {
        self.0.tcp_nodelay()
    }

    /// `SO_SNDBUF` in bytes.
    ///
    /// # Errors
    /// The system refuses the size.
    pub fn set_send_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_send_buffer_size(bytes)
    }

    /// `SO_RCVBUF` in bytes.
    ///
    /// # Errors
    /// The system refuses the size.
    pub fn set_recv_buffer_size(&self, bytes: usize) -> io::Result<()> {
        self.0.set_recv_buffer_size(bytes)
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Socket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl From<Socket> for OwnedFd {
    fn from(socket: Socket) -> Self {
        socket.0.into()
    }
}

/// The address of a socket.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Address {
    /// An internet address.
    Internet(SocketAddr),
    /// A Unix-domain path, empty for a socket without one; one that begins with `@` is abstract (Linux).
    Unix(PathBuf),
}

impl Address {
    fn new(address: &socket2::SockAddr) -> io::Result<Self> {
        if let Some(address) = address.as_socket() {
            return Ok(Self::Internet(address));
        }
        if !address.is_unix() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "the socket has an unknown kind of address",
            ));
        }
        let path = address.as_pathname().map(Path::to_owned).or_else(|| {
            let name = address.as_abstract_namespace()?;
            Some(format!("@{}", String::from_utf8_lossy(name)).into())
        });
        Ok(Self::Unix(path.unwrap_or_default()))
    }

    /// The internet address, if it is one.
    pub const fn as_socket(&self) -> Option<SocketAddr> {
        match self {
            Self::Internet(address) => Some(*address),
            Self::Unix(_) => None,
        }
    }

    /// The Unix-domain path, if it is one.
    pub fn as_path(&self) -> Option<&Path> {
        match self {
            Self::Internet(_) => None,
            Self::Unix(path) => Some(path),
        }
    }
}
