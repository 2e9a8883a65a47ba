//! One message, as it is handed to the system calls and back.

use std::net::{IpAddr, SocketAddr};

use bytes::Bytes;

use super::Ecn;

/// What is known of one message beside its bytes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meta {
    pub(crate) from: Option<SocketAddr>,
    /// Bytes that were received.
    pub(crate) len: usize,
    /// Bytes that there were: more, if it was truncated.
    pub(crate) full_len: usize,
    /// The size of the datagrams that were joined; 0: not joined.
    pub(crate) segment_size: usize,
    pub(crate) traffic_class: u8,
    pub(crate) destination: Option<IpAddr>,
    pub(crate) interface: Option<u32>,
}

/// What a datagram is sent with beside its payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SendMeta {
    /// Its congestion mark; default: none.
    pub ecn: Ecn,
    /// The address that it comes from, where the socket is bound to several; default: what the system chooses.
    pub source: Option<IpAddr>,
}

/// One message for the kernel: a datagram, or a run of them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub(crate) to: Option<SocketAddr>,
    /// Where it lies: a place in what is kept, or the batch's own memory.
    pub(super) kept: Option<usize>,
    pub(super) start: usize,
    pub(crate) len: usize,
    /// The size of each datagram but the last.
    pub(crate) segment: usize,
    pub(crate) datagrams: usize,
    /// A shorter datagram has ended the run.
    pub(super) closed: bool,
    pub(crate) meta: SendMeta,
}

impl Entry {
    /// The bytes of all its datagrams.
    #[inline]
    pub(crate) fn payload<'a>(&self, Memory(own, kept): Memory<'a>) -> &'a [u8] {
        let memory = self.kept.map_or(own, |place| &kept[place]);
        &memory[self.start..self.start + self.len]
    }
}

/// Where the payloads of entries lie: the batch's own memory, and what is kept.
#[derive(Clone, Copy)]
pub(crate) struct Memory<'a>(pub(super) &'a [u8], pub(super) &'a [Bytes]);
