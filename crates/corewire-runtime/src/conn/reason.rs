//! Why a connection ended.

use std::io;
use std::time::Duration;

use crate::secured::TlsError;

/// Why a connection ended; every connection ends with exactly one of these.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseReason {
    /// This side closed it, after all that was queued had been handed to the kernel.
    #[error("closed by this side")]
    Local,
    /// The peer closed it.
    #[error("closed by the peer")]
    PeerClosed,
    /// The kernel reports the connection lost.
    #[error("the connection is lost: {0}")]
    Io(#[from] io::Error),
    /// The handshake of TLS has failed, a record cannot be read, or the stream was cut.
    #[error(transparent)]
    Tls(Box<TlsError>),
    /// Nothing was received or sent for the idle timeout.
    #[error("idle for {0:?}")]
    IdleTimeout(Duration),
    /// The peer connected and sent no whole frame within this time.
    #[error("no whole frame arrived within {0:?} of the connection's beginning")]
    FirstFrameTimeout(Duration),
    /// A frame had begun, and its rest did not arrive within this time.
    #[error("a frame that had begun was not whole after {0:?}")]
    FrameTimeout(Duration),
    /// A frame had begun, and the peer sent its rest too slowly.
    #[error("the peer sent {received} bytes in {window:?} while a frame had begun: less than the least rate")]
    SenderTooSlow {
        /// Bytes that arrived in the window.
        received: usize,
        /// The [window](crate::RateMin::window).
        window: Duration,
    },
    /// The peer took what was queued for it too slowly, or not at all.
    #[error(
        "the peer took {taken} bytes in {window:?}, while {queued} are queued for it: less than the least rate"
    )]
    ReaderTooSlow {
        /// Bytes that it took in the window.
        taken: usize,
        /// Bytes still queued.
        queued: usize,
        /// The [window](crate::RateMin::window).
        window: Duration,
    },
    /// This side closed it, but the peer did not take what was queued within the close timeout.
    #[error("closed by this side; the peer did not take the last {unsent} bytes within {timeout:?}")]
    CloseTimeout {
        /// Bytes that were cut.
        unsent: usize,
        /// The close timeout.
        timeout: Duration,
    },
    /// What was held for all connections of the worker, or of the server, reached the limit, and this one held most of it.
    #[error(
        "closed to make room: {held} bytes were held for it, at a limit of {limit} for all connections; raise the \
         memory limit, or take what arrives sooner"
    )]
    MemoryLimit {
        /// Bytes held for this connection.
        held: usize,
        /// The limit for all connections, of the [runtime](crate::Builder::memory_limit) or of the
        /// [server](crate::MemoryLimit).
        limit: usize,
    },
    /// The peer broke the protocol.
    #[error("the peer broke the protocol: {0}")]
    Protocol(String),
    /// A handler panicked; the connection was closed, the worker goes on.
    #[error("a handler panicked: {0}")]
    HandlerPanicked(String),
    /// The server or the runtime is shutting down.
    #[error("shut down")]
    Shutdown,
}
