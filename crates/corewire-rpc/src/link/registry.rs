//! The links of a worker, so that handles on calls can be carried to other threads.

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use corewire_runtime::WorkerId;
use slab::Slab;

use super::{Link, Machine, State};
use crate::gauges::Gauges;

thread_local! {
    static LINKS: RefCell<Slab<Rc<Link>>> = const { RefCell::new(Slab::new()) };
    /// Those that have gathered something in this turn.
    static GATHERED: RefCell<VecDeque<usize>> = const { RefCell::new(VecDeque::new()) };
}

/// The worker that a link lives on.
pub(crate) type Home = WorkerId;

/// Those whose links are counted together: a server or a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Group(u64);

impl Group {
    /// One of its own in this process.
    pub(crate) fn next() -> Self {
        static GROUPS: AtomicU64 = AtomicU64::new(1);
        Self(GROUPS.fetch_add(1, Ordering::Relaxed))
    }
}

impl Link {
    /// A link of this worker.
    pub(crate) fn new(
        home: Home,
        group: Group,
        machine: Machine,
        high_water: usize,
        stops_on_backlog: bool,
    ) -> Rc<Self> {
        LINKS.with_borrow_mut(|links| {
            let entry = links.vacant_entry();
            let id = entry.key();
            let link = Rc::new(Self {
                id,
                home,
                group,
                state: RefCell::new(State::new(id, machine, high_water, stops_on_backlog)),
                owner: OnceCell::new(),
            });
            entry.insert(link.clone());
            link
        })
    }
}

/// Calls with a link of this worker.
#[inline]
pub(crate) fn with_link<R>(id: usize, call: impl FnOnce(&Rc<Link>) -> R) -> Option<R> {
    let link = LINKS.with_borrow(|links| links.get(id).cloned())?;
    Some(call(&link))
}

/// What the links of a group hold on this worker. Links whose connection is gone count as long as calls of them are held.
pub(crate) fn gauges(group: Group) -> Gauges {
    LINKS.with_borrow(|links| {
        let own = links.iter().map(|(_, link)| link).filter(|link| link.group == group);
        own.map(|link| link.gauges()).sum()
    })
}

/// Has a link flushed at the end of the worker's turn.
pub(super) fn flush_later(id: usize) -> bool {
    GATHERED.with_borrow_mut(|gathered| gathered.push_back(id));
    // Once for each link: one that a worker did not come to before it stopped must not keep the others from it.
    corewire_runtime::before_flush(flush_next)
}

/// Flushes one link, and says whether another waits.
fn flush_next() -> bool {
    if let Some(id) = GATHERED.with_borrow_mut(VecDeque::pop_front) {
        with_link(id, |link| link.flush());
    }
    GATHERED.with_borrow(|gathered| !gathered.is_empty())
}

pub(super) fn remove(id: usize) {
    let link = LINKS.with_borrow_mut(|links| links.try_remove(id));
    drop(link);
}
