//! Sockets before a driver watches them, and the system calls that both backends make in the same way.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::Path;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer};
use socket2::{Domain, Protocol, SockAddr, TcpKeepalive, Type};

use crate::socket::Socket;
use crate::sys::stream::{self, SEND_FLAGS};

/// Options of a connected stream. The default leaves all to the system but for Nagle's algorithm, which is off:
/// a tick already gathers what belongs together into one send.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StreamOptions {
    /// `TCP_NODELAY`; default true.
    pub no_delay: bool,
    /// `SO_KEEPALIVE` with this idle time before the first probe (and between probes); default off.
    pub keep_alive: Option<Duration>,
    /// `SO_RCVBUF` in bytes; default: the system tunes it.
    pub receive_buffer_size: Option<usize>,
    /// `SO_SNDBUF` in bytes; default: the system tunes it.
    pub send_buffer_size: Option<usize>,
    /// Closing resets the connection: what is queued and not acknowledged is lost, and the peer sees an error instead
    /// of the end (`SO_LINGER` of zero; with a time, closing would block the thread, so none can be set). Default false.
    pub reset_on_close: bool,
}

impl Default for StreamOptions {
    fn default() -> Self {
        Self {
            no_delay: true,
            keep_alive: None,
            receive_buffer_size: None,
            send_buffer_size: None,
            reset_on_close: false,
        }
    }
}

impl StreamOptions {
    /// Sets these options on a TCP or Unix socket (which takes only those that it has).
    ///
    /// # Errors
    /// What the kernel refuses.
    pub fn apply(&self, socket: &Socket) -> io::Result<()> {
        let socket = socket.inner();
        if socket.local_addr()?.domain() != Domain::UNIX {
            socket.set_tcp_nodelay(self.no_delay)?;
            if let Some(idle) = self.keep_alive {
                socket.set_tcp_keepalive(&TcpKeepalive::new().with_time(idle).with_interval(idle))?;
            }
        }
        if let Some(size) = self.receive_buffer_size {
            socket.set_recv_buffer_size(size)?;
        }
        if let Some(size) = self.send_buffer_size {
            socket.set_send_buffer_size(size)?;
        }
        if self.reset_on_close {
            socket.set_linger(Some(Duration::ZERO))?;
        }
        Ok(())
    }
}

/// Options of a listening socket.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Connections that wait to be accepted, at most (the system has a limit of its own); default 4,096.
    pub backlog: i32,
    /// `SO_REUSEADDR`; default true.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: several sockets listen on one port and the kernel spreads connections; default false.
    pub reuse_port: bool,
    /// `SO_RCVBUF` of the connections to come, in bytes; default: the system tunes it.
    pub receive_buffer_size: Option<usize>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self { backlog: 4096, reuse_address: true, reuse_port: false, receive_buffer_size: None }
    }
}

