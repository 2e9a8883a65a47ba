//! Servers, clients and codecs over real sockets, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

mod groups;
mod objects;
mod panics;
mod serve;
mod server;
mod shutdown;
mod together;
