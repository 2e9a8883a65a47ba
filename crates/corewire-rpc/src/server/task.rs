//! Handlers that were not ready at once, as tasks. A task whose call has ended waits for another one, so that calls need no
//! memory of their own.

use std::cell::RefCell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll, Waker, ready};

use corewire_proto::rpc::Code;
use corewire_runtime::{JoinHandle, spawn_local};

use super::context::MethodName;
use super::method::Outcome;
use super::pools::{Finish, PooledFuture, Pools, WeakPools, poll};
use super::serve::{Call, answer, panicked};
use crate::current::Current;
use crate::link::Slot;
use crate::status::Status;

/// A call whose handler goes on in a task. Dropped before its end, it is cancelled.
pub(super) struct Served<Fut> {
    /// `None` after a panic.
    future: Option<PooledFuture<Fut>>,
    /// `None` once the handler has ended.
    call: Option<Call>,
    current: Current,
    name: Rc<MethodName>,
}

/// What a task is to do.
type Work<Fut> = Rc<RefCell<Option<Served<Fut>>>>;

/// A task without a call. Dropped, it ends.
pub(super) struct Idle<Fut> {
    work: Work<Fut>,
    waker: Waker,
    /// `None` once it has a call, which it is kept with.
    task: Option<JoinHandle<()>>,
}

impl<Fut> Idle<Fut> {
    /// Has the task go on with the call that it is given.
    #[inline]
    pub(super) const fn waker(&self) -> &Waker {
        &self.waker
    }
}

impl<Fut> Drop for Idle<Fut> {
    fn drop(&mut self) {
        self.task.take().into_iter().for_each(JoinHandle::abort);
    }
}

/// Goes on with a handler that was polled and was not ready: in `idle`, if it was polled with its waker.
pub(super) fn go_on<Fut: Future + 'static>(
    mut call: Call,
    future: PooledFuture<Fut>,
    mut current: Current,
    name: Rc<MethodName>,
    (idle, pools, finish): (Option<Idle<Fut>>, &Pools<Fut>, Finish<Fut>),
) {
    let link = call.link().clone();
    let own = size_of::<Fut>() + size_of::<Served<Fut>>() + size_of::<Slot>();
    let slot = link.with(|state| {
        let slot = call.slot.unwrap_or_else(|| state.keep(call.key, call.deadline_ms, 1));
        state.lend(slot, own + call.held as usize);
        slot
    });
    (call.slot, current.slot) = (Some(slot), Some((link.id, slot)));
    let served = Served { future: Some(future), call: Some(call), current, name };
    let task = match idle {
        Some(mut idle) => {
            served.release_held();
            *idle.work.borrow_mut() = Some(served);
            idle.task.take()
        }
        None => {
            let work = Rc::new(RefCell::new(Some(served)));
            Some(spawn_local(Runner { work, pools: pools.downgrade(), finish }))
        }
    };
    let task = link.with(|state| match state.slot(slot) {
        Some(slot) => {
            task.into_iter().for_each(|task| slot.set_task(task));
            None
        }
        None => task,
    });
    task.into_iter().for_each(JoinHandle::abort);
}

impl<Fut: Future> Served<Fut> {
    /// Ready with how the handler answered.
    fn poll(
        &mut self,
        finish: Finish<Fut>,
        context: &mut task::Context<'_>,
    ) -> Poll<Result<Outcome, Status>> {
        let entered = self.current.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let future = self.future.as_mut()?;
            let polled = poll(future, finish, context);
            if polled.is_ready() {
                // What it holds is dropped before the call is answered.
                future.set(None);
            }
            Some(polled)
        }));
        drop(entered);
        match polled {
            Ok(Some(Poll::Pending)) => {
                self.release_held();
                Poll::Pending
            }
            Ok(Some(ready)) => ready,
            Ok(None) => Poll::Ready(Err(Status::internal("the handler has ended"))),
            Err(panic) => {
                // Whatever is left of it is dropped, and its memory is not used again.
                let future = self.future.take();
                drop(catch_unwind(AssertUnwindSafe(|| drop(future))));
                Poll::Ready(Err(panicked(&*panic, &self.name)))
            }
        }
    }
}

impl<Fut> Served<Fut> {
    /// The handler waits: what it has sent last is not held back any more.
    fn release_held(&self) {
        if let Some(Call { slot: Some(slot), connection, .. }) = &self.call {
            connection.link.release_held(*slot);
        }
    }
}

impl<Fut> Drop for Served<Fut> {
    fn drop(&mut self) {
        if let Some(Call { slot: Some(slot), connection, .. }) = &self.call {
            connection.link.release_slot(*slot, Code::CANCELLED);
            connection.close_if_done();
        }
    }
}

/// A task that runs handlers of one method, one after the other.
struct Runner<Fut: Future> {
    work: Work<Fut>,
    pools: WeakPools<Fut>,
    finish: Finish<Fut>,
}

impl<Fut: Future> Future for Runner<Fut> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<()> {
        let (mut served, outcome) = {
            let mut work = self.work.borrow_mut();
            // Woken late, by what the call before had waited for.
            let Some(served) = &mut *work else { return Poll::Pending };
            let outcome = ready!(served.poll(self.finish, context));
            (work.take(), outcome)
        };
        let Some(call) = served.as_mut().and_then(|served| served.call.take()) else {
            return Poll::Ready(());
        };
        let pools = self.pools.upgrade();
        let future = served.as_mut().and_then(|served| served.future.take());
        if let (Some(pools), Some(future)) = (&pools, future) {
            pools.give(future);
        }
        let connection = call.connection.clone();
        let task = call.slot.and_then(|slot| connection.link.with(|state| state.slot(slot)?.take_task()));
        answer(call, outcome);
        connection.close_if_done();
        // One that was aborted meanwhile, or whose method is gone, ends.
        let (Some(pools), Some(task)) = (pools, task) else { return Poll::Ready(()) };
        let idle = Idle { work: self.work.clone(), waker: context.waker().clone(), task: Some(task) };
        pools.give_idle(idle);
        Poll::Pending
    }
}
