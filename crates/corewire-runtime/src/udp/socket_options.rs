//! Addresses and options of a [`UdpSocket`].

use std::io;
use std::net::{IpAddr, SocketAddr};

use corewire_driver::Socket;
use corewire_driver::udp::{MulticastInterface, UdpError};

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
        self.option(Socket::hops)
    }

    /// Sets [`ttl`](Self::ttl).
    pub fn set_ttl(&self, hops: u32) -> Result<(), UdpError> {
        self.option(|socket| socket.set_hops(hops))
    }

    /// The differentiated-services code point, 0 to 63.
    pub fn dscp(&self) -> Result<u8, UdpError> {
        self.option(Socket::traffic_class).map(|class| (class >> 2) as u8)
    }

    /// Sets the differentiated-services code point, 0 to 63; larger numbers are refused.
    pub fn set_dscp(&self, dscp: u8) -> Result<(), UdpError> {
        if dscp > 63 {
            let what = format!("a DSCP is 0 to 63, not {dscp}");
            return Err(UdpError::Io(io::Error::new(io::ErrorKind::InvalidInput, what)));
        }
        self.option(|socket| socket.set_traffic_class(u32::from(dscp) << 2))
    }

    /// Allows sending to broadcast addresses (IPv4); default false.
    pub fn set_broadcast(&self, allow: bool) -> Result<(), UdpError> {
        self.option(|socket| socket.set_broadcast(allow))
    }

    /// Joins a multicast group, on the interface of this index (IPv6) or address (IPv4); 0 or unspecified: the system
    /// chooses.
    pub fn join_multicast(&self, group: IpAddr, interface: MulticastInterface) -> Result<(), UdpError> {
        self.option(|socket| socket.join_multicast(group, interface))
    }

    /// Leaves a multicast group; see [`join_multicast`](Self::join_multicast).
    pub fn leave_multicast(&self, group: IpAddr, interface: MulticastInterface) -> Result<(), UdpError> {
        self.option(|socket| socket.leave_multicast(group, interface))
    }

    /// Sends multicast by this interface.
    pub fn set_multicast_interface(&self, interface: MulticastInterface) -> Result<(), UdpError> {
        self.option(|socket| socket.set_multicast_interface(interface))
    }

    /// Whether this machine receives what this socket multicasts; default true.
    pub fn set_multicast_loop(&self, receive: bool) -> Result<(), UdpError> {
        self.option(|socket| socket.set_multicast_loop(receive))
    }

    /// Whether this machine receives what this socket multicasts.
    pub fn multicast_loop(&self) -> Result<bool, UdpError> {
        self.option(Socket::multicast_loop)
    }

    /// How many routers a multicast datagram may pass.
    pub fn multicast_ttl(&self) -> Result<u32, UdpError> {
        self.option(Socket::multicast_hops)
    }

    /// How many routers a multicast datagram may pass, 0: it stays on this machine; default 1: it stays in this network.
    pub fn set_multicast_ttl(&self, hops: u32) -> Result<(), UdpError> {
        self.option(|socket| socket.set_multicast_hops(hops))
    }

    fn option<R>(&self, call: impl FnOnce(&Socket) -> io::Result<R>) -> Result<R, UdpError> {
        self.look_at(call)?.map_err(UdpError::Io)
    }
}
