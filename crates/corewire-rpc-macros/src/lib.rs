//! The `#[service]` macro of `corewire-rpc`.
#![forbid(unsafe_code)]
