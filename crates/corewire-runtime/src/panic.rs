//! Panics of user code, turned into values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::tokio_context::ADVICE;

/// Calls user code; a panic becomes its message.
///
/// The state that the closure could leave half-changed is the user's own, which is not used again after a panic but
/// to be told of the end and dropped.
#[inline]
pub(crate) fn guarded<R>(call: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(call)).map_err(|payload| message(&*payload))
}

pub(crate) fn message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "a panic without a message".to_owned())
}

/// What the user can do about a panic, if its message is one of those that new users meet. Logged beside the message by
/// workers; for those who catch panics of user code themselves.
///
/// ```
/// use corewire_runtime::panic_advice;
///
/// let message = "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
/// assert!(panic_advice(message).unwrap().contains("call `.tokio("));
/// assert_eq!(panic_advice("index out of bounds"), None);
/// ```
pub fn panic_advice(message: &str) -> Option<&'static str> {
    let says = |part| message.contains(part);
    if says("there is no reactor running") {
        return Some(ADVICE);
    }
    (says("`spawn_local` called from outside") && says("LocalSet"))
        .then_some("workers have no `LocalSet` of tokio: use corewire's `spawn_local`")
}
