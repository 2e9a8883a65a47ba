//! What a faulty or hostile peer may send, and that nothing is left behind by it.
#![allow(clippy::unwrap_used, reason = "a panic is a failed test")]

mod calls;
mod common;
mod floods;
mod frames;
mod ids;
mod limits;
mod methods;
