//! Time: deadlines, retries, hedges, what a handler passes on.
//!
//! A call has one deadline: from when its future is first polled, the wait for a connection, each attempt and the waits
//! between attempts included. It is 15 s for unary calls unless the [channel](crate::ChannelBuilder::timeout) or the
//! [call](crate::CallFuture::timeout) says otherwise; calls with streams have none once they have begun. In version 2 the
//! server is told what is left, and drops the handler then.
//!
//! A handler's own calls inherit the deadline and the trace of the call that it serves, whatever worker their channel lives
//! on, unless they are [`detached`](crate::CallFuture::detached).
//!
//! Calls marked [`idempotent`](crate::CallFuture::idempotent) are repeated as the channel, or the call, is told to:
//!
//! - a [`Retry`](crate::Retry) makes a call again that failed as `UNAVAILABLE` or `CONNECTION_CLOSED`, after a random wait
//!   below a bound that doubles each time;
//! - a [`Hedge`](crate::Hedge) makes it again while it is still in flight, and takes the first response.
//!
//! Both take tokens of one budget, which successes fill again, so that an outage is not answered by a flood. Streams are
//! repeated until their first response: requests that were sent are kept until then and sent again with each attempt, up to
//! 256 KiB a call and 16 MiB a channel ([`Retry::keep_per_call`](crate::Retry::keep_per_call),
//! [`Retry::keep`](crate::Retry::keep)). With more of them the attempt in flight is the last one.
//!
//! ```
//! use std::time::Duration;
//! use corewire_rpc::{Bytes, Channel, Context, Hedge, Retry, RpcServer, Service};
//!
//! let echo = Service::new("Echo").unary("echo", |request: Bytes, _: Context| async move { Ok(request) });
//! let server = RpcServer::bind("tcp://127.0.0.1:0").service(echo).workers(1).start()?;
//! let channel = Channel::to(server.uri())
//!     .timeout(Duration::from_secs(5))
//!     .retry(Retry::default())
//!     .hedge(Hedge::after(Duration::from_millis(50)))
//!     .build()?;
//! let reply = corewire::block_on(channel.unary("Echo/echo", "x").idempotent().timeout(Duration::from_secs(1)))?;
//! assert_eq!(reply, "x");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
