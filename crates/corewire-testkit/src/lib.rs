//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]

pub mod clock;
pub mod link;
pub mod rng;
pub mod stream;
