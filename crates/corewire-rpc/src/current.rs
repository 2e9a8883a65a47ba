//! The call whose handler runs.

use std::cell::Cell;
use std::time::Instant;

use corewire_proto::rpc::CallKey;

/// The call that the running handler serves.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Current {
    /// The link and the call, if anything is kept of it.
    pub(crate) slot: Option<(usize, CallKey)>,
    /// When the call must be done; calls made inside must be done by then too.
    pub(crate) deadline: Option<Instant>,
}

thread_local! {
    static CURRENT: Cell<Current> = const { Cell::new(Current { slot: None, deadline: None }) };
}

impl Current {
    #[inline]
    pub(crate) fn get() -> Self {
        CURRENT.get()
    }

    /// What of it holds on another worker: its slot is not there.
    pub(crate) const fn elsewhere(self) -> Self {
        Self { slot: None, deadline: self.deadline }
    }

    /// Makes this the current call until the guard is dropped.
    #[inline]
    pub(crate) fn enter(self) -> Entered {
        Entered(CURRENT.replace(self))
    }
}

/// Goes back to the call of before.
pub(crate) struct Entered(Current);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}
