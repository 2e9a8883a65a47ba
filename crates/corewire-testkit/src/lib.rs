//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]

#[cfg(feature = "certificates")]
pub mod certificates;
mod choices;
pub mod clock;
pub mod framing;
pub mod fuzz;
pub mod kcp_fuzz;
pub mod kcp_sim;

pub mod rpc_fuzz;
pub mod rpc_pair;
mod rpc_sim;
pub mod stream;

pub use choices::random_bytes;
pub use corewire_link::{link, rng, udp_proxy};
