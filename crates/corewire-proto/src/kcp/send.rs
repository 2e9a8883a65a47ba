//! Taking messages and bytes to send.

use bytes::Bytes;

use super::config::Mode;
use super::control::Kcp;
use super::error::SendError;
use super::send_ring::Payload;

impl Kcp {
    /// Queues a message, copied: the whole of it or nothing. In stream mode, queues bytes.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when the send queue has no room for the whole now; [`SendError::TooLong`] when it
    /// can never have; [`SendError::Closed`] after a close; [`SendError::Empty`] in stream mode.
    pub fn send(&mut self, message: &[u8]) -> Result<(), SendError> {
        match self.config.mode {
            Mode::Stream => {
                let room = self.tail_room();
                self.admit(message.len(), message.len().saturating_sub(room))?;
                self.append_stream(message);
            }
            Mode::Message => {
                self.admit(message.len(), message.len())?;
                self.append_message(message);
            }
        }
        Ok(())
    }

    /// Queues a message without copying it: its segments share `message`'s memory until they are acknowledged.
    /// (In stream mode, less than a segment is copied all the same, to fill segments up.)
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_bytes(&mut self, mut message: Bytes) -> Result<(), SendError> {
        let mss = self.config.mss();
        if self.config.mode == Mode::Stream && message.len() < mss {
            return self.send(&message);
        }
        let mut fragments = self.admit(message.len(), message.len())?;
        while fragments > 0 {
            fragments -= 1;
            let segment = message.split_to(mss.min(message.len()));
            let fragment = if self.config.mode == Mode::Stream { 0 } else { fragments as u8 };
            self.outgoing.push(Payload::Shared(segment), fragment);
        }
        Ok(())
    }

    /// Queues as many of `bytes` as there is room for and gives their number, for stream mode.
    ///
    /// # Errors
    /// [`SendError::WouldBlock`] when there is no room for any; [`SendError::Closed`] after a close. In message
    /// mode it takes all or nothing, as [`send`](Self::send).
    pub fn write(&mut self, bytes: &[u8]) -> Result<usize, SendError> {
        if self.config.mode == Mode::Message {
            return self.send(bytes).map(|()| bytes.len());
        }
        if bytes.is_empty() && self.ending.is_open() {
            return Ok(0);
        }
        let room = self.tail_room() + self.outgoing.free() * self.config.mss();
        let taken = if room == 0 { 1 } else { bytes.len().min(room) };
        self.send(&bytes[..taken.min(bytes.len())])?;
        Ok(taken)
    }

    /// The longest message in bytes that [`send`](Self::send) takes; in stream mode, the most bytes at once.
    pub fn message_max(&self) -> usize {
        let segments = match self.config.mode {
            Mode::Message => self.config.max_fragments,
            Mode::Stream => self.config.send_queue,
        };
        segments * self.config.mss()
    }

    /// Says in how many new segments `new_bytes` of a message of `len` bytes fit, or why they cannot be sent.
    fn admit(&self, len: usize, new_bytes: usize) -> Result<usize, SendError> {
        if !self.ending.is_open() {
            return Err(SendError::Closed);
        }
        if len > self.message_max() {
            return Err(SendError::TooLong { len, limit: self.message_max() });
        }
        let mut needed = new_bytes.div_ceil(self.config.mss());
        if len == 0 {
            if self.config.mode == Mode::Stream {
                return Err(SendError::Empty);
            }
            needed = 1;
        }
        let free = self.outgoing.free();
        if needed > free {
            return Err(SendError::WouldBlock { needed, free });
        }
        Ok(needed)
    }

    fn append_message(&mut self, message: &[u8]) {
        let mss = self.config.mss();
        let mut fragments = message.len().div_ceil(mss).max(1);
        let mut rest = message;
        while fragments > 0 {
            fragments -= 1;
            let (segment, after) = rest.split_at(mss.min(rest.len()));
            rest = after;
            self.push_copy(segment, segment.len(), fragments as u8);
        }
    }

    fn append_stream(&mut self, bytes: &[u8]) {
        let mss = self.config.mss();
        let mut rest = bytes;
        if let Some(tail) = self.outgoing.unsent_tail() {
            let fits = mss.saturating_sub(tail.len()).min(rest.len());
            tail.extend_from_slice(&rest[..fits]);
            rest = &rest[fits..];
        }
        while !rest.is_empty() {
            let (segment, after) = rest.split_at(mss.min(rest.len()));
            rest = after;
            // Later writes fill the segment up, so it gets its full capacity now.
            self.push_copy(segment, mss, 0);
        }
    }

    fn push_copy(&mut self, segment: &[u8], capacity: usize, fragment: u8) {
        let mut buffer = self.pool.take(capacity);
        buffer.extend_from_slice(segment);
        self.outgoing.push(Payload::Pooled(buffer), fragment);
    }

    fn tail_room(&mut self) -> usize {
        let mss = self.config.mss();
        self.outgoing.unsent_tail().map_or(0, |tail| mss.saturating_sub(tail.len()))
    }
}
