//! RPC in four call modes with real streams.
//!
//! A server offers [`Service`]s by an [`RpcServer`]; a client calls them by a [`Channel`]. Both speak version 1 of the
//! protocol, that of galay-rpc, and version 2, which adds deadlines, metadata, cancellation, error detail and credits
//! for each stream; a server speaks both on one port.
//!
//! New here? Read the [tutorial](manual::tutorial). The [handbook](manual) says what each [mode](manual::modes) promises, how
//! [calls end](manual::errors), what [time](manual::time) they have, and which [limits](manual::limits) there are.
//!
//! ```
//! use bytes::Bytes;
//! use corewire_rpc::{Channel, Context, RpcServer, Service, Sink, Status, Streaming};
//!
//! let chat = Service::new("Chat")
//!     .unary("echo", |said: Bytes, _: Context| async move { Ok(said) })
//!     .bidi("talk", |mut said: Streaming, mut answers: Sink, _: Context| async move {
//!         while let Some(line) = said.next().await {
//!             answers.send(line?).await?;
//!         }
//!         Ok(())
//!     });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(chat).workers(1).start()?;
//!
//! let channel = Channel::to(server.uri()).build()?;
//! corewire::block_on(async {
//!     assert_eq!(channel.unary("Chat/echo", "Hello").await?, "Hello");
//!
//!     let (mut say, mut answers) = channel.bidi::<Bytes, Bytes>("Chat/talk").await?;
//!     say.send("one".into()).await?;
//!     assert_eq!(answers.next().await.transpose()?.as_deref(), Some(&b"one"[..]));
//!     say.finish().await?;
//!     assert!(answers.next().await.is_none());
//!     Ok::<(), Status>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod client;
mod current;
pub mod discover;
mod feed;
mod forward;
mod gauges;
mod handle;
pub mod health;
mod limits;
mod link;
pub mod listing;
pub mod manual;
mod message;
mod metadata;
mod replay;
pub mod server;
mod sink;
mod status;
mod status_from;
mod stream;

/// What the macros need.
#[doc(hidden)]
pub mod __macros {
    pub use crate::client::CallPath;
    pub use crate::forward::{Messages, forward, forward_results};
}

/// Makes a serde type the payload of messages: compact binary, as [`Compact`], or with `#[message(json)]` JSON.
pub use corewire_rpc_macros::message;
/// Makes a trait of asynchronous functions a service: `NameServer` serves what implements it, `NameClient` calls it.
///
/// The mode of a method is read off its signature: it takes a message or a [`Streaming`] of them (or nothing), and a
/// [`Context`] last if it wants to; it gives `Result<Message, Status>` or `Result<impl Stream<Item = …>, Status>`, where
/// the items are messages, or results if the stream can fail midway.
///
/// | where | option | meaning |
/// |---|---|---|
/// | `#[service(…)]` | `name = "demo.Lines"` | the name on the wire; default that of the trait |
/// | | `rename_all = "PascalCase"` | how the names of methods are written on the wire: also `camelCase`, `snake_case`, `SCREAMING_SNAKE_CASE`, `kebab-case`; default as they are |
/// | a method | `#[rpc(name = "Shout")]` | its name on the wire |
/// | | `#[rpc(idempotent)]` | the client's calls are [`idempotent`](CallFuture::idempotent) |
/// | | `#[rpc(timeout = "2s")]` | and have this [`timeout`](CallFuture::timeout), in `ms`, `s` or `m`, unless a call says another |
/// | | `#[cfg(…)]` | the method exists, on both sides, where this holds |
/// | a parameter | `#[rpc(streaming)]`, `#[rpc(context)]`, `#[rpc(message)]` | what it is, where its type is called otherwise than [`Streaming`] or [`Context`], or a message is called so |
///
/// `NameClient::new(channel)` makes a client and `channel()` gives its channel back; a method of the service of one of these
/// names takes its place, and `From` and `AsRef` are there for the same.
///
/// ```
/// use corewire_rpc::{Bytes, Channel, RpcServer, Status, Stream, Streaming};
/// use serde::{Deserialize, Serialize};
///
/// #[corewire_rpc::message]
/// #[derive(Debug, Serialize, Deserialize)]
/// struct Line {
///     text: String,
/// }
///
/// #[corewire_rpc::service(name = "demo.Lines")]
/// trait Lines {
///     #[rpc(idempotent, timeout = "2s")]
///     async fn shout(&self, line: Line) -> Result<Line, Status>;
///     async fn count(&self, lines: Streaming<Line>) -> Result<Bytes, Status>;
///     async fn split(&self, line: Line) -> Result<impl Stream<Item = Line>, Status>;
/// }
///
/// struct Mine;
///
/// impl Lines for Mine {
///     async fn shout(&self, line: Line) -> Result<Line, Status> {
///         Ok(Line { text: line.text.to_uppercase() })
///     }
///
///     async fn count(&self, mut lines: Streaming<Line>) -> Result<Bytes, Status> {
///         let mut count = 0;
///         while let Some(line) = lines.next().await {
///             line?;
///             count += 1;
///         }
///         Ok(Bytes::from(count.to_string()))
///     }
///
///     async fn split(&self, line: Line) -> Result<impl Stream<Item = Line>, Status> {
///         let words: Vec<String> = line.text.split(' ').map(str::to_owned).collect();
///         Ok(futures_lite::stream::iter(words.into_iter().map(|text| Line { text })))
///     }
/// }
///
/// let server = RpcServer::bind("tcp://127.0.0.1:0").service(LinesServer::new(Mine)).workers(1).start()?;
/// let lines = LinesClient::new(Channel::to(server.uri()).build()?);
/// corewire::block_on(async {
///     assert_eq!(lines.shout(Line { text: "ho".into() }).await?.text, "HO");
///
///     let (mut sink, count) = lines.count().await?;
///     sink.send(Line { text: "one".into() }).await?;
///     sink.finish().await?;
///     assert_eq!(count.await?, "1");
///
///     let mut words = lines.split(Line { text: "a b".into() }).await?;
///     assert_eq!(words.next().await.transpose()?.unwrap().text, "a");
///     Ok::<(), Status>(())
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub use corewire_rpc_macros::service;
pub use futures_core::Stream;

pub use bytes::Bytes;
pub use client::{
    CallFuture, CallOptions, Channel, ChannelBuilder, ClientInterceptor, Hedge, ResponseFuture, Retry,
    StreamingCall, UnaryCall, WithMetadata,
};
pub use corewire_proto::rpc::{
    Code, InvalidTraceParent, MethodPath, Mode, NameTooLong, Rate, Settings, TraceContext, Version, Versions,
};
pub use gauges::{EndpointGauges, Gauges};
#[cfg(feature = "prost")]
pub use message::Proto;
pub use message::{Compact, Json, Message};
pub use metadata::{Metadata, MetadataError};
pub use server::{Context, RpcServer, ServerGauges, ServerInterceptor, Service};
pub use sink::Sink;
pub use status::Status;
pub use stream::Streaming;

/// The examples of the page for users, compiled and run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../docs/discovery.md")]
    struct Discovery;
}
