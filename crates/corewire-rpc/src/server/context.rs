//! What a handler knows about its call.

use std::fmt;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use corewire_proto::rpc::{CallKey, Mode, TraceContext, Version};
use corewire_runtime::TlsInfo;

use crate::link::{Link, MetadataPart, ResponseMetadata};
use crate::metadata::{Metadata, MetadataError};

/// The name and mode of a method, as it was registered.
#[derive(Debug)]
pub(crate) struct MethodName {
    pub(crate) service: String,
    pub(crate) method: String,
    pub(crate) mode: Mode,
    pub(crate) is_stream: bool,
}

/// What a handler knows about its call beside its messages. Cheap to clone; bound to its worker.
#[derive(Clone)]
pub struct Context {
    pub(super) link: Rc<Link>,
    pub(super) name: Rc<MethodName>,
    pub(super) deadline: Option<Instant>,
    /// What came with the first frame, if that was more than a deadline.
    pub(super) head: Option<Rc<Metadata>>,
    pub(super) key: CallKey,
    /// What was sent, once the call has ended.
    pub(super) sent: Option<Rc<ResponseMetadata>>,
}

impl Context {
    /// The service's name.
    pub fn service(&self) -> &str {
        &self.name.service
    }

    /// The method's name.
    pub fn method(&self) -> &str {
        &self.name.method
    }

    /// How many messages each half has; bidi for routes of the `STREAM_*` family.
    pub fn mode(&self) -> Mode {
        self.name.mode
    }

    /// What the client sent beside its messages; empty in version 1.
    pub fn metadata(&self) -> &Metadata {
        self.head.as_deref().unwrap_or_else(|| Metadata::none())
    }

    /// The caller's W3C trace context. Calls that the handler makes without one of their own carry it on.
    pub fn trace(&self) -> Option<TraceContext> {
        self.head.as_ref()?.extensions().trace()
    }

    /// The caller's W3C `tracestate`; empty if there is none.
    pub fn trace_state(&self) -> &str {
        self.head.as_ref().and_then(|head| head.extensions().trace_state()).unwrap_or_default()
    }

    /// Adds metadata that goes with the first response (version 2); also a failure carries it if nothing was sent before.
    ///
    /// Where one frame is the whole answer, as in unary and client-stream calls, header and trailer are one.
    ///
    /// # Errors
    /// The client speaks version 1, the call is a stream of the `STREAM_*` family, the first response has been sent, or
    /// the name or the length cannot be. Nothing was added.
    pub fn add_header(&self, name: impl Into<String>, value: impl Into<Bytes>) -> Result<(), MetadataError> {
        self.add(MetadataPart::Header, name.into(), value.into())
    }

    /// Adds metadata that goes with the last response, or with the failure (version 2).
    ///
    /// # Errors
    /// As [`add_header`](Self::add_header), but it can be added until the handler has ended.
    pub fn add_trailer(&self, name: impl Into<String>, value: impl Into<Bytes>) -> Result<(), MetadataError> {
        self.add(MetadataPart::Trailer, name.into(), value.into())
    }

    /// The metadata added for the response so far: headers, then trailers. An interceptor sees at the end of a call what
    /// went with it.
    pub fn response_metadata(&self) -> Metadata {
        let joined = |reply: &ResponseMetadata| {
            let mut all = reply.header.clone();
            all.append(&reply.trailer);
            all
        };
        if let Some(sent) = &self.sent {
            return joined(sent);
        }
        self.link.with(|state| state.response_metadata(self.key).map(joined)).unwrap_or_default()
    }

    fn add(&self, part: MetadataPart, name: String, value: Bytes) -> Result<(), MetadataError> {
        if self.version() == Version::V1 {
            return Err(MetadataError::NotInVersion1);
        }
        if self.name.is_stream {
            return Err(MetadataError::NotOnStreams);
        }
        self.link.with(|state| state.add_response_metadata(self.key, part, name, value))
    }

    /// When the call must be done. It fails by itself then, and calls that the handler makes inherit it, unless they are
    /// [detached](crate::CallFuture::detached).
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// The time that is left; `None` if there is no deadline.
    pub fn time_left(&self) -> Option<Duration> {
        Some(self.deadline?.saturating_duration_since(corewire_driver::clock::now()))
    }

    /// The client's address; `None` on Unix-domain sockets.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.link.connection()?.with_socket(|socket| socket.peer_addr().ok()?.as_socket()).flatten()
    }

    /// What was agreed on in the handshake, of a client that is connected over TLS: its certificates, which are verified, the
    /// protocol chosen by ALPN, the name that it asked for.
    pub fn tls(&self) -> Option<Rc<TlsInfo>> {
        self.link.connection()?.tls()
    }

    /// The version of the protocol that the client speaks.
    pub fn version(&self) -> Version {
        self.link.with(|state| state.machine.version()).unwrap_or(Version::V1)
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("service", &self.service())
            .field("method", &self.method())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
