//! Limits, and what happens at each.
//!
//! Everything that a peer can make grow has a limit. Those of the protocol are [`Settings`](crate::Settings), for
//! [servers](crate::RpcServer::settings) and [channels](crate::ChannelBuilder::settings):
//!
//! | limit | default | at the limit |
//! |---|---|---|
//! | `max_body`: one frame's body | 16 MiB | a longer one closes the connection; one to be sent fails its call |
//! | `window`: messages of one half that are not taken | 256 KiB | the sender waits |
//! | `max_buffered`: all that a connection holds of what was received | 64 MiB | reading stops until half is taken |
//! | `max_calls`: calls in flight on a connection | 16,384 | one more waits at the client within its time, or fails as `RESOURCE_EXHAUSTED` if it is to fail fast; at the server it is refused with that code |
//! | `max_streams`: streams of the `STREAM_*` family | 4,096 | the same; at the server it is cancelled |
//! | `max_extension`: metadata, trace and deadline of one frame | 16 KiB | a call with more is refused |
//! | `pings` | 64 at once, 8 a second | one more closes the connection |
//! | `cancels`: handlers that the peer aborts | 1,024 at once, 256 a second | one more closes the connection |
//! | `strays`: frames that belong to nothing | 1,024 at once, 256 a second | one more closes the connection |
//!
//! A client keeps to what its server says it takes. Beside these:
//!
//! | limit | default | where |
//! |---|---|---|
//! | time of a unary call | 15 s | [`ChannelBuilder::timeout`](crate::ChannelBuilder::timeout) |
//! | time of a call without a deadline, at the server | none | [`RpcServer::call_timeout`](crate::RpcServer::call_timeout) |
//! | time of calls whose client has closed its sending side | 10 s | [`RpcServer::half_close_timeout`](crate::RpcServer::half_close_timeout) |
//! | connect timeout, for each address | 5 s | [`ClientBuilder::connect_timeout`](corewire::ClientBuilder::connect_timeout), by [`ChannelBuilder::net`](crate::ChannelBuilder::net) |
//! | attempts of a call | 3 by a retry, 2 by a hedge | [`Retry`](crate::Retry), [`Hedge`](crate::Hedge) |
//! | tokens for them | 100, and 1 for 10 successes | [`Retry`](crate::Retry) |
//! | requests of a stream that are kept for another attempt | 256 KiB a call, 16 MiB a channel; with more the call is repeated no more | [`Retry`](crate::Retry) |
//! | text of a status | 16 KiB, cut | [`Status::MESSAGE_MAX`](crate::Status::MESSAGE_MAX) |
//! | send queue of a server's connection | 64 KiB and 256 KiB (low and high water) | [`RpcServer::water_marks`](crate::RpcServer::water_marks) |
//!
//! What a server or a channel holds at a moment is told by [`ServerGauges`](crate::ServerGauges) and
//! [`Channel::gauges`](crate::Channel::gauges).
//!
//! ```
//! use corewire_rpc::{RpcServer, Settings};
//!
//! let mut settings = Settings::default();
//! settings.max_body = 1 << 20;
//! settings.max_calls = 1_000;
//! let server = RpcServer::bind("tcp://127.0.0.1:0").settings(settings).workers(1).start()?;
//! # drop(server);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
