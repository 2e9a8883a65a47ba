//! Calls that end, or may go on, by something that happened to the whole connection.

use super::call::Own;
use super::{CallKey, Connection, is_later};

impl<T> Connection<T> {
    /// Takes a call that the peer's GOAWAY refused: it was never begun, and can be sent to another server.
    pub fn next_refused(&mut self) -> Option<CallKey> {
        let last = self.refused_after?;
        while self.cursor < self.calls.slots() {
            let index = self.cursor;
            self.cursor += 1;
            let Some(call) = self.calls.get(index) else { continue };
            if last.is_none_or(|last| is_later(call.id, last))
                && let Some(key) = self.take(index)
            {
                return Some(key);
            }
        }
        self.refused_after = None;
        None
    }

    /// Takes a call that was blocked before the peer's SETTINGS were known.
    pub fn next_writable(&mut self) -> Option<CallKey> {
        while self.cursor < self.calls.slots() {
            let index = self.cursor;
            self.cursor += 1;
            let Some(call) = self.calls.get(index) else { continue };
            if call.own == Own::Blocked && call.send_credit > 0 {
                call.own = Own::Open;
                return Some(self.calls.key(index));
            }
        }
        None
    }

    /// Takes a call that ends with the connection. When it answers `None`, every counter is 0.
    pub fn next_lost(&mut self) -> Option<CallKey> {
        self.is_going_away = true;
        // A cursor that an unfinished `next_refused` left behind would skip calls.
        if self.refused_after.take().is_some() || self.cursor > self.calls.slots() {
            self.cursor = 0;
        }
        while !self.is_idle() {
            if self.cursor >= self.calls.slots() {
                self.cursor = 0;
            }
            let index = self.cursor;
            self.cursor += 1;
            if self.calls.get(index).is_some()
                && let Some(key) = self.take(index)
            {
                return Some(key);
            }
        }
        None
    }

    /// Ends a call; the key that it had, if somebody still waits for it.
    fn take(&mut self, index: u32) -> Option<CallKey> {
        let key = self.calls.key(index);
        let is_awaited = !self.calls.is_abandoned(index);
        self.free(index);
        is_awaited.then_some(key)
    }
}
