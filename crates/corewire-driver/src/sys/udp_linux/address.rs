//! Socket addresses as the system writes them.

use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Room for any address.
pub(super) type Storage = MaybeUninit<libc::sockaddr_storage>;

/// Reads what the kernel has written: `None` for no address, or one of another family.
pub(super) fn read(storage: &Storage, len: libc::socklen_t) -> Option<SocketAddr> {
    let len = len as usize;
    if len < size_of::<libc::sa_family_t>() {
        return None;
    }
    // SAFETY: the kernel has written at least the family.
    let family = unsafe { storage.as_ptr().cast::<libc::sa_family_t>().read() };
    match i32::from(family) {
        libc::AF_INET if len >= size_of::<libc::sockaddr_in>() => {
            // SAFETY: the family and the length say that this is what was written.
            let address = unsafe { storage.as_ptr().cast::<libc::sockaddr_in>().read() };
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 if len >= size_of::<libc::sockaddr_in6>() => {
            // SAFETY: as above.
            let address = unsafe { storage.as_ptr().cast::<libc::sockaddr_in6>().read() };
            let ip = Ipv6Addr::from(address.sin6_addr.s6_addr);
            let port = u16::from_be(address.sin6_port);
            Some(SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id).into())
        }
        _ => None,
    }
}
