//! Datagrams on Linux: many in one system call, with the kernel's offloads.

mod address;
mod control;
mod receiver;
mod sender;

use std::io;
use std::os::fd::AsRawFd;

pub(crate) use self::receiver::Receiver;
pub(crate) use self::sender::Sender;
use crate::socket::Socket;
use crate::udp::UdpOptions;

/// What the kernel says of a buffer's size, for each byte that can be used.
pub(crate) const BUFFER_SHARE: usize = 2;

/// Beyond the system's limit, for those who may.
pub(crate) fn force_receive_buffer(socket: &Socket, size: usize) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, size.min(i32::MAX as usize / 2) as i32)
}

pub(crate) fn force_send_buffer(socket: &Socket, size: usize) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, size.min(i32::MAX as usize / 2) as i32)
}

pub(crate) fn prepare(socket: &Socket, v6: bool, options: &UdpOptions) -> io::Result<()> {
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
    let done = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const value).cast(), len) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
