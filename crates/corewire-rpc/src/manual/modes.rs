//! The four modes, and what each promises.
//!
//! A call has two halves, that of the requests and that of the responses, which end independently.
//!
//! | mode | requests | responses | the client's future gives |
//! |---|---|---|---|
//! | [unary](crate::Channel::unary) | one | one | the response |
//! | [client stream](crate::Channel::client_stream) | any number | one | a [`Sink`](crate::Sink), and a [`ResponseFuture`](crate::ResponseFuture) |
//! | [server stream](crate::Channel::server_stream) | one | any number | a [`Streaming`](crate::Streaming) |
//! | [bidi](crate::Channel::bidi) | any number | any number | a [`Sink`](crate::Sink) and a [`Streaming`](crate::Streaming) |
//!
//! [`Channel::stream`](crate::Channel::stream) opens a stream of the `STREAM_*` family of galay-rpc: bidi on a route, without
//! metadata of the server.
//!
//! # In every mode
//!
//! - A call ends exactly once: with its response, or with a [`Status`](crate::Status).
//! - A call begins when its future is first polled. Its deadline counts from then.
//! - The future of a call with streams is ready once the call has begun. That of one that may be
//!   [repeated](super::time) is ready with its first response if all requests are known, and else at once.
//! - Dropping the future, the `ResponseFuture` or the `Streaming` cancels the call; the server drops the handler.
//! - Messages of a half arrive in order, whole, and none twice. Those of different calls have no order between them.
//! - A call that is not marked [`idempotent`](crate::CallFuture::idempotent) is never executed twice.
//!
//! # Streams
//!
//! - [`Sink::send`](crate::Sink::send) waits while the peer does not take: each half has a window of 256 KiB
//!   ([`Settings::window`](crate::Settings)). In version 1, which has no credits, a slow consumer stops its connection.
//! - A caller ends the requests by [`Sink::finish`](crate::Sink::finish) or by dropping the sink; the responses go on. A
//!   handler ends the responses by returning, and what it sent before an error arrives before that.
//! - The end of the responses ends the call: requests that are still sent fail as [`Code::CANCELLED`](crate::Code::CANCELLED).
//! - [`Streaming`](crate::Streaming) is a `Stream`, [`Sink`](crate::Sink) a `futures_sink::Sink`;
//!   [`Streaming::forward`](crate::Streaming::forward) joins two calls.
//! - In version 1 a client-stream or bidi call begins with its first message: [`first`](crate::CallFuture::first) or
//!   [`only`](crate::CallFuture::only).
//!
//! ```
//! use corewire_rpc::{Bytes, Channel, Context, RpcServer, Service, Sink, Status, Streaming};
//!
//! let talk = Service::new("Talk").bidi("talk", |mut said: Streaming, mut answers: Sink, _: Context| async move {
//!     while let Some(line) = said.next().await {
//!         answers.send(line?).await?;
//!     }
//!     answers.send("bye".into()).await
//! });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(talk).workers(1).start()?;
//! let channel = Channel::to(server.uri()).build()?;
//! corewire::block_on(async {
//!     let (mut say, mut answers) = channel.bidi::<Bytes, Bytes>("Talk/talk").await?;
//!     say.send("hello".into()).await?;
//!     drop(say);
//!     assert_eq!(answers.next().await.transpose()?.unwrap(), "hello");
//!     assert_eq!(answers.next().await.transpose()?.unwrap(), "bye");
//!     assert!(answers.next().await.is_none());
//!     Ok::<(), Status>(())
//! })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
