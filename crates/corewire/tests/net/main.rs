//! Servers, clients and codecs over real sockets, on the driver that `COREWIRE_DRIVER` names.
#![allow(clippy::unwrap_used)] // a panic is a failed test

mod common;

mod calls;
mod client;
mod codecs;
mod faults;

mod groups;
mod hostile;
mod objects;
mod panics;
mod process;
mod reconnect;
mod serve;
mod server;
mod settings;
mod shutdown;
mod together;
mod whole;
