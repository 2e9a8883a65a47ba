//! Where frames are written, and what they carry.

use bytes::Bytes;

/// Takes the bytes that the state machine sends, in order: a connection's send queue.
///
/// Writing never fails and never waits; who owns the queue watches its length and stops calling
/// [`Connection::receive`](super::Connection::receive) while a peer that does not read lets it grow.
pub trait Output {
    /// Appends a copy of `bytes`.
    fn write(&mut self, bytes: &[u8]);

    /// Appends a copy of the head of a frame and of its short payload: as two `write`s, at the cost of one.
    #[inline]
    fn write_frame(&mut self, head: &[u8], payload: &[u8]) {
        self.write(head);
        self.write(payload);
    }

    /// Appends `bytes` as a segment of its own, without a copy where the queue can do that.
    fn write_shared(&mut self, bytes: Bytes) {
        self.write(&bytes);
    }
}

impl Output for Vec<u8> {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

impl Output for bytes::BytesMut {
    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// The payload of a message: a slice that is copied into the output, or [`Bytes`] that the output may keep.
pub trait Payload {
    /// Length in bytes.
    fn size(&self) -> usize;

    /// Writes it behind the frame's head.
    fn write_to<O: Output + ?Sized>(self, out: &mut O);

    /// Writes it and, before it, this end of the frame's head.
    #[inline]
    fn write_behind<O: Output + ?Sized>(self, head: &[u8], out: &mut O)
    where
        Self: Sized,
    {
        out.write(head);
        self.write_to(out);
    }
}

impl Payload for &[u8] {
    #[inline]
    fn size(&self) -> usize {
        self.len()
    }

    #[inline]
    fn write_to<O: Output + ?Sized>(self, out: &mut O) {
        out.write(self);
    }

    #[inline]
    fn write_behind<O: Output + ?Sized>(self, head: &[u8], out: &mut O) {
        out.write_frame(head, self);
    }
}

impl<const N: usize> Payload for &[u8; N] {
    #[inline]
    fn size(&self) -> usize {
        N
    }

    #[inline]
    fn write_to<O: Output + ?Sized>(self, out: &mut O) {
        out.write(self);
    }
}

impl Payload for Bytes {
    #[inline]
    fn size(&self) -> usize {
        self.len()
    }

    #[inline]
    fn write_to<O: Output + ?Sized>(self, out: &mut O) {
        out.write_shared(self);
    }
}
