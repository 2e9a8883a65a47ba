//! The provided-buffer ring: memory that the kernel picks from when bytes arrive.

use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use bytes::{BufMut, Bytes, BytesMut};
use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};

/// The one buffer group of a driver.
pub(super) const GROUP: u16 = 0;

/// A ring of equal buffers. The kernel takes from the front what a receive needs; a buffer comes back at the end
/// as soon as nobody keeps its bytes, and is replaced by a new one if somebody does.
#[derive(Debug)]
pub(super) struct BufferRing {
    entries: NonNull<BufRingEntry>,
    map_len: usize,
    buffers: Vec<BytesMut>,
    buffer_size: usize,
    /// Buffers that are done with in this turn, but for what their readers keep of them until its end.
    returned: Vec<u16>,
    /// Where the next buffer goes; the kernel sees it at [`publish`](Self::publish).
    tail: u16,
    published: u16,
}

impl BufferRing {
    /// Registers a ring of `count` buffers (a power of two) of `size` bytes with the kernel.
    pub(super) fn register(submitter: &Submitter<'_>, count: u16, size: usize) -> io::Result<Self> {
        let map_len = usize::from(count) * size_of::<BufRingEntry>();
        // SAFETY: a fresh anonymous mapping at an address of the kernel's choice overlaps nothing.
        let map = unsafe {
            mmap_anonymous(
                std::ptr::null_mut(),
                map_len,
                ProtFlags::READ | ProtFlags::WRITE,
                MapFlags::PRIVATE,
            )?
        };
        let entries = NonNull::new(map.cast::<BufRingEntry>())
            .ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        let buffers = (0..count).map(|_| BytesMut::with_capacity(size)).collect();
        let mut ring = Self {
            entries,
            map_len,
            buffers,
            buffer_size: size,
            returned: Vec::new(),
            tail: 0,
            published: 0,
        };
        for id in 0..count {
            ring.provide(id);
        }
        // SAFETY: the mapping is page-aligned, holds `count` entries and outlives the io_uring (the backend closes
        // the io_uring before it drops this), and is unmapped nowhere else.
        unsafe { submitter.register_buf_ring_with_flags(entries.as_ptr() as u64, count, GROUP, 0)? };
        ring.publish();
        Ok(ring)
    }

    /// Takes the `len` bytes that the kernel put into buffer `id`.
    ///
    /// `None` when the kernel names a buffer or a length that it was never given.
    #[inline]
    pub(super) fn take(&mut self, id: u16, len: usize) -> Option<Bytes> {
        let buffer = self.buffers.get_mut(usize::from(id))?;
        if len > buffer.capacity() - buffer.len() {
            return None;
        }
        // SAFETY: the kernel has written `len` bytes to the front of this buffer's spare capacity, whose address
        // it was given by `provide`, and does not touch it again before it is provided again.
        unsafe { buffer.advance_mut(len) };
        Some(buffer.split_to(len).freeze())
    }

    /// Has buffer `id` put at the end of the ring again by [`publish`](Self::publish).
    #[inline]
    pub(super) fn give_back(&mut self, id: u16) {
        self.returned.push(id);
    }

    /// Lets the kernel see all that was given back since the last call: one store.
    #[inline]
    pub(super) fn publish(&mut self) {
        let size = self.buffer_size;
        while let Some(id) = self.returned.pop() {
            let Some(buffer) = self.buffers.get_mut(usize::from(id)) else { continue };
            if !buffer.try_reclaim(size) {
                // Somebody keeps bytes of it: that memory is theirs now and is freed with the last handle.
                *buffer = BytesMut::with_capacity(size);
            }
            self.provide(id);
        }
        if self.tail == self.published {
            return;
        }
        self.published = self.tail;
        // SAFETY: `entries` is the base of the ring's mapping, as `tail` demands.
        let tail = unsafe { BufRingEntry::tail(self.entries.as_ptr()) };
        // SAFETY: the tail is an aligned u16 inside the mapping, which is only written through this pointer and
        // read by the kernel; the release store makes the entries visible before it.
        unsafe { AtomicU16::from_ptr(tail.cast_mut()) }.store(self.tail, Ordering::Release);
    }

    fn provide(&mut self, id: u16) {
        let buffer = self.buffers[usize::from(id)].spare_capacity_mut();
        let (address, len) = (buffer.as_mut_ptr() as u64, buffer.len().min(self.buffer_size) as u32);
        let at = usize::from(self.tail) & (self.buffers.len() - 1);
        // SAFETY: `at` is below the number of entries in the mapping, and the kernel reads an entry only after the
        // tail has passed it.
        let entry = unsafe { self.entries.add(at).as_mut() };
        entry.set_addr(address);
        entry.set_len(len);
        entry.set_bid(id);
        self.tail = self.tail.wrapping_add(1);
    }
}

impl BufferRing {
    /// Where the buffers lie.
    #[cfg(test)]
    pub(super) fn places(&self) -> Vec<*const u8> {
        self.buffers.iter().map(|buffer| buffer.as_ptr()).collect()
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> usize {
        self.entries.as_ptr() as usize
    }

    /// Leaves all memory to the kernel for good.
    pub(super) fn leak(&mut self) {
        std::mem::forget(std::mem::take(&mut self.buffers));
        self.map_len = 0;
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        if self.map_len == 0 {
            return;
        }
        // SAFETY: the mapping was made by `register` with this length, and the io_uring that read it is closed.
        let unmapped = unsafe { munmap(self.entries.as_ptr().cast(), self.map_len) };
        debug_assert!(unmapped.is_ok(), "a mapping of our own can be unmapped");
    }
}
