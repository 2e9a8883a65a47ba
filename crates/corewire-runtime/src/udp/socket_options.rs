//! Addresses and options of a [`UdpSocket`].

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use corewire_driver::Socket;
use corewire_driver::udp::UdpError;

use super::socket::UdpSocket;

/// Each of these fails only when the kernel refuses the option or the socket is closed.
#[allow(clippy::missing_errors_doc)] // said above, for all
impl UdpSocket {
    /// The address of this end.
    pub fn local_addr(&self) -> Result<SocketAddr, UdpError> {
        let address = self.option(|socket| socket.local_addr())?;
        address.as_socket().ok_or(UdpError::NotConnected)
    }

    /// The peer that the socket is connected to.
    pub fn peer_addr(&self) -> Result<SocketAddr, UdpError> {
        let address = self.option(|socket| socket.peer_addr())?;
        address.as_socket().ok_or(UdpError::NotConnected)
    }

    /// How many routers a datagram may pass: the TTL, or the hop limit of IPv6; the system's default is 64.
    pub fn ttl(&self) -> Result<u32, UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| if v6 { socket.unicast_hops_v6() } else { socket.ttl_v4() })
    }

    /// Sets [`ttl`](Self::ttl).
    pub fn set_ttl(&self, hops: u32) -> Result<(), UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| if v6 { socket.set_unicast_hops_v6(hops) } else { socket.set_ttl_v4(hops) })
    }

    /// The differentiated-services code point, 0 to 63.
    pub fn dscp(&self) -> Result<u8, UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| if v6 { socket.tclass_v6() } else { socket.tos_v4() })
            .map(|tos| (tos >> 2) as u8)
    }

    /// Sets the differentiated-services code point, 0 to 63; larger numbers are refused.
    pub fn set_dscp(&self, dscp: u8) -> Result<(), UdpError> {
        if dscp > 63 {
            let what = format!("a DSCP is 0 to 63, not {dscp}");
            return Err(UdpError::Io(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        let (v6, class) = (self.is_v6()?, u32::from(dscp) << 2);
        self.option(|socket| if v6 { socket.set_tclass_v6(class) } else { socket.set_tos_v4(class) })
    }

    /// Allows sending to broadcast addresses (IPv4); default false.
    pub fn set_broadcast(&self, allow: bool) -> Result<(), UdpError> {
        self.option(|socket| socket.set_broadcast(allow))
    }

    /// Joins a multicast group, on the interface of this index (IPv6) or address (IPv4); 0 or unspecified: the system
    /// chooses.
    pub fn join_multicast(&self, group: IpAddr, interface: MulticastInterface) -> Result<(), UdpError> {
        self.option(|socket| match group {
            IpAddr::V4(group) => socket.join_multicast_v4(&group, &interface.address),
            IpAddr::V6(group) => socket.join_multicast_v6(&group, interface.index),
        })
    }

    /// Leaves a multicast group; see [`join_multicast`](Self::join_multicast).
    pub fn leave_multicast(&self, group: IpAddr, interface: MulticastInterface) -> Result<(), UdpError> {
        self.option(|socket| match group {
            IpAddr::V4(group) => socket.leave_multicast_v4(&group, &interface.address),
            IpAddr::V6(group) => socket.leave_multicast_v6(&group, interface.index),
        })
    }

    /// Sends multicast by this interface.
    pub fn set_multicast_interface(&self, interface: MulticastInterface) -> Result<(), UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| match v6 {
            true => socket.set_multicast_if_v6(interface.index),
            false => socket.set_multicast_if_v4(&interface.address),
        })
    }

    /// Whether this machine receives what this socket multicasts; default true.
    pub fn set_multicast_loop(&self, receive: bool) -> Result<(), UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| match v6 {
            true => socket.set_multicast_loop_v6(receive),
            false => socket.set_multicast_loop_v4(receive),
        })
    }

    /// Whether this machine receives what this socket multicasts.
    pub fn multicast_loop(&self) -> Result<bool, UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| if v6 { socket.multicast_loop_v6() } else { socket.multicast_loop_v4() })
    }

    /// How many routers a multicast datagram may pass.
    pub fn multicast_ttl(&self) -> Result<u32, UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| if v6 { socket.multicast_hops_v6() } else { socket.multicast_ttl_v4() })
    }

    /// How many routers a multicast datagram may pass, 0: it stays on this machine; default 1: it stays in this network.
    pub fn set_multicast_ttl(&self, hops: u32) -> Result<(), UdpError> {
        let v6 = self.is_v6()?;
        self.option(|socket| match v6 {
            true => socket.set_multicast_hops_v6(hops),
            false => socket.set_multicast_ttl_v4(hops),
        })
    }

    fn is_v6(&self) -> Result<bool, UdpError> {
        Ok(self.local_addr()?.is_ipv6())
    }

    fn option<R>(&self, call: impl FnOnce(&Socket) -> io::Result<R>) -> Result<R, UdpError> {
        self.look_at(call)?.map_err(UdpError::Io)
    }
}

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
