//! Datagram load, and the baseline beside which it is measured.

#[cfg(target_os = "linux")]
mod bare;
pub(crate) mod credit;
mod load;
#[cfg(target_os = "linux")]
mod wire;

#[cfg(target_os = "linux")]
pub(crate) use bare::{baseline_serve, baseline_workers};
pub(crate) use load::workers;

use std::net::{SocketAddr, ToSocketAddrs};

use corewire::runtime::udp::UdpOptions;

use crate::failure::Failure;

/// How often a client looks whether its datagrams are lost, and sends new ones in their place.
const STALL_MS: u64 = 20;
/// So many looks without a datagram end the wait for those that are still missing when sending has stopped.
const QUIET_LOOKS: u32 = 15;

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
pub(crate) fn any_for(target: SocketAddr) -> SocketAddr {
    match target {
        SocketAddr::V4(_) => (std::net::Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (std::net::Ipv6Addr::UNSPECIFIED, 0).into(),
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn baseline_serve(_: &crate::args::BaselineServeArgs) -> Result<(), Failure> {
    Err(Failure::Setting("the baseline can be measured on Linux only".into()))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn baseline_workers(
    _: &crate::args::BaselineLoadArgs,
) -> Result<crate::run_control::Workers, Failure> {
    Err(Failure::Setting("the baseline can be measured on Linux only".into()))
}
