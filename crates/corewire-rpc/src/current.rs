//! The call whose handler runs.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use corewire_proto::rpc::{CallKey, TraceContext};

use crate::metadata::Metadata;

/// The call that the running handler serves.
#[derive(Debug, Clone, Default)]
pub(crate) struct Current {
    /// The link and the call, if anything is kept of it.
    pub(crate) slot: Option<(usize, CallKey)>,
    pub(crate) inherited: Inherited,
}

/// What calls made inside a handler have of its call.
#[derive(Debug, Clone, Default)]
pub(crate) struct Inherited {
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
    /// Apart from what is inherited, which few calls have anything of: each message of a stream asks for this.
    static SLOT: Cell<Option<(usize, CallKey)>> = const { Cell::new(None) };
    /// Something is inherited.
    static INHERITS: Cell<bool> = const { Cell::new(false) };
    static INHERITED: RefCell<Inherited> = const { RefCell::new(Inherited::NOTHING) };
}

impl Inherited {
    const NOTHING: Self = Self { deadline: None, head: None };

    #[inline]
    const fn is_nothing(&self) -> bool {
        self.deadline.is_none() && self.head.is_none()
    }

    /// Makes this what is inherited; what was before.
    #[cold]
    fn set(self) -> Self {
        INHERITS.set(!self.is_nothing());
        INHERITED.replace(self)
    }
}

impl Current {
    /// Whether its handler serves the call of this slot.
    #[inline]
    pub(crate) fn is_of(slot: (usize, CallKey)) -> bool {
        SLOT.get() == Some(slot)
    }

    #[inline]
    pub(crate) fn deadline() -> Option<Instant> {
        if INHERITS.get() { INHERITED.with_borrow(|inherited| inherited.deadline) } else { None }
    }

    /// The trace of the call, and its `tracestate`.
    #[inline]
    pub(crate) fn trace() -> Option<(TraceContext, String)> {
        if !INHERITS.get() {
            return None;
        }
        INHERITED.with_borrow(|inherited| inherited.head.as_deref().and_then(trace_of))
    }

    pub(crate) fn elsewhere() -> Elsewhere {
        INHERITED.with_borrow(|inherited| Elsewhere {
            deadline: inherited.deadline,
            head: inherited.head.as_deref().filter(|head| trace_of(head).is_some()).cloned(),
        })
    }

    /// Makes this the current call until the guard is dropped.
    #[inline]
    pub(crate) fn enter(&self) -> Entered {
        let changes = !self.inherited.is_nothing() || INHERITS.get();
        let inherited = changes.then(|| self.inherited.clone().set());
        Entered { slot: SLOT.replace(self.slot), inherited }
    }
}

fn trace_of(head: &Metadata) -> Option<(TraceContext, String)> {
    let extensions = head.extensions();
    Some((extensions.trace()?, extensions.trace_state().unwrap_or_default().to_owned()))
}

impl From<Elsewhere> for Current {
    fn from(Elsewhere { deadline, head }: Elsewhere) -> Self {
        Self { slot: None, inherited: Inherited { deadline, head: head.map(Rc::new) } }
    }
}

/// Goes back to the call of before.
pub(crate) struct Entered {
    slot: Option<(usize, CallKey)>,
    /// If something else was inherited.
    inherited: Option<Inherited>,
}

impl Drop for Entered {
    #[inline]
    fn drop(&mut self) {
        SLOT.set(self.slot);
        if let Some(inherited) = self.inherited.take() {
            inherited.set();
        }
    }
}
