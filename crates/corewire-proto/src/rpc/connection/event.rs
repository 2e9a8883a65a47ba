//! What a connection tells its owner.

use super::table::CallKey;
use crate::rpc::body::{CancelBody, ErrorBody, GoAwayBody, MethodRef};
use crate::rpc::code::Code;
use crate::rpc::extensions::Extensions;
use crate::rpc::header::Mode;
use crate::rpc::settings::PeerSettings;

/// Something that happened on a connection.
///
/// The peer's half of a call ends exactly once: by [`Event::Message`] with `end`, [`Event::Request`] with `end`,
/// [`Event::Ended`], [`Event::Failed`], [`Event::Cancelled`], or by its key from
/// [`next_refused`](super::Connection::next_refused) or [`next_lost`](super::Connection::next_lost). After a clean
/// end only `Cancelled` (if this side's half is open, or on a server that has not answered) or `next_lost` can follow.
/// No event comes for a call after this side has cancelled or failed it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event<'a> {
    /// A client began a call (server). Answer by `send`, `finish`, `fail` or `cancel`.
    Request {
        /// The new call.
        call: CallKey,
        /// What it asks.
        request: Request<'a>,
    },
    /// A client opened a stream (server). Answer by `accept` or `cancel`.
    StreamOpened {
        /// The new stream.
        call: CallKey,
        /// Its route; there is no payload.
        request: Request<'a>,
    },
    /// A further request, a response, or a message of a stream. Without `end`, give its length to `release` when
    /// it has been taken.
    Message {
        /// The call; it may be over by now.
        call: CallKey,
        /// The message.
        payload: &'a [u8],
        /// The last one of the peer's half.
        end: bool,
        /// What came with it.
        extensions: Extensions<'a>,
    },
    /// The peer ended its half cleanly, without a message.
    Ended {
        /// The call; it may be over by now.
        call: CallKey,
        /// The trailer.
        extensions: Extensions<'a>,
    },
    /// The server failed the call (client). The call is over.
    Failed {
        /// The call.
        call: CallKey,
        /// Why. In version 1 the details are the response's payload, and the message is empty, unless this side has
        /// something to say.
        error: ErrorBody<'a>,
    },
    /// The peer cancelled the call, or sent for it what cannot be read. The call is over.
    Cancelled {
        /// The call.
        call: CallKey,
        /// Why, as far as the peer says it.
        cancel: CancelBody<'a>,
    },
    /// The server accepted the stream (client).
    Accepted {
        /// The stream.
        call: CallKey,
    },
    /// There is credit for a call whose last `send` was blocked.
    Writable {
        /// The call.
        call: CallKey,
    },
    /// The peer's limits are known. Calls that were blocked may have become writable: take them by
    /// [`next_writable`](super::Connection::next_writable).
    Settings(PeerSettings),
    /// The peer answered a ping.
    Pong([u8; 8]),
    /// The peer is going away. On a client, take the calls that it never began by
    /// [`next_refused`](super::Connection::next_refused).
    GoingAway(GoAwayBody<'a>),
    /// Many frames in a row needed nobody but the connection (refusals, pings, what comes late), and there may be more: a
    /// chance for others to have their turn.
    Handled,
}

/// The beginning of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// How many messages each half has; [`Mode::Bidi`] for streams.
    pub mode: Mode,
    /// Which method; [`Connection::names`](super::Connection::names) has its names. A number always stands for some.
    pub method: MethodRef<'a>,
    /// The first message; `None` if the call begins without one, or has none at all.
    pub payload: Option<&'a [u8]>,
    /// The client's half has ended.
    pub end: bool,
    /// Deadline, trace and metadata.
    pub extensions: Extensions<'a>,
}

/// A call that did not succeed, to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failure<'a> {
    /// Why; [`Code::OK`] is sent as [`Code::UNKNOWN`].
    pub code: Code,
    /// The same for people, at most 65,535 bytes. Version 1 sends it as the response's payload, except with codes
    /// 2 and 3, which have none there.
    pub message: &'a str,
    /// Whatever the application adds. Version 1 cannot send it.
    pub details: &'a [u8],
}

impl From<Code> for Failure<'_> {
    fn from(code: Code) -> Self {
        Self { code, message: "", details: &[] }
    }
}
