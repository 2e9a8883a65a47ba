//! Paths for datagrams, which lose, repeat, delay and reorder by a seed, and for byte streams, which delay: under virtual
//! time in tests, and on real traffic in `corewire proxy`.
#![forbid(unsafe_code)]

pub mod link;
pub mod rng;
pub mod stream;
pub mod udp_proxy;
