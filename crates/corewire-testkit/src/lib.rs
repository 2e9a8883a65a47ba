//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]

mod choices;
pub mod framing;
pub mod fuzz;
pub mod rng;
pub mod rpc_fuzz;
pub mod rpc_pair;
mod rpc_sim;

pub use choices::random_bytes;
