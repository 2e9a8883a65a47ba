//! Test tools shared by the crates of Corewire.
#![forbid(unsafe_code)]
