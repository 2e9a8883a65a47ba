//! What a caller says about one call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{MethodPath, TraceContext};

use super::avoided::Avoided;
use super::policy::{Hedge, Retry};
use crate::metadata::{Head, Metadata};
use crate::status::Status;

/// What goes with one call, of any mode: set by its caller ([`CallFuture::options`](crate::CallFuture::options), or the
/// methods of the same names there), and changed by interceptors for each attempt.
///
/// ```
/// use std::time::Duration;
/// use corewire_rpc::{CallOptions, Retry};
///
/// let mut careful = CallOptions::default();
/// careful.set_timeout(Duration::from_secs(2));
/// careful.set_idempotent(true);
/// careful.set_retry(Retry::default());
/// careful.add_metadata("tenant", "blue");
/// ```
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) head: Head,
    pub(crate) is_idempotent: bool,
    /// Has nothing of the call of the handler that makes it.
    pub(crate) is_detached: bool,
    pub(crate) retry: Option<Retry>,
    pub(crate) hedge: Option<Hedge>,
    pub(crate) is_fail_fast: Option<bool>,
    /// Calls with the same key go to the same endpoint, if the balancer goes by keys.
    pub(crate) key: Option<u64>,
    /// Endpoints that earlier attempts went to.
    pub(crate) avoided: Option<Arc<Avoided>>,
}

impl CallOptions {
    /// The time of the call, the wait for a connection included; in version 2 the server is told.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = Some(timeout);
    }

    /// The time of the call, if it was set.
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Adds metadata (version 2). A name has 1 to 255 characters of `a-z 0-9 - _ .`
    pub fn add_metadata(&mut self, name: impl Into<String>, value: impl Into<Bytes>) {
        self.head.metadata.add(name, value);
    }

    /// The metadata added so far.
    pub fn metadata(&self) -> &Metadata {
        &self.head.metadata
    }

    /// Making the call more than once does no harm: it is retried and hedged, as the channel or this says. Interceptors come
    /// too late to set it.
    pub fn set_idempotent(&mut self, is_idempotent: bool) {
        self.is_idempotent = is_idempotent;
    }

    /// A call that a handler makes has no deadline and no trace of that handler's call, which it inherits otherwise.
    /// Interceptors come too late to set it.
    pub fn set_detached(&mut self, is_detached: bool) {
        self.is_detached = is_detached;
    }

    /// Retries the call, if it is idempotent, by this instead of the channel's setting. The budget is the channel's.
    pub fn set_retry(&mut self, retry: Retry) {
        self.retry = Some(retry);
    }

    /// Hedges the call, if it is idempotent, by this instead of the channel's setting. The budget is the channel's.
    pub fn set_hedge(&mut self, hedge: impl Into<Hedge>) {
        self.hedge = Some(hedge.into());
    }

    /// Whether the call waits for a connection, and for a place among the calls that the server takes at once, or fails at
    /// once when there is none; default the channel's setting.
    pub fn set_wait_for_ready(&mut self, waits: bool) {
        self.is_fail_fast = Some(!waits);
    }

    /// Has a channel whose balancer goes by keys send all calls with this key to the same endpoint.
    pub fn set_balance_key(&mut self, key: u64) {
        self.key = Some(key);
    }

    /// The W3C trace context of the caller, and its `tracestate` (version 2).
    pub fn set_trace(&mut self, trace: TraceContext, state: impl Into<String>) {
        self.head.trace = Some(trace);
        self.head.trace_state = state.into();
    }
}

/// A method to call: a [`MethodPath`] made once, or `"Service/method"`, which is read each time.
pub trait IntoPath {
    /// The path.
    fn into_path(self) -> CallPath;
}

/// The path of one call, which owns it: a clone of a [`MethodPath`] costs a reference count.
#[derive(Debug, Clone)]
pub struct CallPath(Kind);

#[derive(Debug, Clone)]
enum Kind {
    Static(&'static MethodPath),
    Owned(MethodPath),
    Wrong(Status),
}

impl CallPath {
    /// A path of the whole run, which costs nothing.
    #[inline]
    pub const fn of_static(path: &'static MethodPath) -> Self {
        Self(Kind::Static(path))
    }

    /// One that fails its call before it begins.
    pub(super) fn wrong(why: Status) -> Self {
        Self(Kind::Wrong(why.unprocessed()))
    }

    #[inline]
    pub(super) fn get(&self) -> Result<&MethodPath, Status> {
        match &self.0 {
            Kind::Static(path) => Ok(path),
            Kind::Owned(path) => Ok(path),
            Kind::Wrong(why) => Err(why.clone()),
        }
    }
}

impl IntoPath for CallPath {
    #[inline]
    fn into_path(self) -> CallPath {
        self
    }
}

impl IntoPath for &MethodPath {
    #[inline]
    fn into_path(self) -> CallPath {
        CallPath(Kind::Owned(self.clone()))
    }
}

impl IntoPath for MethodPath {
    #[inline]
    fn into_path(self) -> CallPath {
        CallPath(Kind::Owned(self))
    }
}

impl IntoPath for &str {
    fn into_path(self) -> CallPath {
        let Some((service, method)) = self.split_once('/') else {
            return CallPath::wrong(Status::invalid(format!("{self:?} is no method: write Service/method")));
        };
        match MethodPath::new(service, method) {
            Ok(path) => path.into_path(),
            Err(error) => CallPath::wrong(Status::invalid(error.to_string())),
        }
    }
}
