//! What the owner of a connection keeps of its calls.

use super::{CallKey, Connection};

impl<T> Connection<T> {
    /// Keeps `state` with a call, in the machine's own table, until it is taken: also when the call is over. The key that
    /// it is kept under, which is `call` unless that is over already. What was kept before is dropped.
    #[inline]
    pub fn keep(&mut self, call: CallKey, state: T) -> CallKey {
        self.calls.keep(call, state)
    }

    /// What is kept of a call.
    #[inline]
    pub fn state(&self, call: CallKey) -> Option<&T> {
        self.calls.state(call)
    }

    /// What is kept of a call, to be changed.
    #[inline]
    pub fn state_mut(&mut self, call: CallKey) -> Option<&mut T> {
        self.calls.state_mut(call)
    }

    /// Takes what is kept of a call. The call goes on, if it is not over.
    #[inline]
    pub fn take_state(&mut self, call: CallKey) -> Option<T> {
        self.calls.take_state(call)
    }

    /// Drops what is kept of a call, where it lies: for one whose state is done with. The call goes on, if it is not over.
    #[inline]
    pub fn drop_state(&mut self, call: CallKey) {
        self.calls.drop_state(call);
    }

    /// All that is kept. Takes a step for each call that there ever was at a time.
    pub fn states_mut(&mut self) -> impl Iterator<Item = (CallKey, &mut T)> {
        self.calls.states_mut()
    }

    /// Calls of which something is kept, those included that are over.
    pub const fn calls_kept(&self) -> usize {
        self.calls.kept()
    }

    /// The call is in flight, and this side has not given it up.
    #[inline]
    pub fn is_live(&self, call: CallKey) -> bool {
        self.calls.resolve(call).is_some()
    }
}
