//! What is done around the calls of a server, whatever they are: authentication, logging, metrics.

use std::time::Duration;

use corewire_proto::rpc::Code;

use super::context::Context;
use crate::status::Status;

/// Looks at each call of a server, in the order in which interceptors were added; the ends in the reverse order.
/// Called on the workers, from several threads.
///
/// ```
/// use corewire_rpc::{Code, Context, ServerInterceptor, Status};
///
/// /// Lets in only those who know the word.
/// struct Password(&'static str);
///
/// impl ServerInterceptor for Password {
///     fn on_call(&self, call: &Context) -> Result<(), Status> {
///         match call.metadata().get_str("password") {
///             Some(word) if word == self.0 => Ok(()),
///             _ => Err(Status::new(Code::UNAUTHENTICATED, "send the password as metadata")),
///         }
///     }
/// }
/// ```
pub trait ServerInterceptor: Send + Sync + 'static {
    /// A call has arrived. Metadata for its response can be added to the context, also if it is refused.
    ///
    /// # Errors
    /// The call is refused: it fails with this status, its handler does not run, and interceptors behind this one do not
    /// see it.
    fn on_call(&self, call: &Context) -> Result<(), Status> {
        let _ = call;
        Ok(())
    }

    /// A call has ended, after `took`. [`Code::CANCELLED`] stands for all ends that the handler did not see. What was sent
    /// beside the responses is in [`Context::response_metadata`].
    fn on_end(&self, call: &Context, code: Code, took: Duration) {
        let _ = (call, code, took);
    }
}
