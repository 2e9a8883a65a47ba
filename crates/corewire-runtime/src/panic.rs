//! Panics of user code, turned into values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

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
