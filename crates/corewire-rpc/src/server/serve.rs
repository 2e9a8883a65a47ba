//! Answering a call, at once or by a task.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{self, Poll};
use std::time::Instant;

use corewire_proto::rpc::{CallKey, Code, Failure};
use corewire_runtime::{panic_advice, spawn_local};

use super::connection::ServerConnection;
use super::context::{Context, MethodName};
use super::interceptor::ServerInterceptor;
use super::method::{FuturePool, Outcome, PooledFuture, poll};
use crate::current::Current;
use crate::link::{Kept, Link, Slot, State};
use crate::status::Status;

/// A call on its way through a handler.
pub(crate) struct Call {
    pub(super) connection: Rc<ServerConnection>,
    pub(super) key: CallKey,
    /// What is kept of it; of a unary call something is only if its handler is not ready at once.
    pub(super) slot: Option<CallKey>,
    /// When it fails, by the worker's clock.
    pub(super) deadline_ms: u64,
    /// Who is told of its end.
    pub(super) watch: Option<Box<Watch>>,
    /// What its request and metadata occupy, in bytes; counted once the handler turns out to wait.
    pub(super) held: u32,
}

impl Call {
    pub(super) fn link(&self) -> &Rc<Link> {
        &self.connection.link
    }
}

/// What interceptors are told at the end of a call.
pub(super) struct Watch {
    pub(super) context: Context,
    pub(super) began: Instant,
    pub(super) interceptors: Arc<[Box<dyn ServerInterceptor>]>,
    /// How many of them have let it in.
    pub(super) seen: usize,
    /// How it ended; a handler that is dropped before it has was cancelled.
    pub(super) code: Code,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let took = corewire_driver::clock::now().duration_since(self.began);
        for interceptor in self.interceptors[..self.seen].iter().rev() {
            // Dropped while a panic unwinds, perhaps: a second one would end the process.
            let told = catch_unwind(AssertUnwindSafe(|| interceptor.on_end(&self.context, self.code, took)));
            if told.is_err() {
                tracing::error!(
                    method = self.context.method(),
                    "an interceptor panicked at the end of a call"
                );
            }
        }
    }
}

/// Writes the answer of a handler.
#[inline]
pub(super) fn answer(mut call: Call, outcome: Result<Outcome, Status>) {
    let key = call.key;
    if let Some(watch) = &mut call.watch {
        watch.code = outcome.as_ref().map_or_else(Status::code, |_| Code::OK);
        let sent = call.connection.link.with(|state| state.response_metadata(key).cloned());
        watch.context.sent = sent.map(Rc::new);
    }
    // Errors here say that the call is over: its client does not wait any more.
    match outcome {
        Ok(Outcome::Message(payload)) => call.link().with(|state| {
            if let Err(error) = state.send_message(key, Kept(&payload), true) {
                fail(state, key, &error.into());
            }
            state.answered(key);
        }),
        Ok(Outcome::Finished) => {
            if let Some(slot) = call.slot
                && let Err(status) = call.link().finish(slot, None)
            {
                call.link().with(|state| {
                    fail(state, key, &status);
                    state.answered(key);
                });
            }
        }
        Err(status) => {
            if let Some(slot) = call.slot {
                call.link().release_held(slot);
            }
            call.link().with(|state| {
                fail(state, key, &status);
                state.answered(key);
            });
        }
    }
    if let Some(slot) = call.slot {
        call.link().release_slot(slot, Code::OK);
    }
}

/// Fails a call, with as much as the client takes.
#[cold]
pub(super) fn fail(state: &mut State, key: CallKey, status: &Status) {
    let failure = Failure { code: status.code(), message: status.wire_message(), details: status.details() };
    if state.send_failure(key, &failure).is_err() {
        // Too long for the client, or the call is over.
        let _ = state.machine.fail(key, &status.code().into(), &mut state.out);
    }
}

/// The status of a handler that panicked.
#[cold]
pub(super) fn panicked(panic: &(dyn Any + Send), name: &MethodName) -> Status {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    let advice = panic_advice(message);
    tracing::error!(service = name.service, method = name.method, message, advice, "a handler panicked");
    Status::internal("the handler panicked")
}

/// Goes on with a handler that was not ready at once.
pub(super) fn spawn<Fut>(
    mut call: Call,
    future: PooledFuture<Fut>,
    pool: FuturePool<Fut>,
    current: Current,
    name: Rc<MethodName>,
) where
    Fut: Future<Output = Result<Outcome, Status>> + 'static,
{
    let link = call.link().clone();
    let own = size_of::<Fut>() + size_of::<Served<Fut>>() + size_of::<Slot>();
    let slot = link.with(|state| {
        let slot = call.slot.unwrap_or_else(|| state.keep(call.key, call.deadline_ms, 1));
        state.lend(slot, own + call.held as usize);
        slot
    });
    call.slot = Some(slot);
    let task = spawn_local(Served { future: Some(future), pool, call: Some(call), current, name });
    link.with(|state| match state.slot(slot) {
        Some(slot) => slot.set_task(task),
        None => task.abort(),
    });
}

/// A handler as a task.
struct Served<Fut> {
    /// `None` once the handler has ended.
    future: Option<PooledFuture<Fut>>,
    pool: FuturePool<Fut>,
    call: Option<Call>,
    current: Current,
    name: Rc<MethodName>,
}

impl<Fut> Future for Served<Fut>
where
    Fut: Future<Output = Result<Outcome, Status>> + 'static,
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut task::Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let entered = this.current.enter();
        let polled = catch_unwind(AssertUnwindSafe(|| {
            let future = this.future.as_mut()?;
            let polled = poll(future, context);
            if polled.is_ready() {
                // What it holds is dropped before the call is answered.
                future.set(None);
            }
            Some(polled)
        }));
        drop(entered);
        let outcome = match polled {
            Ok(Some(Poll::Pending)) => {
                if let Some(Call { slot: Some(slot), connection, .. }) = &this.call {
                    connection.link.release_held(*slot);
                }
                return Poll::Pending;
            }
            Ok(Some(Poll::Ready(outcome))) => {
                this.future.take().into_iter().for_each(|future| this.pool.give(future));
                outcome
            }
            Ok(None) => Err(Status::internal("the handler has ended")),
            Err(panic) => Err(panicked(&*panic, &this.name)),
        };
        if let Some(call) = this.call.take() {
            let connection = call.connection.clone();
            answer(call, outcome);
            connection.close_if_done();
        }
        Poll::Ready(())
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
