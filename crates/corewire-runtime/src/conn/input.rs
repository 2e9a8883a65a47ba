//! What has arrived and is not decoded yet.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::memory::Charge;

/// Input that waits for its connection's turn, or for the end of a pause; the oldest first.
#[derive(Default)]
pub(crate) struct Input {
    parts: VecDeque<Part>,
    len: usize,
    /// In the worker's list of input to settle at the end of the tick.
    pub(crate) listed: bool,
    charge: Option<Charge>,
}

struct Part {
    data: Bytes,
    /// It lies in memory of its own size, no longer in a receive buffer.
    owned: bool,
}

impl Input {
    /// What is shorter than this is copied out of its receive buffer when it has to wait longer than a tick: the buffer
    /// may be a hundred times as large, and is missed where the next bytes are to go.
    const COPIED_MAX: usize = 64 * 1024;

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) const fn len(&self) -> usize {
        self.len
    }

    /// What was handed out and is not decoded.
    pub(crate) fn push_front(&mut self, data: Bytes, owned: bool) {
        self.len += data.len();
        self.parts.push_front(Part { data, owned });
    }

    pub(crate) fn push_back(&mut self, data: Bytes) {
        self.len += data.len();
        self.parts.push_back(Part { data, owned: false });
    }

    /// The oldest part, and whether it is owned.
    pub(crate) fn pop(&mut self) -> Option<(Bytes, bool)> {
        let Part { data, owned } = self.parts.pop_front()?;
        self.len -= data.len();
        if self.parts.is_empty() {
            self.charge = None;
        }
        Some((data, owned))
    }

    pub(crate) fn clear(&mut self) {
        *self = Self { listed: self.listed, ..Self::default() };
    }

    /// It has to wait longer: lets go of receive buffers, and counts what is held.
    pub(crate) fn settle(&mut self, charge: impl FnOnce() -> Charge) {
        for part in self.parts.iter_mut().filter(|part| !part.owned) {
            if part.data.len() <= Self::COPIED_MAX {
                part.data = Bytes::copy_from_slice(&part.data);
            }
            part.owned = true;
        }
        if self.len > 0 {
            self.charge.get_or_insert_with(charge).set(self.len);
        }
    }
}
