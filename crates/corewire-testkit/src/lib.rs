//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]

pub mod clock;
pub mod kcp_fuzz;
pub mod kcp_sim;
pub mod link;
pub mod rng;
pub mod stream;
