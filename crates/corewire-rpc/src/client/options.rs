//! What a caller says about one call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use corewire_proto::rpc::{MethodPath, TraceContext};

use super::discovered::Avoided;
use crate::metadata::{Head, Metadata};
use crate::status::Status;

/// What goes with one call.
#[derive(Debug, Clone, Default)]
pub struct CallOptions {
    pub(crate) timeout: Option<Duration>,
    pub(crate) head: Head,
    pub(crate) is_idempotent: bool,
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

    /// The W3C trace context of the caller, and its `tracestate` (version 2).
    pub fn set_trace(&mut self, trace: TraceContext, state: impl Into<String>) {
        self.head.trace = Some(trace);
        self.head.trace_state = state.into();
    }
}

/// A method to call: a [`MethodPath`] made once, or `"Service/method"`, which is read each time.
pub trait IntoPath<'a> {
    /// The path.
    fn into_path(self) -> PathRef<'a>;
}

/// A path that is borrowed or was made for one call.
#[derive(Debug)]
pub struct PathRef<'a>(Kind<'a>);

#[derive(Debug)]
enum Kind<'a> {
    Borrowed(&'a MethodPath),
    // Boxed, so that the future of a call by a borrowed path, the usual one, stays small.
    Owned(Box<MethodPath>),
    Wrong(Status),
}

impl PathRef<'_> {
    #[inline]
    pub(crate) fn get(&self) -> Result<&MethodPath, Status> {
        match &self.0 {
            Kind::Borrowed(path) => Ok(path),
            Kind::Owned(path) => Ok(path),
            Kind::Wrong(why) => Err(why.clone()),
        }
    }

    /// One more of the same.
    pub(crate) fn again(&self) -> PathRef<'static> {
        PathRef(match &self.0 {
            Kind::Borrowed(path) => Kind::Owned(Box::new((*path).clone())),
            Kind::Owned(path) => Kind::Owned(path.clone()),
            Kind::Wrong(why) => Kind::Wrong(why.clone()),
        })
    }

    pub(crate) fn into_owned(self) -> PathRef<'static> {
        self.again()
    }
}

impl<'a> IntoPath<'a> for &'a MethodPath {
    #[inline]
    fn into_path(self) -> PathRef<'a> {
        PathRef(Kind::Borrowed(self))
    }
}

impl<'a> IntoPath<'a> for MethodPath {
    fn into_path(self) -> PathRef<'a> {
        PathRef(Kind::Owned(Box::new(self)))
    }
}

impl<'a> IntoPath<'a> for &str {
    fn into_path(self) -> PathRef<'a> {
        let Some((service, method)) = self.split_once('/') else {
            return wrong(format!("{self:?} is no method: write Service/method"));
        };
        match MethodPath::new(service, method) {
            Ok(path) => path.into_path(),
            Err(error) => wrong(error.to_string()),
        }
    }
}

fn wrong(why: String) -> PathRef<'static> {
    PathRef(Kind::Wrong(Status::invalid(why).not_begun()))
}
