//! Service discovery and load balancing for Corewire.
#![forbid(unsafe_code)]