/// A listening TCP socket, non-blocking. An IPv6 socket takes IPv6 only, so that an IPv4 socket may share its port.
///
/// # Errors
/// What the kernel says: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, `EMFILE`, …
pub fn listen_tcp(address: SocketAddr, options: &ListenOptions) -> io::Result<Socket> {
    let socket = new_socket(Domain::for_address(address), Some(Protocol::TCP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_reuse_address(options.reuse_address)?;
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if let Some(size) = options.receive_buffer_size {
        socket.set_recv_buffer_size(size)?;
    }
    socket.bind(&address.into())?;
    socket.listen(options.backlog)?;
    Ok(Socket::trusted(socket))
}

/// A listening Unix-domain stream socket, non-blocking. A path that begins with `@` is abstract (Linux).
///
/// # Errors
/// What the kernel says: `EADDRINUSE` when the path exists, `EACCES`, `ENOENT`, …
pub fn listen_unix(path: &Path, options: &ListenOptions) -> io::Result<Socket> {
    let socket = new_socket(Domain::UNIX, None)?;
    socket.bind(&unix_address(path)?)?;
    socket.listen(options.backlog)?;
    Ok(Socket::trusted(socket))
}

/// Begins to connect to a TCP address. The socket is ready for [`Driver::add_connecting`](crate::Driver::connect).
///
/// # Errors
/// What the kernel says at once; what it says later comes as [`Event::Failed`](crate::Event::Failed).
pub fn connect_tcp(address: SocketAddr, options: &StreamOptions) -> io::Result<Socket> {
    let socket = Socket::trusted(new_socket(Domain::for_address(address), Some(Protocol::TCP))?);
    options.apply(&socket)?;
    begin_connect(socket, &reachable(address).into())
}

/// Begins to connect to a Unix-domain stream socket; see [`connect_tcp`].
///
/// # Errors
/// What the kernel says at once: `ENOENT`, `ECONNREFUSED`, …
pub fn connect_unix(path: &Path, options: &StreamOptions) -> io::Result<Socket> {
    let socket = Socket::trusted(new_socket(Domain::UNIX, None)?);
    options.apply(&socket)?;
    begin_connect(socket, &unix_address(path)?)
}

/// The any-address is an address to listen on; who connects to it means this machine.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => IpAddr::from([127, 0, 0, 1]),
            IpAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

fn begin_connect(socket: Socket, address: &SockAddr) -> io::Result<Socket> {
    match socket.inner().connect(address) {
        Ok(()) => Ok(socket),
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(socket),
        Err(error) => Err(error),
    }
}

fn unix_address(path: &Path) -> io::Result<SockAddr> {
    match path.to_str().and_then(|text| text.strip_prefix('@')) {
        // The kernel takes a name that begins with a zero byte for an abstract one.
        Some(name) => SockAddr::unix(format!("\0{name}")),
        None => SockAddr::unix(path),
    }
}

fn new_socket(domain: Domain, protocol: Option<Protocol>) -> io::Result<socket2::Socket> {
    // `Socket::new` sets close-on-exec.
    let socket = socket2::Socket::new(domain, Type::STREAM, protocol)?;
    socket.set_nonblocking(true)?;
    stream::prepare(&socket)?;
    Ok(socket)
}

/// Accepts one connection; `None` when none waits. A connection that died in the backlog is passed over.
pub(crate) fn accept(listener: &Socket) -> io::Result<Option<Socket>> {
    loop {
        match stream::accept(listener.inner()) {
            Ok(socket) => return Ok(Some(Socket::trusted(socket))),
            Err(Errno::AGAIN) => return Ok(None),
            Err(error) if is_passing_accept_error(error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Errors of a single connection (man accept(2), "Error handling"), not of the listener.
pub(crate) const fn is_passing_accept_error(error: Errno) -> bool {
    matches!(
        error,
        Errno::INTR
            | Errno::CONNABORTED
            | Errno::PROTO
            | Errno::NETDOWN
            | Errno::NOPROTOOPT
            | Errno::HOSTDOWN
            | Errno::HOSTUNREACH
            | Errno::OPNOTSUPP
            | Errno::NETUNREACH
            | Errno::PERM
    )
}

/// Sends what the socket takes now; 0 when it takes nothing.
#[inline]
pub(crate) fn send(socket: &Socket, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    loop {
        let sent = match slices {
            [one] => rustix::net::send(socket.as_fd(), one, SEND_FLAGS),
            _ => {
                let mut control = SendAncillaryBuffer::default();
                rustix::net::sendmsg(socket.as_fd(), slices, &mut control, SEND_FLAGS)
            }
        };
        match sent {
            Ok(sent) => return Ok(sent),
            Err(Errno::AGAIN) => return Ok(0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The error that the kernel keeps of a socket: how a connect that was begun has ended once the socket is writable, or how
/// a connection was lost.
pub(crate) fn take_error(socket: &Socket) -> io::Result<()> {
    match socket.inner().take_error()? {
        Some(error) => Err(error),
        None => Ok(()),
    }
}

/// All that the peer of a stream has sent was received, and it has ended; takes no bytes.
///
/// # Errors
/// The connection is lost, whatever is left of it.
pub(crate) fn is_at_end(socket: &Socket) -> io::Result<bool> {
    take_error(socket)?;
    match rustix::net::recv(socket.as_fd(), &mut [0; 1], RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, len)) => Ok(len == 0),
        Err(Errno::AGAIN | Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn not_open() -> io::Error {
    io::Error::new(io::ErrorKind::NotConnected, "the token names no open socket")
}
