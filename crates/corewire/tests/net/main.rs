//! Servers, clients and codecs over real sockets, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

mod calls;
mod client;

mod groups;
mod objects;
mod panics;
mod reconnect;
mod serve;
mod server;
mod shutdown;
mod together;
