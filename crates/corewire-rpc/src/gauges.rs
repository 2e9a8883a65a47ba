//! What servers and channels hold at a moment.

use std::iter::Sum;

/// What a server or a channel holds at a moment. With nothing in flight everything but `connections` is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Gauges {
    /// Connections that stand.
    pub connections: usize,
    /// Calls of which a half is open, those included that this side gave up and whose end the peer still owes.
    pub calls: usize,
    /// Streams of the `STREAM_*` family of which a half is open, those included that this side gave up.
    pub streams: usize,
    /// Calls and streams that somebody here holds, even if they are over: a handler that runs, a caller that waits, an
    /// end of a stream. Unary calls that are answered at once are never held by a server.
    pub held: usize,
    /// Bytes that are held of what was received: messages that wait for who takes them, and of calls whose handler waits
    /// its request, its metadata and itself. Counted by the memory that they occupy; see [`Settings::max_buffered`].
    ///
    /// [`Settings::max_buffered`]: crate::Settings::max_buffered
    pub buffered_bytes: usize,
    /// Bytes received of frames that are not whole, or whose turn has not come.
    pub unread_bytes: usize,
    /// Bytes that wait to be sent.
    pub unsent_bytes: usize,
}

/// The endpoints of a channel that follows a registry, at a moment; see
/// [`Channel::endpoints`](crate::Channel::endpoints).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct EndpointGauges {
    /// Those that the registry lists.
    pub listed: usize,
    /// Those that it does not list any more and that are in use, because too many went away at once; see
    /// [`PanicConfig`](crate::discover::registry::PanicConfig).
    pub held: usize,
    /// Those that are out of use for a time, because calls to them keep failing.
    pub ejected: usize,
    /// Those that are connected to.
    pub connected: usize,
}

impl Gauges {
    /// Nothing is in flight, and nothing waits to be read or sent.
    pub fn is_idle(&self) -> bool {
        *self == Self { connections: self.connections, ..Self::default() }
    }
}

impl Sum for Gauges {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            connections: sum.connections + one.connections,
            calls: sum.calls + one.calls,
            streams: sum.streams + one.streams,
            held: sum.held + one.held,
            buffered_bytes: sum.buffered_bytes.saturating_add(one.buffered_bytes),
            unread_bytes: sum.unread_bytes + one.unread_bytes,
            unsent_bytes: sum.unsent_bytes + one.unsent_bytes,
        })
    }
}
