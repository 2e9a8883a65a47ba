//! Handlers of any type behind one face, each run without memory of its own while it is ready at once.

use std::cell::Cell;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll, Waker};

use bytes::Bytes;
use corewire_proto::rpc::CallKey;
use corewire_runtime::with_task_quota;

use super::context::{Context, MethodName};
use super::pools::{Finish, Pools, poll};
use super::serve::{self, Call};
use super::task::{Idle, go_on};
use crate::current::{Current, Inherited};
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

/// `start` calls the handler, unless the request cannot be read; its future is run as it is, since each one around it would
/// have it moved once more.
pub(super) fn maker<F, Fut>(start: F, finish: Finish<Fut>) -> Arc<dyn Maker>
where
    F: Fn(Incoming) -> Result<Fut, Status> + Send + Sync + 'static,
    Fut: Future + 'static,
{
    Arc::new(Start { start: Arc::new(start), finish })
}

struct Start<F, Fut: Future> {
    start: Arc<F>,
    finish: Finish<Fut>,
}

impl<F, Fut> Maker for Start<F, Fut>
where
    F: Fn(Incoming) -> Result<Fut, Status> + Send + Sync + 'static,
    Fut: Future + 'static,
{
    fn make(&self, name: Rc<MethodName>) -> Rc<dyn Method> {
        let (start, finish) = (self.start.clone(), self.finish);
        Rc::new(Instance { name, start, finish, pools: Pools::new(), is_slow: Cell::new(false) })
    }
}

struct Instance<F, Fut: Future> {
    name: Rc<MethodName>,
    start: Arc<F>,
    finish: Finish<Fut>,
    pools: Pools<Fut>,
    is_slow: Cell<bool>,
}

impl<F, Fut> Method for Instance<F, Fut>
where
    F: Fn(Incoming) -> Result<Fut, Status> + Send + Sync + 'static,
    Fut: Future + 'static,
{
    fn name(&self) -> &Rc<MethodName> {
        &self.name
    }

    fn is_slow(&self) -> bool {
        self.is_slow.get()
    }

    #[inline]
    fn start(&self, call: Call, payload: Bytes, context: Context) {
        let mut future = self.pools.take();
        // One that will wait most likely is polled by the task that it will be.
        let idle = if self.is_slow.get() { self.pools.take_idle() } else { None };
        let waker = idle.as_ref().map_or(Waker::noop(), Idle::waker);
        let current = Current {
            slot: call.slot.map(|slot| (call.link().id, slot)),
            inherited: Inherited { deadline: context.deadline, head: context.head.clone() },
        };
        let entered = current.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            match (self.start)(Incoming { payload, context, slot: call.slot }) {
                Ok(started) => future.set(Some(started)),
                Err(status) => return Poll::Ready(Err(status)),
            }
            let context = &mut task::Context::from_waker(waker);
            let polled = with_task_quota(|| poll(&mut future, self.finish, context));
            if polled.is_ready() {
                future.set(None);
            }
            polled
        }));
        drop(entered);
        self.is_slow.set(matches!(polled, Ok(Poll::Pending)));
        let outcome = match polled {
            Ok(Poll::Pending) => {
                return go_on(call, future, current, self.name.clone(), (idle, &self.pools, self.finish));
            }
            Ok(Poll::Ready(outcome)) => {
                self.pools.give(future);
                outcome
            }
            Err(panic) => Err(serve::panicked(&*panic, &self.name)),
        };
        idle.into_iter().for_each(|idle| self.pools.give_idle(idle));
        serve::answer(call, outcome);
    }
}
