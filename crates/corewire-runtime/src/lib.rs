//! Thread-per-core workers.
#![forbid(unsafe_code)]
