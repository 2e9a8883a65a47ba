//! Channels that follow a registry, and servers that register themselves.
#![allow(clippy::unwrap_used)]

mod balancing;
mod common;
mod following;
mod registering;
#[path = "../support/mod.rs"]
mod support;
mod trouble;
