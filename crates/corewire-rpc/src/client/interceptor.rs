//! What is done around the calls of a channel, whatever they are.

use std::sync::Arc;
use std::time::Duration;

use corewire_proto::rpc::{Code, MethodPath};

use super::options::CallOptions;
use crate::metadata::Metadata;
use crate::status::Status;

/// Looks at each call of a channel, in the order in which interceptors were added; the ends in the reverse order.
/// Called on the channel's worker.
///
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use std::time::Duration;
/// use corewire_rpc::{CallOptions, ClientInterceptor, Code, MethodPath, Status};
///
/// /// Sends a token with each call, and counts those that fail.
/// struct Token {
///     token: String,
///     failures: AtomicU64,
/// }
///
/// impl ClientInterceptor for Token {
///     fn on_call(&self, _: &MethodPath, options: &mut CallOptions) -> Result<(), Status> {
///         options.add_metadata("authorization", self.token.clone());
///         Ok(())
///     }
///
///     fn on_end(&self, _: &MethodPath, code: Code, _: Duration) {
///         self.failures.fetch_add(u64::from(!code.is_ok()), Ordering::Relaxed);
///     }
/// }
/// ```
pub trait ClientInterceptor: Send + Sync + 'static {
    /// A call is about to be made (once for each attempt); `options` can be changed, to add metadata for example.
    ///
    /// # Errors
    /// The call is not made: it fails with this status.
    fn on_call(&self, path: &MethodPath, options: &mut CallOptions) -> Result<(), Status> {
        let _ = (path, options);
        Ok(())
    }

    /// What the server sent beside its responses (version 2), headers and trailers; told before the end of the call, and
    /// not at all if there is none. That of a failure is with it.
    fn on_metadata(&self, path: &MethodPath, metadata: &Metadata) {
        let _ = (path, metadata);
    }

    /// A call has ended, after `took`: a unary one with its result, one with streams when its caller has dropped all its
    /// ends. [`Code::CANCELLED`] is that of calls that were dropped before the server had ended.
    fn on_end(&self, path: &MethodPath, code: Code, took: Duration) {
        let _ = (path, code, took);
    }
}

/// Tells interceptors how a call ended, the last one first.
pub(super) fn on_end(
    interceptors: &[Arc<dyn ClientInterceptor>],
    path: &MethodPath,
    metadata: &Metadata,
    code: Code,
    took: Duration,
) {
    for interceptor in interceptors.iter().rev() {
        if !metadata.is_empty() {
            interceptor.on_metadata(path, metadata);
        }
        interceptor.on_end(path, code, took);
    }
}
