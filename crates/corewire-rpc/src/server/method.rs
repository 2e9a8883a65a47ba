//! Handlers of any type behind one face, each run without memory of its own while it is ready at once.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

use bytes::Bytes;
use corewire_proto::rpc::CallKey;
use corewire_runtime::with_task_quota;

use super::context::{Context, MethodName};
use super::serve::{self, Call};
use crate::current::Current;
use crate::handle::Handle;
use crate::sink::Sink;
use crate::status::Status;
use crate::stream::Streaming;

/// A call that has arrived.
pub(crate) struct Incoming {
    pub(crate) payload: Bytes,
    pub(crate) context: Context,
    /// What is kept of the call; of calls of one message each way nothing is.
    slot: Option<CallKey>,
}

impl Incoming {
    pub(super) fn requests<T>(&self) -> Streaming<T> {
        Streaming::new(self.handle(), false)
    }

    pub(super) fn responses<T>(&self) -> Sink<T> {
        // A frame of a stream cannot say that it is the last.
        Sink::of_handler(self.handle(), !self.context.name.is_stream)
    }

    /// One of the slot's holders: as many are counted as the mode has streams.
    fn handle(&self) -> Handle {
        Handle::new(&self.context.link, self.slot.unwrap_or(self.context.key))
    }
}

/// How a handler answered.
pub(crate) enum Outcome {
    /// By its one response.
    Message(Bytes),
    /// By responses that it has sent.
    Finished,
}

/// Makes a worker's own instance of a method.
pub(crate) trait Maker: Send + Sync {
    fn make(&self, name: Rc<MethodName>) -> Rc<dyn Method>;
}

/// A method of one worker.
pub(crate) trait Method {
    fn name(&self) -> &Rc<MethodName>;

    /// Its handler was not ready at once when it was last called: a request will most likely be held for a while.
    fn is_slow(&self) -> bool;

    /// Runs the handler; answers now, or later by a task.
    fn start(&self, call: Call, payload: Bytes, context: Context);
}

pub(super) fn maker<F, Fut>(start: F) -> Arc<dyn Maker>
where
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Status>> + 'static,
{
    Arc::new(Start(Arc::new(start)))
}

struct Start<F>(Arc<F>);

impl<F, Fut> Maker for Start<F>
where
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Status>> + 'static,
{
    fn make(&self, name: Rc<MethodName>) -> Rc<dyn Method> {
        Rc::new(Instance {
            name,
            start: self.0.clone(),
            spare: FuturePool::default(),
            is_slow: Cell::new(false),
        })
    }
}

/// Memory that futures are run in, one after another; `None` between them.
pub(super) type PooledFuture<Fut> = Pin<Box<Option<Fut>>>;

/// Memory without a future: one that has ended leaves its own to the next.
pub(super) struct FuturePool<Fut>(Rc<RefCell<Vec<PooledFuture<Fut>>>>);

impl<Fut> FuturePool<Fut> {
    /// Futures' memory kept by one method of one worker, in pieces.
    const MAX: usize = 64;

    #[inline]
    fn take(&self) -> PooledFuture<Fut> {
        self.0.borrow_mut().pop().unwrap_or_else(|| Box::pin(None))
    }

    /// Takes back memory whose future has ended.
    #[inline]
    pub(super) fn give(&self, future: PooledFuture<Fut>) {
        let mut pool = self.0.borrow_mut();
        if pool.len() < Self::MAX {
            pool.push(future);
        }
    }
}

impl<Fut> Default for FuturePool<Fut> {
    fn default() -> Self {
        Self(Rc::default())
    }
}

impl<Fut> Clone for FuturePool<Fut> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

struct Instance<F, Fut> {
    name: Rc<MethodName>,
    start: Arc<F>,
    spare: FuturePool<Fut>,
    is_slow: Cell<bool>,
}

impl<F, Fut> Method for Instance<F, Fut>
where
    F: Fn(Incoming) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Status>> + 'static,
{
    fn name(&self) -> &Rc<MethodName> {
        &self.name
    }

    fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    #[inline]
    fn start(&self, call: Call, payload: Bytes, context: Context) {
        let mut future = self.spare.take();
        let current = Current {
            slot: call.slot.map(|slot| (call.link().id, slot)),
            deadline: context.deadline,
            head: context.head.clone(),
        };
        let entered = current.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let started = (self.start)(Incoming { payload, context, slot: call.slot });
            future.set(Some(started));
            let polled = with_task_quota(|| poll(&mut future, &mut task::Context::from_waker(Waker::noop())));
            if polled.is_ready() {
                future.set(None);
            }
            polled
        }));
        drop(entered);
        self.is_slow.set(matches!(polled, Ok(Poll::Pending)));
        match polled {
            Ok(Poll::Ready(outcome)) => {
                self.spare.give(future);
                serve::answer(call, outcome);
            }
            Ok(Poll::Pending) => {
                let pool = self.spare.clone();
                serve::spawn(call, future, pool, current, self.name.clone());
            }
            Err(panic) => serve::answer(call, Err(serve::panicked(&*panic, &self.name))),
        }
    }
}

/// Polls the future.
#[inline]
pub(super) fn poll<Fut: Future<Output = Result<Outcome, Status>>>(
    future: &mut PooledFuture<Fut>,
    context: &mut task::Context<'_>,
) -> Poll<Result<Outcome, Status>> {
    match future.as_mut().as_pin_mut() {
        Some(future) => future.poll(context),
        None => Poll::Ready(Err(Status::internal("the handler has ended"))),
    }
}
