//! Every codec against its format, its limits and its peers' faults.
#![allow(clippy::unwrap_used, reason = "helpers of tests may unwrap as tests do")]

mod delimiter;
mod length_field;
mod line;
mod pipeline;
mod replay;
mod simple;
mod split;
mod standard;
mod varint;
