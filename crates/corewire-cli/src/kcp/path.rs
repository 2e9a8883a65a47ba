//! The simulated path of `bench kcp`: for IP packets where a TUN device can be had, for datagrams elsewhere.

use std::net::SocketAddr;

use corewire_link::link::LinkConfig;
use corewire_link::udp_proxy::UdpProxy;

use crate::failure::Failure;

/// What a path carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// IP packets of any protocol, through a TUN device in a network namespace of its own.
    Tun,
    /// Datagrams, through sockets.
    Proxy,
}

/// A path in both directions, to one server.
pub(super) enum Path {
    #[cfg(target_os = "linux")]
    Tun(super::tun::TunPath),
    Proxy(UdpProxy),
}

impl Path {
    /// Where a server has to listen to be reached over a path of this kind.
    pub(super) fn server_ip(kind: Kind) -> &'static str {
        match kind {
            Kind::Tun => "10.99.0.1",
            Kind::Proxy => "127.0.0.1",
        }
    }

    /// Where a client finds the server.
    pub(super) fn entrance(&self, server: SocketAddr) -> SocketAddr {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tun(_) => super::tun::TunPath::entrance(server),
            Self::Proxy(proxy) => {
                let _ = server;
                proxy.address()
            }
        }
    }

    /// Has TCP connections over it use this congestion control. (Sockets of a network namespace may not choose all of them.)
    pub(super) fn set_tcp_congestion(&self, name: &str) -> Result<(), Failure> {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tun(path) => path
                .set_tcp_congestion(name)
                .map_err(Failure::io(format!("cannot have TCP use {name}, by the program ip"))),
            Self::Proxy(_) => {
                let _ = name;
                Ok(())
            }
        }
    }

    pub(super) fn set_config(&self, config: LinkConfig) {
        match self {
            #[cfg(target_os = "linux")]
            Self::Tun(path) => path.set_config(config),
            Self::Proxy(proxy) => proxy.set_config(config),
        }
    }
}

/// A path that does not know its server yet.
pub(super) enum Builder {
    #[cfg(target_os = "linux")]
    Tun(super::tun::TunPath),
    Proxy(u64),
}

impl Builder {
    /// A path without loss and delay.
    pub(super) fn new(kind: Kind, seed: u64) -> Result<Self, Failure> {
        Ok(match kind {
            #[cfg(target_os = "linux")]
            Kind::Tun => {
                Self::Tun(super::tun::TunPath::start(seed).map_err(Failure::io("cannot make a TUN device"))?)
            }
            _ => Self::Proxy(seed),
        })
    }

    pub(super) fn to(self, server: SocketAddr) -> Result<Path, Failure> {
        Ok(match self {
            #[cfg(target_os = "linux")]
            Self::Tun(path) => {
                path.serve(server.port());
                Path::Tun(path)
            }
            Self::Proxy(seed) => Path::Proxy(
                UdpProxy::start(server, LinkConfig::default(), seed)
                    .map_err(Failure::io("cannot pass datagrams on"))?,
            ),
        })
    }
}
