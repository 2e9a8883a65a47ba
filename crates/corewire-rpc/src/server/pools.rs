//! Memory of handlers, kept by a method of one worker from call to call.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};
use std::task::{self, Poll};

use super::method::Outcome;
use super::task::Idle;
use crate::status::Status;

/// What comes of a handler's output.
pub(super) type Finish<Fut> = fn(<Fut as Future>::Output) -> Result<Outcome, Status>;

/// Memory that futures are run in, one after another; `None` between them.
pub(super) type PooledFuture<Fut> = Pin<Box<Option<Fut>>>;

/// Memory without a future, and tasks without a call: what has ended leaves its own to the next.
pub(super) struct Pools<Fut>(Rc<Lists<Fut>>);

/// The same, for tasks: they end with their method.
pub(super) struct WeakPools<Fut>(Weak<Lists<Fut>>);

struct Lists<Fut> {
    futures: RefCell<Vec<PooledFuture<Fut>>>,
    idle: RefCell<Vec<Idle<Fut>>>,
}

impl<Fut> Pools<Fut> {
    /// Pieces of each kind that one method of one worker keeps.
    const MAX: usize = 128;

    pub(super) fn new() -> Self {
        Self(Rc::new(Lists { futures: RefCell::default(), idle: RefCell::default() }))
    }

    #[inline]
    pub(super) fn take(&self) -> PooledFuture<Fut> {
        self.0.futures.borrow_mut().pop().unwrap_or_else(|| Box::pin(None))
    }

    /// Takes back memory whose future has ended.
    #[inline]
    pub(super) fn give(&self, future: PooledFuture<Fut>) {
        let mut futures = self.0.futures.borrow_mut();
        if futures.len() < Self::MAX {
            futures.push(future);
        }
    }

    /// A task that waits for a call.
    #[inline]
    pub(super) fn take_idle(&self) -> Option<Idle<Fut>> {
        self.0.idle.borrow_mut().pop()
    }

    /// Takes a task back whose call has ended.
    pub(super) fn give_idle(&self, task: Idle<Fut>) {
        let mut idle = self.0.idle.borrow_mut();
        if idle.len() < Self::MAX {
            idle.push(task);
        }
    }

    pub(super) fn downgrade(&self) -> WeakPools<Fut> {
        WeakPools(Rc::downgrade(&self.0))
    }
}

impl<Fut> WeakPools<Fut> {
    pub(super) fn upgrade(&self) -> Option<Pools<Fut>> {
        self.0.upgrade().map(Pools)
    }
}

/// Polls the future.
#[inline]
pub(super) fn poll<Fut: Future>(
    future: &mut PooledFuture<Fut>,
    finish: Finish<Fut>,
    context: &mut task::Context<'_>,
) -> Poll<Result<Outcome, Status>> {
    match future.as_mut().as_pin_mut() {
        Some(future) => future.poll(context).map(finish),
        None => Poll::Ready(Err(Status::internal("the handler has ended"))),
    }
}
