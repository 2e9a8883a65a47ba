//! The call whose handler runs.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Instant;

use corewire_proto::rpc::{CallKey, TraceContext};

use crate::metadata::Metadata;

/// The call that the running handler serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Current {
    /// The link and the call, if anything is kept of it.
    pub(crate) slot: Option<(usize, CallKey)>,
    /// When the call must be done; calls made inside must be done by then too.
    pub(crate) deadline: Option<Instant>,
    /// What came with the call, its trace among it, which calls made inside carry on.
    pub(crate) head: Option<Rc<Metadata>>,
}

/// What of a call holds on another worker: its slot is not there.
#[derive(Debug)]
pub(crate) struct Elsewhere {
    deadline: Option<Instant>,
    head: Option<Metadata>,
}

thread_local! {
    static CURRENT: RefCell<Current> = const { RefCell::new(Current { slot: None, deadline: None, head: None }) };
}

impl Current {
    /// Whether its handler serves the call of this slot.
    #[inline]
    pub(crate) fn is_of(slot: (usize, CallKey)) -> bool {
        CURRENT.with_borrow(|current| current.slot == Some(slot))
    }

    #[inline]
    pub(crate) fn deadline() -> Option<Instant> {
        CURRENT.with_borrow(|current| current.deadline)
    }

    /// The trace of the call, and its `tracestate`.
    #[inline]
    pub(crate) fn trace() -> Option<(TraceContext, String)> {
        CURRENT.with_borrow(|current| current.head.as_deref().and_then(trace_of))
    }

    pub(crate) fn elsewhere() -> Elsewhere {
        CURRENT.with_borrow(|current| Elsewhere {
            deadline: current.deadline,
            head: current.head.as_deref().filter(|head| trace_of(head).is_some()).cloned(),
        })
    }

    /// Makes this the current call until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        Entered(CURRENT.replace(self.clone()))
    }
}

fn trace_of(head: &Metadata) -> Option<(TraceContext, String)> {
    let extensions = head.extensions();
    Some((extensions.trace()?, extensions.trace_state().unwrap_or_default().to_owned()))
}

impl From<Elsewhere> for Current {
    fn from(Elsewhere { deadline, head }: Elsewhere) -> Self {
        Self { slot: None, deadline, head: head.map(Rc::new) }
    }
}

/// Goes back to the call of before.
pub(crate) struct Entered(Current);

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        CURRENT.set(std::mem::take(&mut self.0));
    }
}
