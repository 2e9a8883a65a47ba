//! How many connections each peer address has.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Mutex, PoisonError};

/// Counts connections by the address of their peer, over all workers. Locked when a connection comes and goes.
#[derive(Debug, Default)]
pub(super) struct Addresses {
    counts: Mutex<HashMap<PeerAddress, usize>>,
}

/// What one peer has to itself: an IPv4 address, or the first 64 bits of an IPv6 address, of which a single host may have
/// all the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct PeerAddress(IpAddr);

impl PeerAddress {
    pub(super) fn of(peer: SocketAddr) -> Self {
        Self(match peer.ip().to_canonical() {
            IpAddr::V6(address) => {
                let prefix = address.to_bits() & !u128::from(u64::MAX);
                Ipv6Addr::from_bits(prefix).into()
            }
            address => address,
        })
    }
}

impl Addresses {
    /// Counts one more connection, unless the address has as many as it may.
    pub(super) fn admit(&self, address: PeerAddress, limit: usize) -> bool {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = counts.entry(address).or_default();
        let is_admitted = *count < limit;
        *count += usize::from(is_admitted);
        is_admitted
    }

    pub(super) fn release(&self, address: PeerAddress) {
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&address) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> PeerAddress {
        PeerAddress::of(SocketAddr::new(text.parse().expect("an address"), 7))
    }

    #[test]
    fn a_peer_is_an_ipv4_address_or_an_ipv6_prefix_of_64_bits() {
        assert_eq!(address("2001:db8:1:2::1"), address("2001:db8:1:2:ffff::"));
        assert_ne!(address("2001:db8:1:2::1"), address("2001:db8:1:3::1"));
        assert_eq!(address("::ffff:10.0.0.1"), address("10.0.0.1"));
        assert_ne!(address("::ffff:10.0.0.1"), address("::ffff:10.0.0.2"));
    }

    #[test]
    fn nothing_is_kept_of_an_address_without_connections() {
        let (addresses, one) = (Addresses::default(), address("10.0.0.1"));
        assert_eq!([(); 3].map(|()| addresses.admit(one, 2)), [true, true, false]);
        addresses.release(one);
        assert!(addresses.admit(one, 2));
        addresses.release(one);
        addresses.release(one);
        assert_eq!(addresses.counts.lock().expect("no panic").len(), 0);
    }
}
