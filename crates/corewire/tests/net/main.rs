//! Servers, clients and codecs over real sockets, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

mod groups;
mod panics;
mod server;
mod shutdown;
mod together;
