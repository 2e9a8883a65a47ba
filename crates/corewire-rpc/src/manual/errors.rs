//! How a call ends: codes, details, what may be made again.
//!
//! A call that does not succeed ends with a [`Status`](crate::Status): a [`Code`](crate::Code), a text for people, and, in
//! version 2, [details](crate::Status::details) of the application (bytes, or
//! [typed](crate::Status::with_typed_details)) and metadata. Every code of gRPC has one here
//! ([`Code::from_grpc`](crate::Code::from_grpc), [`Code::to_grpc`](crate::Code::to_grpc)).
//!
//! | what happened | code |
//! |---|---|
//! | no such service, no such method (or not in this mode) | `SERVICE_NOT_FOUND`, `METHOD_NOT_FOUND` |
//! | the time of the call is over | `DEADLINE_EXCEEDED` |
//! | the caller, or whoever made it, cancelled | `CANCELLED` |
//! | no connection can be made (and the call does not wait); the server is going away | `UNAVAILABLE` |
//! | the connection was lost, or the channel closed, in the middle | `CONNECTION_CLOSED` |
//! | too many calls in flight at the server | `RESOURCE_EXHAUSTED` |
//! | a message cannot be written, cannot be read | `SERIALIZATION`, `DESERIALIZATION` |
//! | a message or a name is not what the protocol allows | `INVALID_REQUEST`, `INVALID_RESPONSE` |
//! | the handler panicked | `INTERNAL` |
//! | the handler returned an error | its own |
//!
//! Version 1 of the wire has the first eleven codes only and no texts: every other code arrives there as `UNKNOWN`.
//!
//! [`Status::is_unprocessed`](crate::Status::is_unprocessed) says that no server has begun the call. Such calls are begun again
//! by themselves, on another connection, within their time. It is false wherever that is not certain: a connection that is
//! lost in the middle of a call does not tell whether the call was executed. What is then safe is for the caller to say, by
//! [`idempotent`](crate::CallFuture::idempotent).
//!
//! A handler uses `?` on I/O errors, timeouts, failed tasks and errors of parsing: they become the code of their meaning.
//!
//! ```
//! use corewire_rpc::{Bytes, Channel, Code, Context, Json, RpcServer, Service, Status};
//!
//! let shop = Service::new("Shop").unary("buy", |_: Bytes, _: Context| async move {
//!     let status = Status::new(Code::FAILED_PRECONDITION, "there are 3 left");
//!     Err::<Bytes, _>(status.with_typed_details(Json(3_u32))?)
//! });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(shop).workers(1).start()?;
//! let channel = Channel::to(server.uri()).build()?;
//! let status = corewire::block_on(channel.unary("Shop/buy", "4")).unwrap_err();
//! assert_eq!(status.code(), Code::FAILED_PRECONDITION);
//! assert_eq!(status.typed_details::<Json<u32>>()?, Json(3));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
