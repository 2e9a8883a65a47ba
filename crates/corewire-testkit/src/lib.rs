//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]

pub mod framing;
pub mod fuzz;
pub mod rng;
