//! A datagram path that loses, repeats, delays and reorders by a seed: under virtual time in tests, and on real traffic
//! in `corewire proxy`.
#![forbid(unsafe_code)]

pub mod link;
pub mod rng;
pub mod udp_proxy;
