//! Payloads that outlive the buffer they were received in.

use std::cell::RefCell;

use bytes::Bytes;
use corewire_driver::Blocks;
use corewire_proto::rpc::Origin;

/// A payload up to this size is copied when it is kept, in bytes.
const COPIED_MAX: usize = 4 * 1024;

/// Blocks that small payloads share, in bytes.
const BLOCK: usize = 64 * 1024;

/// A handle on a payload that can be kept. A small one is copied to a block of its own kind, so that a queue of them
/// does not hold the receive buffers of the whole worker; neither allocates in steady state.
#[inline]
pub(crate) fn keep(payload: &[u8], origin: Origin<'_>) -> Bytes {
    thread_local! {
        static BLOCKS: RefCell<Blocks> = RefCell::new(Blocks::new(BLOCK));
    }
    if payload.is_empty() {
        return Bytes::new();
    }
    if payload.len() > COPIED_MAX {
        return origin.to_bytes(payload);
    }
    BLOCKS.with_borrow_mut(|blocks| {
        let room = blocks.room(payload.len());
        room.extend_from_slice(payload);
        room.split().freeze()
    })
}
