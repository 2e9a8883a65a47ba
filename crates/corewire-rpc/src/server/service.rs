//! Services: methods by name and mode.

use std::future::Future;
use std::sync::Arc;

use bytes::Bytes;
use corewire_proto::rpc::Mode;

use super::context::Context;
use super::method::{Incoming, Maker, Outcome, maker};
use crate::message::Message;
use crate::sink::Sink;
use crate::status::Status;
use crate::stream::Streaming;

/// A service to be: its methods, each in one of the four modes. A name may be registered once per mode.
///
/// A handler is an asynchronous function. It is polled at once when its call arrives, and becomes a task only if it is
/// not ready then; it runs on the worker of the connection and need not be `Send`. When the client cancels, the deadline
/// passes or the connection is lost, it is dropped.
///
/// ```
/// use bytes::Bytes;
/// use corewire_rpc::{Context, Service, Sink, Status, Streaming};
///
/// let service = Service::new("EchoService")
///     .unary("echo", |request: Bytes, _: Context| async move { Ok(request) })
///     .client_stream("count", |mut parts: Streaming, _: Context| async move {
///         let mut len = 0;
///         while let Some(part) = parts.next().await {
///             len += part?.len();
///         }
///         Ok(Bytes::from(len.to_string()))
///     })
///     .server_stream("thrice", |request: Bytes, mut replies: Sink, _: Context| async move {
///         for _ in 0..3 {
///             replies.send(request.clone()).await?;
///         }
///         Ok(())
///     })
///     .bidi("echo", |mut said: Streaming, mut replies: Sink, _: Context| async move {
///         while let Some(message) = said.next().await {
///             replies.send(message?).await?;
///         }
///         Ok(())
///     });
/// assert_eq!(service.name(), "EchoService");
/// ```
#[derive(Clone)]
#[must_use = "a service is given to `RpcServer::service`"]
pub struct Service {
    name: String,
    methods: Vec<Registered>,
}

/// A method as it is told to every worker.
#[derive(Clone)]
pub(crate) struct Registered {
    pub(crate) service: String,
    pub(crate) method: String,
    pub(crate) mode: Mode,
    pub(crate) is_stream: bool,
    pub(crate) maker: Arc<dyn Maker>,
}

impl Service {
    /// A service without methods.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), methods: Vec::new() }
    }

    /// What clients call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A method with one request and one response.
    pub fn unary<Req, Resp, F, Fut>(self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Req, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, Status>> + 'static,
        Req: Message,
        Resp: Message,
    {
        let start = move |incoming: Incoming| {
            Req::decode(incoming.payload).map(|request| handler(request, incoming.context))
        };
        self.push(method, Mode::Unary, maker(start, one))
    }

    /// A method with any number of requests and one response.
    pub fn client_stream<Req, Resp, F, Fut>(self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Streaming<Req>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Resp, Status>> + 'static,
        Req: Message,
        Resp: Message,
    {
        let start = move |incoming: Incoming| Ok(handler(incoming.requests(), incoming.context));
        self.push(method, Mode::ClientStream, maker(start, one))
    }

    /// A method with one request and any number of responses; they end when the handler does.
    pub fn server_stream<Req, Resp, F, Fut>(self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Req, Sink<Resp>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
        Req: Message,
        Resp: Message,
    {
        let start = move |incoming: Incoming| {
            let sink = incoming.responses();
            Req::decode(incoming.payload).map(|request| handler(request, sink, incoming.context))
        };
        self.push(method, Mode::ServerStream, maker(start, many))
    }

    /// A method with any number of requests and responses, at the same time; the responses end when the handler does.
    pub fn bidi<Req, Resp, F, Fut>(self, method: impl Into<String>, handler: F) -> Self
    where
        F: Fn(Streaming<Req>, Sink<Resp>, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), Status>> + 'static,
        Req: Message,
        Resp: Message,
    {
        self.push(method, Mode::Bidi, both(handler))
    }

    fn push(mut self, method: impl Into<String>, mode: Mode, maker: Arc<dyn Maker>) -> Self {
        let (service, method) = (self.name.clone(), method.into());
        self.methods.push(Registered { service, method, mode, is_stream: false, maker });
        self
    }

    pub(super) fn into_methods(self) -> Vec<Registered> {
        self.methods
    }
}

/// A route of the `STREAM_*` family.
pub(super) fn route<F, Fut>(service: String, method: String, handler: F) -> Registered
where
    F: Fn(Streaming<Bytes>, Sink<Bytes>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + 'static,
{
    Registered { service, method, mode: Mode::Bidi, is_stream: true, maker: both(handler) }
}

fn both<Req, Resp, F, Fut>(handler: F) -> Arc<dyn Maker>
where
    F: Fn(Streaming<Req>, Sink<Resp>, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), Status>> + 'static,
    Req: Message,
    Resp: Message,
{
    let start = move |incoming: Incoming| {
        let (requests, responses) = (incoming.requests(), incoming.responses());
        Ok(handler(requests, responses, incoming.context))
    };
    maker(start, many)
}

/// The one response of a handler.
fn one<Resp: Message>(answer: Result<Resp, Status>) -> Result<Outcome, Status> {
    answer?.encode().map(Outcome::Message)
}

/// A handler has sent its responses.
fn many(answer: Result<(), Status>) -> Result<Outcome, Status> {
    answer.map(|()| Outcome::Finished)
}

impl std::fmt::Debug for Service {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let methods = self.methods.iter().map(|method| (&method.method, method.mode));
        f.debug_struct("Service")
            .field("name", &self.name)
            .field("methods", &methods.collect::<Vec<_>>())
            .finish()
    }
}
