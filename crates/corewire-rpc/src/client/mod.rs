//! Channels: calls to a server, or to several that are alike.

mod attempt;
mod avoided;
mod builder;
mod call;
mod channel;
mod connection;
mod discovered;
mod interceptor;
mod local;
mod modes;
mod options;
mod policy;
mod pool;
mod remote;
mod repeat;
mod request;
mod schedule;
mod settings;
mod shape;
mod start;
mod streaming;
mod unary;

pub use self::builder::ChannelBuilder;
pub use self::call::{CallFuture, StreamingCall};
pub use self::channel::Channel;
pub(crate) use self::discovered::{Discovery, Serving, WatchHealth};
pub use self::interceptor::ClientInterceptor;
pub use self::options::{CallOptions, CallPath, IntoPath};
pub use self::policy::{Hedge, Retry};
pub use self::shape::Shape;
pub use self::streaming::{BidiStreaming, ClientStreaming, ResponseFuture, ServerStreaming};
pub use self::unary::{Unary, UnaryCall, WithMetadata};
