//! Datagram load, and the limit beside which it is measured.

#[cfg(target_os = "linux")]
mod bare;
pub(crate) mod credit;
mod load;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub(crate) use bare::{limit_crew, limit_serve};
pub(crate) use load::crew;

use std::net::{SocketAddr, ToSocketAddrs};

use corewire::runtime::udp::UdpOptions;

use crate::failure::Failure;

/// How often a client looks whether its datagrams are lost, and sends new ones in their place.
const STALL_MS: u64 = 20;

/// The address in `udp://host:port`.
fn address(uri: &str) -> Result<SocketAddr, Failure> {
    let bad = |reason: String| Failure::Target { target: uri.into(), reason };
    let host = uri.strip_prefix("udp://").ok_or_else(|| bad("datagrams go to udp:// only".into()))?;
    let mut found = host.to_socket_addrs().map_err(|error| bad(error.to_string()))?;
    found.next().ok_or_else(|| bad("the host has no address".into()))
}

fn options(no_offload: bool) -> UdpOptions {
    let mut options = UdpOptions::default();
    (options.coalesce, options.segment) = (!no_offload, !no_offload);
    options
}

/// An address of this machine's choice in the family of the target.
fn any_for(target: SocketAddr) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn limit_serve(_: &crate::args::LimitServeArgs) -> Result<(), Failure> {
    Err(Failure::Setting("the limit can be measured on Linux only".into()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn limit_crew(_: &crate::args::LimitLoadArgs) -> Result<crate::conduct::Crew, Failure> {
    Err(Failure::Setting("the limit can be measured on Linux only".into()))
}
