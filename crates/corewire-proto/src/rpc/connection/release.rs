//! What consumers have taken: room for more.

use super::call::Backlog;
use super::{CallKey, Connection, cost, emit};
use crate::rpc::error::ConnectionError;
use crate::rpc::output::Output;

impl<T> Connection<T> {
    /// Gives back the room of a message without `end` (or of a first request without it) that the consumer has
    /// taken, by its payload's length. In version 2 this is what grants the peer new credit, half a window at a time.
    pub fn release<O: Output + ?Sized>(&mut self, call: CallKey, payload_len: usize, out: &mut O) {
        let Some(index) = self.calls.resolve(call) else { return };
        let window = self.settings.window;
        let call = self.calls.at(index);
        let cost = cost(payload_len).min(call.unreleased);
        call.unreleased -= cost;
        if call.backlog == Backlog::Over && call.unreleased <= u64::from(window / 2) {
            call.backlog = Backlog::Low;
            self.over_window -= 1;
        }
        self.shrink_buffered(cost);
        self.grant(index, cost, out);
    }

    /// Counts `cost` towards the next CREDIT, and sends it when half a window has come together.
    pub(super) fn grant<O: Output + ?Sized>(&mut self, index: u32, cost: u64, out: &mut O) {
        let threshold = (self.settings.window / 2).max(1);
        let has_credit = self.dialect().has_credit();
        let call = self.calls.at(index);
        if !has_credit || call.has_peer_ended() {
            return;
        }
        call.ungranted = call.ungranted.saturating_add(u32::try_from(cost).unwrap_or(u32::MAX));
        if call.ungranted >= threshold {
            let amount = std::mem::take(&mut call.ungranted);
            call.receive_credit += i64::from(amount);
            emit::credit(call.id, amount, out);
        }
    }

    /// Takes a message without END out of the peer's credit, and counts it as handed out.
    pub(super) fn charge(&mut self, index: u32, payload_len: usize) -> Result<(), ConnectionError> {
        let cost = cost(payload_len);
        let (has_credit, window) = (self.dialect().has_credit(), u64::from(self.settings.window));
        let is_abandoned = self.calls.is_abandoned(index);
        let call = self.calls.at(index);
        if has_credit {
            if call.receive_credit <= 0 {
                return Err(ConnectionError::NoCredit { id: call.id });
            }
            call.receive_credit -= cost as i64;
        }
        if is_abandoned {
            return Ok(());
        }
        call.unreleased += cost;
        if !has_credit && call.backlog == Backlog::Low && call.unreleased > window {
            call.backlog = Backlog::Over;
            self.over_window += 1;
        }
        self.buffered += cost;
        self.is_over_buffered |= self.buffered > self.settings.max_buffered;
        Ok(())
    }

    pub(super) fn drop_unreleased(&mut self, index: u32) {
        let call = self.calls.at(index);
        let unreleased = std::mem::take(&mut call.unreleased);
        if std::mem::replace(&mut call.backlog, Backlog::Low) == Backlog::Over {
            self.over_window -= 1;
        }
        self.shrink_buffered(unreleased);
    }

    #[inline]
    fn shrink_buffered(&mut self, cost: u64) {
        self.buffered -= cost;
        if self.buffered <= self.settings.max_buffered / 2 {
            self.is_over_buffered = false;
        }
    }
}
