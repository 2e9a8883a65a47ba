//! RPC in four call modes with real streams.
//!
//! A server offers [`Service`]s by an [`RpcServer`]; a client calls them by a [`Channel`]. Both speak version 1 of the
//! protocol, that of galay-rpc, and version 2, which adds deadlines, metadata, cancellation, error detail and credits
//! for each stream; a server speaks both on one port.
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
//! corewire::wait(async {
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

pub mod client;
mod current;
mod handle;
mod interceptor;
mod link;
mod message;
mod metadata;
pub mod server;
mod status;
mod stream;

pub use bytes::Bytes;
pub use client::{CallOptions, Channel, ChannelBuilder, Opening, Reply, Retry, Unary};
pub use corewire_proto::rpc::{
    Code, InvalidTraceParent, MethodPath, Mode, NameTooLong, Rate, Settings, TraceContext, Version,
};
pub use interceptor::{ClientInterceptor, ServerInterceptor};
#[cfg(feature = "prost")]
pub use message::Proto;
pub use message::{Compact, Json, Message};
pub use metadata::Metadata;
pub use server::{Context, RpcServer, Service};
pub use status::Status;
pub use stream::{Sink, Streaming};
