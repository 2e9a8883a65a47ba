//! Answering a call.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use corewire_proto::rpc::{CallKey, Code, Failure};
use corewire_runtime::panic_advice;

use super::connection::ServerConnection;
use super::context::{Context, MethodName};
use super::interceptor::ServerInterceptor;
use super::method::Outcome;
use crate::link::{Kept, Link, State};
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
