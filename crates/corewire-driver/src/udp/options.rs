//! Datagram sockets and their options.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Type};

use crate::socket::Socket;

/// Options of a datagram socket.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UdpOptions {
    /// `SO_RCVBUF` in bytes; default 8 MiB. The kernel may give less: see [`buffer_sizes`].
    pub receive_buffer_size: Option<usize>,
    /// `SO_SNDBUF` in bytes; default 2 MiB. The kernel may give less: see [`buffer_sizes`].
    pub send_buffer_size: Option<usize>,
    /// `SO_REUSEADDR`; default false. For several receivers of a multicast group on one port.
    pub reuse_address: bool,
    /// `SO_REUSEPORT`: several sockets share one port and the kernel spreads peers; default false.
    pub reuse_port: bool,
    /// Let the kernel join datagrams of one peer and size (GRO) where it can; default true.
    pub coalesce: bool,
    /// Join datagrams to one destination into one send (GSO) where the kernel can; default true.
    pub segment: bool,
    /// Tell the destination address and the interface of each datagram; default false.
    pub packet_info: bool,
    /// Tell the congestion mark of each datagram; default false.
    pub ecn: bool,
    /// Count datagrams that were dropped because the receive buffer was full (`SO_RXQ_OVFL`); default true.
    pub count_drops: bool,
    /// Allow sending to broadcast addresses; default false.
    pub broadcast: bool,
    /// An IPv6 socket takes IPv6 only, so that an IPv4 socket may share its port; default true.
    pub only_v6: bool,
}

impl Default for UdpOptions {
    fn default() -> Self {
        Self {
            receive_buffer_size: Some(8 << 20),
            send_buffer_size: Some(2 << 20),
            reuse_address: false,
            reuse_port: false,
            coalesce: true,
            segment: true,
            packet_info: false,
            ecn: false,
            count_drops: true,
            broadcast: false,
            only_v6: true,
        }
    }
}

/// What the kernel gives a socket's buffers, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferSizes {
    /// For what arrives.
    pub receive: usize,
    /// For what is sent.
    pub send: usize,
}

/// A bound datagram socket, non-blocking.
///
/// A buffer that the kernel makes smaller than asked for is told by a warning and by [`buffer_sizes`]; it is no error.
///
/// # Errors
/// What the kernel says: `EADDRINUSE`, `EACCES`, `EADDRNOTAVAIL`, `EMFILE`, …
pub fn open(address: SocketAddr, options: &UdpOptions) -> io::Result<Socket> {
    let socket = socket2::Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(options.only_v6)?;
    }
    if options.reuse_address {
        socket.set_reuse_address(true)?;
    }
    if options.reuse_port {
        socket.set_reuse_port(true)?;
    }
    if options.broadcast {
        socket.set_broadcast(true)?;
    }
    let socket = Socket::trusted(socket);
    set_buffers(&socket, options)?;
    platform::prepare(&socket, address.is_ipv6(), options)?;
    socket.inner().bind(&address.into())?;
    Ok(socket)
}

/// What the kernel gave. Linux reports twice the usable size; this is the usable one.
///
/// # Errors
/// The kernel does not tell.
pub fn buffer_sizes(socket: &Socket) -> io::Result<BufferSizes> {
    let share = if cfg!(target_os = "linux") { 2 } else { 1 };
    let socket = socket.inner();
    Ok(BufferSizes { receive: socket.recv_buffer_size()? / share, send: socket.send_buffer_size()? / share })
}

fn set_buffers(socket: &Socket, options: &UdpOptions) -> io::Result<()> {
    if let Some(size) = options.receive_buffer_size
        && platform::force_receive_buffer(socket, size).is_err()
    {
        socket.set_recv_buffer_size(size)?;
    }
    if let Some(size) = options.send_buffer_size
        && platform::force_send_buffer(socket, size).is_err()
    {
        socket.set_send_buffer_size(size)?;
    }
    let given = buffer_sizes(socket)?;
    for (what, wanted, given, limit) in [
        ("receive", options.receive_buffer_size, given.receive, "net.core.rmem_max"),
        ("send", options.send_buffer_size, given.send, "net.core.wmem_max"),
    ] {
        if let Some(wanted) = wanted.filter(|wanted| given < *wanted) {
            tracing::warn!(
                wanted,
                given,
                "the {what} buffer of a UDP socket is smaller than asked for: raise {limit}"
            );
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod platform {
    use super::{Socket, UdpOptions, io};
    use std::os::fd::AsRawFd;

    /// Beyond the system's limit, for those who may.
    pub(super) fn force_receive_buffer(socket: &Socket, size: usize) -> io::Result<()> {
        set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size.min(i32::MAX as usize / 2) as i32)
    }

    pub(super) fn force_send_buffer(socket: &Socket, size: usize) -> io::Result<()> {
        set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size.min(i32::MAX as usize / 2) as i32)
    }

    pub(super) fn prepare(socket: &Socket, v6: bool, options: &UdpOptions) -> io::Result<()> {
        if options.coalesce {
            // Before Linux 5.0 there is none: each datagram comes by itself.
            let _ = set(socket, libc::SOL_UDP, libc::UDP_GRO, 1);
        }
        if options.count_drops {
            set(socket, libc::SOL_SOCKET, libc::SO_RXQ_OVFL, 1)?;
        }
        if options.packet_info {
            match v6 {
                true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
                false => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
            }
        }
        if options.ecn {
            match v6 {
                true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?,
                false => set(socket, libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?,
            }
        }
        Ok(())
    }

    fn set(socket: &Socket, level: i32, name: i32, value: i32) -> io::Result<()> {
        let len = size_of::<i32>() as libc::socklen_t;
        // SAFETY: the value is an int that lives through the call, and the length is its length.
        let done =
            unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

#[cfg(not(target_os = "linux"))]
mod platform {
    use super::{Socket, UdpOptions, io};

    pub(super) fn force_receive_buffer(_: &Socket, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn force_send_buffer(_: &Socket, _: usize) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn prepare(_: &Socket, _: bool, _: &UdpOptions) -> io::Result<()> {
        Ok(())
    }
}
