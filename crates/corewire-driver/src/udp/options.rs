//! Datagram sockets and their options.

use std::io;
use std::net::SocketAddr;

use socket2::{Domain, Protocol, Type};

use crate::socket::Socket;
use crate::sys::udp;

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
    udp::prepare(&socket, address.is_ipv6(), options)?;
    socket.inner().bind(&address.into())?;
    Ok(socket)
}

/// What the kernel gave. Linux reports twice the usable size; this is the usable one.
///
/// # Errors
/// The kernel does not tell.
pub fn buffer_sizes(socket: &Socket) -> io::Result<BufferSizes> {
    let socket = socket.inner();
    Ok(BufferSizes {
        receive: socket.recv_buffer_size()? / udp::BUFFER_SHARE,
        send: socket.send_buffer_size()? / udp::BUFFER_SHARE,
    })
}

fn set_buffers(socket: &Socket, options: &UdpOptions) -> io::Result<()> {
    if let Some(size) = options.receive_buffer_size
        && udp::force_receive_buffer(socket, size).is_err()
    {
        socket.set_recv_buffer_size(size)?;
    }
    if let Some(size) = options.send_buffer_size
        && udp::force_send_buffer(socket, size).is_err()
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
