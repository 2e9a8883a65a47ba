//! Sans-io protocols of Corewire: frames and codecs, request matching.
//!
//! Nothing here does I/O, reads a clock or allocates on the path of a message. A protocol is a state machine:
//! bytes (and, where it matters, the time) go in; bytes and events come out.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod codec;
pub mod kcp;
pub mod matching;
pub mod recency;
pub mod rpc;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/writing-a-codec.md")]
struct WritingACodec;
