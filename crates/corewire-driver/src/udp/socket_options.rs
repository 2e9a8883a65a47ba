//! What is asked of datagram sockets that are open.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use socket2::SockAddr;

use crate::socket::Socket;

/// A network interface for multicast: by address for IPv4, by index for IPv6. The default lets the system choose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MulticastInterface {
    /// An address of the interface.
    pub address: Ipv4Addr,
    /// The index of the interface.
    pub index: u32,
}

impl Default for MulticastInterface {
    fn default() -> Self {
        Self { address: Ipv4Addr::UNSPECIFIED, index: 0 }
    }
}

impl From<Ipv4Addr> for MulticastInterface {
    fn from(address: Ipv4Addr) -> Self {
        Self { address, ..Self::default() }
    }
}

impl From<u32> for MulticastInterface {
    fn from(index: u32) -> Self {
        Self { index, ..Self::default() }
    }
}

/// For datagram sockets. Each of the options fails only when the system refuses it.
#[allow(clippy::missing_errors_doc)] // said above, for all
impl Socket {
    /// Sends to this peer from now on, and receives from it only.
    ///
    /// # Errors
    /// The address is of another family, or there is no route to it.
    pub fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        self.inner().connect(&SockAddr::from(peer))
    }

    /// Sends one datagram to the peer that the socket is connected to.
    ///
    /// # Errors
    /// `WouldBlock`, or what the kernel says: see [`UdpError::of_send`](super::UdpError::of_send).
    pub fn send(&self, payload: &[u8]) -> io::Result<usize> {
        self.inner().send(payload)
    }

    /// Sends one datagram.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(&self, payload: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.inner().send_to(payload, &SockAddr::from(to))
    }

    /// How many routers a datagram may pass: the TTL, or the hop limit of IPv6.
    pub fn hops(&self) -> io::Result<u32> {
        if self.is_v6()? { self.inner().unicast_hops_v6() } else { self.inner().ttl_v4() }
    }

    /// Sets [`hops`](Self::hops).
    pub fn set_hops(&self, hops: u32) -> io::Result<()> {
        if self.is_v6()? { self.inner().set_unicast_hops_v6(hops) } else { self.inner().set_ttl_v4(hops) }
    }

    /// The traffic class: 6 bits of the differentiated services, 2 of the congestion mark.
    pub fn traffic_class(&self) -> io::Result<u32> {
        if self.is_v6()? { self.inner().tclass_v6() } else { self.inner().tos_v4() }
    }

    /// Sets [`traffic_class`](Self::traffic_class).
    pub fn set_traffic_class(&self, class: u32) -> io::Result<()> {
        if self.is_v6()? { self.inner().set_tclass_v6(class) } else { self.inner().set_tos_v4(class) }
    }

    /// Allows sending to broadcast addresses (IPv4).
    pub fn set_broadcast(&self, allow: bool) -> io::Result<()> {
        self.inner().set_broadcast(allow)
    }

    /// Joins a multicast group.
    pub fn join_multicast(&self, group: IpAddr, interface: MulticastInterface) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => self.inner().join_multicast_v4(&group, &interface.address),
            IpAddr::V6(group) => self.inner().join_multicast_v6(&group, interface.index),
        }
    }

    /// Leaves a multicast group.
    pub fn leave_multicast(&self, group: IpAddr, interface: MulticastInterface) -> io::Result<()> {
        match group {
            IpAddr::V4(group) => self.inner().leave_multicast_v4(&group, &interface.address),
            IpAddr::V6(group) => self.inner().leave_multicast_v6(&group, interface.index),
        }
    }

    /// Sends multicast by this interface.
    pub fn set_multicast_interface(&self, interface: MulticastInterface) -> io::Result<()> {
        match self.is_v6()? {
            true => self.inner().set_multicast_if_v6(interface.index),
            false => self.inner().set_multicast_if_v4(&interface.address),
        }
    }

    /// Whether this machine receives what this socket multicasts.
    pub fn multicast_loop(&self) -> io::Result<bool> {
        if self.is_v6()? { self.inner().multicast_loop_v6() } else { self.inner().multicast_loop_v4() }
    }

    /// Sets [`multicast_loop`](Self::multicast_loop).
    pub fn set_multicast_loop(&self, receive: bool) -> io::Result<()> {
        match self.is_v6()? {
            true => self.inner().set_multicast_loop_v6(receive),
            false => self.inner().set_multicast_loop_v4(receive),
        }
    }

    /// How many routers a multicast datagram may pass.
    pub fn multicast_hops(&self) -> io::Result<u32> {
        if self.is_v6()? { self.inner().multicast_hops_v6() } else { self.inner().multicast_ttl_v4() }
    }

    /// Sets [`multicast_hops`](Self::multicast_hops).
    pub fn set_multicast_hops(&self, hops: u32) -> io::Result<()> {
        match self.is_v6()? {
            true => self.inner().set_multicast_hops_v6(hops),
            false => self.inner().set_multicast_ttl_v4(hops),
        }
    }

    fn is_v6(&self) -> io::Result<bool> {
        Ok(self.inner().local_addr()?.is_ipv6())
    }
}
