//! Fast TCP services: servers and clients from a URI, framing codecs, request matching.
//!
//! A server and a client:
//!
//! ```
//! use corewire::{Frame, NetServer, NetUri, Session, StandardCodec};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // Push style: called for each frame, which lies in the receive buffer.
//! let server = NetServer::bind("tcp://127.0.0.1:0")
//!     .codec(StandardCodec::default)
//!     .handler(|| |session: &Session, frame: Frame<'_>| {
//!         let _ = session.reply(&frame, frame.payload());
//!     })
//!     .workers(1)
//!     .start()?;
//!
//! // A client can be used from any thread and any executor; here from a plain thread.
//! let client = NetUri::parse(server.uri())?.client().codec(StandardCodec::default);
//! let client = client.connect_blocking()?;
//! let reply = corewire::block_on(client.request(b"hello"))?;
//! assert_eq!(&reply[..], b"hello");
//! # Ok(())
//! # }
//! ```
//!
//! What stands behind these types is in [`runtime`] (workers, tasks, timers, streams), [`proto`] (codecs) and
//! [`driver`](runtime::driver) (io_uring, epoll).
#![forbid(unsafe_code)]
#![cfg_attr(not(test), warn(clippy::disallowed_methods))]

pub mod client;
mod datagram;
mod frame;
mod framed;
mod handler;
pub mod kcp;
mod object;
mod reader;
pub mod server;
mod session;
pub mod tls;
pub mod uri;

pub use bytes::Bytes;
pub use client::{CallError, ClientBuilder, ConnectError, NetClient, ObjectCallError};
pub use corewire_proto as proto;
pub use corewire_proto::codec::{
    Codec, DelimiterCodec, FixedLengthCodec, FrameHead, FrameKind, LengthFieldCodec, LineCodec, RawCodec,
    StandardCodec, Varint32Codec,
};
pub use corewire_runtime as runtime;
#[cfg(feature = "tokio")]
pub use corewire_runtime::TokioContext;
pub use corewire_runtime::driver::DriverKind;
pub use corewire_runtime::{CloseReason, RateMin, SendError, SettingError, run, sleep, spawn_local, timeout};
pub use frame::{Frame, Message};
pub use handler::Handler;
pub use object::{Objects, objects};
pub use server::{
    NetServer, Placement, ProtocolServer, ServerError, ServerHandle, ServerStats, Sessions, ShutdownReport,
};
pub use session::{FrameSendError, Session};
pub use uri::{NetUri, UriError};

/// Waits for a future on the calling thread, which must not be a worker: for [`NetClient`]s in plain threads.
///
/// # Panics
/// On a worker, which would wait for itself.
pub fn block_on<F: Future>(future: F) -> F::Output {
    assert!(runtime::current_worker().is_none(), "corewire::block_on on a worker would stop it: use .await");
    futures_lite::future::block_on(future)
}

/// The examples of the pages for users, compiled and run as tests.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../README.zh-CN.md")]
    struct ReadmeZhCn;
    #[doc = include_str!("../../../docs/servers-and-clients.md")]
    struct ServersAndClients;
    #[doc = include_str!("../../../docs/udp.md")]
    struct Udp;
    #[doc = include_str!("../../../docs/reliable-udp.md")]
    struct ReliableUdp;
    #[doc = include_str!("../../../docs/tls.md")]
    struct Tls;
    #[cfg(all(feature = "tokio", feature = "hyper"))]
    #[doc = include_str!("../../../docs/tokio-libraries.md")]
    struct TokioLibraries;
}
